"""TxnOffsetCommit (KIP-98, 447): commits the offsets of a group with a transaction.

From version 6 on topics have ids instead of names (KIP-1319).
"""

from replication.wire.schema import array, define, int16, int32, int64, string, uuid


@define(kw_only=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@define(kw_only=True)
class TxnOffsetCommitRequestTopic:
    name: str = string("0-5")
    topic_id: bytes = uuid("6+")
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@define(kw_only=True)
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@define(kw_only=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@define(kw_only=True)
class TxnOffsetCommitResponseTopic:
    name: str = string("0-5")
    topic_id: bytes = uuid("6+")
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@define(kw_only=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
