"""AlterPartition: a leader asks for another ISR (KIP-497, KIP-841, KIP-903).

A leader may be deposed without knowing it, or start from an old ISR. So a request names the leader
epoch and the partition epoch that it starts from, and these are checked before the ISR
(ReplicationControlManager.validateAlterPartitionData):

    a newer epoch than here        NOT_CONTROLLER          another controller decided
    older leader epoch             FENCED_LEADER_EPOCH
    not the leader                 INVALID_REQUEST
    older partition epoch          INVALID_UPDATE_VERSION
    no ISR of this partition       INVALID_REQUEST
    a member that may not join     INELIGIBLE_REPLICA
    it completes a reassignment    NEW_LEADER_ELECTED      done, and the leader is removed

INELIGIBLE_REPLICA refuses a broker that is fenced, that is shutting down, or that has restarted
since the leader saw it fetch: it may lack records that it had.
"""

from replication.controller.rules.decisions import (
    Decision,
    PartitionChanges,
    RulesOf,
    is_current_incarnation,
)
from replication.controller.rules.election import Wish
from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionAnswer,
    TopicAnswer,
)

_ANY_EPOCH = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, *, rules_of: RulesOf
) -> Decision[AlterPartitionResponse]:
    if not is_current_incarnation(image, request.broker_id, request.broker_epoch):
        return Decision(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    changes = PartitionChanges(image, rules_of)
    topics = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        answers = []
        for data in asked.partitions:
            if topic is None:
                answers.append(_refused(data, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            number = data.partition_index
            partition = changes.partition(topic, number)
            error = _judge(image, partition, request.broker_id, data)
            if error is not ErrorCode.NONE:
                answers.append(_refused(data, error))
                continue
            assert partition is not None, "one that is not there was refused"
            changes.make(topic, number, _wish(partition, data))
            partition = changes.partition(topic, number)
            assert partition is not None, "a change leaves it there"
            answers.append(_answer(data, partition, request.broker_id))
        topics.append(TopicAnswer(topic_id=asked.topic_id, partitions=answers))
    return Decision(AlterPartitionResponse(topics=topics), tuple(changes.records))


def proposed_isr(data: AlterPartitionData) -> dict[int, int]:
    """Return the broker epoch of each member as its leader saw it, -1 before version 3."""
    if data.new_isr_with_epochs:
        return {each.broker_id: each.broker_epoch for each in data.new_isr_with_epochs}
    return dict.fromkeys(data.new_isr, _ANY_EPOCH)


def _judge(
    image: MetadataImage,
    partition: PartitionRegistration | None,
    sender: int,
    data: AlterPartitionData,
) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_isr_of(partition, data):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_join(image, *member) for member in proposed_isr(data).items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_isr_of(partition: PartitionRegistration, data: AlterPartitionData) -> bool:
    isr = proposed_isr(data)
    if len(isr) < len(data.new_isr_with_epochs or data.new_isr):
        return False  # a broker is named twice
    if partition.leader not in isr or not isr.keys() <= set(partition.replicas):
        return False
    if data.leader_recovery_state not in tuple(LeaderRecoveryState):
        return False
    if data.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        # Other replicas may join once the leader has recovered, and it recovers only once.
        recovering = partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
        return len(isr) == 1 and recovering
    return True


def _may_join(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    if not image.may_join_isr(broker_id):
        return False
    return broker_epoch in (_ANY_EPOCH, image.brokers[broker_id].broker_epoch)


def _wish(partition: PartitionRegistration, data: AlterPartitionData) -> Wish:
    """Return a wish for the proposed ISR, in assignment order; unchanged where it has the same members."""
    asked = proposed_isr(data)
    same = asked.keys() == set(partition.isr)
    return Wish(
        isr=None if same else tuple(each for each in partition.replicas if each in asked),
        leader_recovery_state=LeaderRecoveryState(data.leader_recovery_state),
    )


def _refused(data: AlterPartitionData, error: ErrorCode) -> PartitionAnswer:
    return PartitionAnswer(partition_index=data.partition_index, error_code=error)


def _answer(
    data: AlterPartitionData, partition: PartitionRegistration, sender: int
) -> PartitionAnswer:
    if partition.leader != sender:
        # The ISR completed a reassignment that removed the sender.
        return _refused(data, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionAnswer(
        partition_index=data.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
