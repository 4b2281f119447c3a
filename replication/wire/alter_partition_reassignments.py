"""AlterPartitionReassignments (KIP-455): moves partitions to other brokers, or cancels a move.

`replicas` null cancels what is under way. Version 1 may forbid that the number of replicas
changes (KIP-860).
"""

from replication.wire.schema import Kind, array, boolean, define, int16, int32, string


@define(kw_only=True)
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(Kind.INT32, nullable="0+", null_by_default=True)


@define(kw_only=True)
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@define(kw_only=True)
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@define(kw_only=True)
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@define(kw_only=True)
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@define(kw_only=True)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
