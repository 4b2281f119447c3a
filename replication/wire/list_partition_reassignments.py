"""ListPartitionReassignments (KIP-455): returns the reassignments under way.

With `topics` null all of them are returned.
"""

from replication.wire.schema import Kind, array, define, int16, int32, string


@define(kw_only=True)
class ListPartitionReassignmentsTopics:
    name: str = string()
    partition_indexes: list[int] = array(Kind.INT32)


@define(kw_only=True)
class ListPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+"
    )


@define(kw_only=True)
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = array(Kind.INT32)
    adding_replicas: list[int] = array(Kind.INT32)
    removing_replicas: list[int] = array(Kind.INT32)


@define(kw_only=True)
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@define(kw_only=True)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
