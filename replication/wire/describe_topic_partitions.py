"""DescribeTopicPartitions (KIP-966): returns the leaders and replicas of partitions, in pages.

Without topics all are returned. A page begins at `cursor`, and the next one at `next_cursor`; both
are null if there is none.
"""

from replication.wire.metadata import UNKNOWN_OPERATIONS
from replication.wire.schema import (
    Kind,
    array,
    boolean,
    define,
    int16,
    int32,
    string,
    struct,
    uuid,
)


@define(kw_only=True)
class TopicRequest:
    name: str = string()


@define(kw_only=True)
class Cursor:
    topic_name: str = string()
    partition_index: int = int32()


@define(kw_only=True)
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


@define(kw_only=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    eligible_leader_replicas: list[int] | None = array(
        Kind.INT32, nullable="0+", null_by_default=True
    )
    last_known_elr: list[int] | None = array(Kind.INT32, nullable="0+", null_by_default=True)
    offline_replicas: list[int] = array(Kind.INT32)


@define(kw_only=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@define(kw_only=True)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
