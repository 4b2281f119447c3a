"""ElectLeaders (KIP-183, KIP-460): requests elections for partitions, or for all if `topic_partitions` is null."""

from replication.wire.schema import Kind, array, define, int8, int16, int32, string

PREFERRED = 0
UNCLEAN = 1


@define(kw_only=True)
class ElectionTopic:
    topic: str = string()
    partitions: list[int] = array(Kind.INT32)


@define(kw_only=True)
class ElectLeadersRequest:
    election_type: int = int8("1+", default=PREFERRED)
    topic_partitions: list[ElectionTopic] | None = array(ElectionTopic, nullable="0+")
    timeout_ms: int = int32(default=60_000)


@define(kw_only=True)
class ElectionPartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@define(kw_only=True)
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[ElectionPartitionResult] = array(ElectionPartitionResult)


@define(kw_only=True)
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
