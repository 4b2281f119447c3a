"""The requests that reassign partitions to other brokers (KIP-455; `reassignment.py` has the steps).

    AlterPartitionReassignments   begins, changes or, with null, cancels a reassignment; it is
                                  complete at once where all wanted replicas are in sync already
    AlterPartition                the new replicas join the ISR; the last one completes it
    ListPartitionReassignments    lists the reassignments in progress

A partition with only new replicas in its ISR and ELR cannot go back without an unclean election;
only a topic that allows those may cancel then. Kafka puts the first former replica into the ISR,
alive or not, and does not mark it as recovering; here it is elected uncleanly, like any other.
"""

import attrs

from replication.controller.rules.decisions import Decision, PartitionChanges, RulesOf
from replication.controller.rules.election import Wish
from replication.controller.rules.reassignment import begun, cancelled, is_reassigned
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage, PartitionRegistration, TopicImage
from replication.metadata.rules.records import LeaderRecoveryState
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, *, rules_of: RulesOf
) -> Decision[AlterPartitionReassignmentsResponse]:
    changes = PartitionChanges(image, rules_of)
    same_factor = not request.allow_replication_factor_change
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = ReassignablePartitionResponse(
                partition_index=asked.partition_index, error_message=None
            )
            try:
                _reassign(changes, topic.name, asked, same_factor=same_factor)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.detail
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return Decision(response, tuple(changes.records), "reassigned")


def _reassign(
    changes: PartitionChanges, name: str, asked: ReassignablePartition, *, same_factor: bool
) -> None:
    number = asked.partition_index
    topic = changes.image.topics.get(name)
    partition = None if topic is None else changes.partition(topic, number)
    if topic is None or partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(error, f"there is no partition {name}-{number}")
    if asked.replicas is None:
        wish = _back(changes, topic, partition)
    else:
        _check(changes.image, partition, asked.replicas, same_factor=same_factor)
        wish = _towards(begun(partition, asked.replicas))
    changes.make(topic, number, wish)


def _towards(wanted: PartitionRegistration) -> Wish:
    return Wish(replicas=wanted.replicas, adding=wanted.adding, removing=wanted.removing)


def _check(
    image: MetadataImage,
    partition: PartitionRegistration,
    replicas: list[int],
    *,
    same_factor: bool,
) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    if not replicas:
        raise refuse("no replica is named")
    if len(set(replicas)) < len(replicas):
        raise refuse(f"a replica is named twice: {replicas}")
    for replica in replicas:
        if image.broker(replica) is None:
            raise refuse(f"broker {replica} is not registered")
    factor = len(partition.replicas) - len(partition.removing)
    if same_factor and len(replicas) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{len(replicas)} replicas instead of {factor}, which is not to change",
        )


def _back(changes: PartitionChanges, topic: TopicImage, partition: PartitionRegistration) -> Wish:
    if not is_reassigned(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing is being reassigned")
    before, rules = cancelled(partition), changes.rules(topic)
    back = Wish(replicas=before.replicas, adding=(), removing=(), isr=before.isr)
    if before.isr or (rules.eligible and before.elr):
        return back
    # Where no replica is in sync or eligible, nothing can be lost.
    if (partition.isr or partition.elr) and not rules.unclean:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only new replicas are in sync: it would take an unclean election to cancel",
        )
    if rules.eligible:
        return back
    # Without KIP-966 the ISR is never empty.
    up = filter(changes.image.may_join_isr, before.replicas)
    first = next(up, before.replicas[0])
    return attrs.evolve(back, isr=(first,), leader_recovery_state=LeaderRecoveryState.RECOVERING)


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Decision[ListPartitionReassignmentsResponse]:
    """List the reassignments of the named partitions, or of all."""
    if request.topics is None:
        asked = [(name, sorted(topic.partitions)) for name, topic in sorted(image.topics.items())]
    else:
        asked = [(each.name, each.partition_indexes) for each in request.topics]
    topics = []
    for name, numbers in asked:
        topic = image.topics.get(name)
        partitions = {} if topic is None else topic.partitions
        moving = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            for number in numbers
            if (partition := partitions.get(number)) is not None and is_reassigned(partition)
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=topics))
