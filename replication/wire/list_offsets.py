"""ListOffsets: returns the offsets of timestamps (KIP-79, 207, 320, 734, 405, 1023, 1075).

Version 0 asked for up to `max_num_offsets` segment bounds and got them in
`old_style_offsets`; from 1 on there is one offset for one timestamp.
"""

from replication.wire.fetch import CONSUMER_REPLICA_ID
from replication.wire.schema import Kind, array, define, int8, int16, int32, int64, string

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


@define(kw_only=True)
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


@define(kw_only=True)
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@define(kw_only=True)
class ListOffsetsRequest:
    replica_id: int = int32(default=CONSUMER_REPLICA_ID)
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")
    """How long the broker may wait for tiered storage (KIP-1075)."""


@define(kw_only=True)
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(Kind.INT64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@define(kw_only=True)
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@define(kw_only=True)
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
