"""AlterPartition (KIP-497, 704, 841, 903): a leader asks the controller for another ISR.

Version 3 names each member with the broker epoch the leader saw it fetch under, so that
a controller does not readmit an incarnation that is gone.
"""

from replication.wire.schema import Kind, array, define, int8, int16, int32, int64, uuid

RECOVERED = 0
RECOVERING = 1


@define(kw_only=True)
class BrokerIdAndEpoch:
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


@define(kw_only=True)
class AlterPartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(Kind.INT32, "0-2")
    new_isr_with_epochs: list[BrokerIdAndEpoch] = array(BrokerIdAndEpoch, "3+")
    leader_recovery_state: int = int8("1+", default=RECOVERED)
    partition_epoch: int = int32()


@define(kw_only=True)
class AlterPartitionTopic:
    topic_id: bytes = uuid("2+")
    partitions: list[AlterPartitionData] = array(AlterPartitionData)


@define(kw_only=True)
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic)


@define(kw_only=True)
class PartitionAnswer:
    """PartitionData of Kafka's AlterPartitionResponse; AlterPartitionData is the request's."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(Kind.INT32)
    leader_recovery_state: int = int8("1+", default=RECOVERED)
    partition_epoch: int = int32()


@define(kw_only=True)
class TopicAnswer:
    """TopicData of Kafka's AlterPartitionResponse."""

    topic_id: bytes = uuid("2+")
    partitions: list[PartitionAnswer] = array(PartitionAnswer)


@define(kw_only=True)
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicAnswer] = array(TopicAnswer)
