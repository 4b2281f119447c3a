"""OffsetFetch (KIP-320, 447, 709, 848): returns the committed offsets of groups.

Up to version 7 one group is asked for and answered at the top level; from 8 on a list.
No topics (null) means all of them. From version 10 on they have ids instead of names (KIP-848).
"""

from replication.wire.schema import Kind, array, boolean, define, int16, int32, int64, string, uuid


@define(kw_only=True)
class OffsetFetchTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partition_indexes: list[int] = array(Kind.INT32)


@define(kw_only=True)
class OffsetFetchGroup:
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchTopic] | None = array(OffsetFetchTopic, "8+", nullable="8+")


@define(kw_only=True)
class OffsetFetchRequest:
    group_id: str = string("0-7")
    topics: list[OffsetFetchTopic] | None = array(OffsetFetchTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchGroup] = array(OffsetFetchGroup, "8+")
    require_stable: bool = boolean("7+")


@define(kw_only=True)
class OffsetFetchResponsePartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@define(kw_only=True)
class OffsetFetchResponseTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@define(kw_only=True)
class OffsetFetchResponseGroup:
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "8+")
    error_code: int = int16("8+")


@define(kw_only=True)
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
