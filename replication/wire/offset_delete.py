"""OffsetDelete (KIP-496): deletes committed offsets of a group."""

from replication.wire.schema import array, define, int16, int32, string


@define(kw_only=True)
class OffsetDeletePartition:
    partition_index: int = int32()


@define(kw_only=True)
class OffsetDeleteTopic:
    name: str = string()
    partitions: list[OffsetDeletePartition] = array(OffsetDeletePartition)


@define(kw_only=True)
class OffsetDeleteRequest:
    group_id: str = string()
    topics: list[OffsetDeleteTopic] = array(OffsetDeleteTopic)


@define(kw_only=True)
class OffsetDeleteResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@define(kw_only=True)
class OffsetDeleteResponseTopic:
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@define(kw_only=True)
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
