"""OffsetCommit (KIP-98, 211, 320, 345, 848): commits the offsets of a group.

From version 10 on topics have ids instead of names (KIP-848).

A generation below 0 without a member id commits for a group without members, whose consumers
assign partitions by hand.
"""

from replication.wire.schema import array, define, int16, int32, int64, string, uuid


@define(kw_only=True)
class OffsetCommitPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="2+")


@define(kw_only=True)
class OffsetCommitTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitPartition] = array(OffsetCommitPartition)


@define(kw_only=True)
class OffsetCommitRequest:
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitTopic] = array(OffsetCommitTopic)


@define(kw_only=True)
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@define(kw_only=True)
class OffsetCommitResponseTopic:
    name: str = string("0-9")
    topic_id: bytes = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@define(kw_only=True)
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
