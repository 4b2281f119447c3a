"""OffsetForLeaderEpoch: returns the end offsets of leader epochs (KIP-101, 279, 320).

Followers truncate by it when their Fetch is older than version 12; consumers check by it
that the log they read from is still the one they remember.
"""

from replication.wire.fetch import DEBUGGING_REPLICA_ID
from replication.wire.schema import array, define, int16, int32, int64, string


@define(kw_only=True)
class OffsetForLeaderPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


@define(kw_only=True)
class OffsetForLeaderTopic:
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@define(kw_only=True)
class OffsetForLeaderEpochRequest:
    # Version 2 does not name the asker; Kafka then reads it as a debugging consumer.
    replica_id: int = int32("3+", default=DEBUGGING_REPLICA_ID)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@define(kw_only=True)
class EpochEndOffset:
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


@define(kw_only=True)
class OffsetForLeaderTopicResult:
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@define(kw_only=True)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
