"""CreatePartitions, ElectLeaders and the balance of leaders (ReplicationControlManager).

CreatePartitions is refused for a count that is not larger than the present one, and for an invalid
assignment; the other topics of the request grow all the same. The new partitions have as many
replicas as the first one has, or will have after its reassignment.

ElectLeaders is refused where no election is needed (the preferred replica leads; or, for an unclean
election, any replica leads), and where no replica may be elected. For a request about all
partitions, those that need no election are left out of the answer.

    balanced        every `leader.imbalance.check.interval.seconds`: preferred replicas lead again
"""

from collections import Counter

from replication.controller.rules.decisions import Decision, PartitionChanges, RulesOf
from replication.controller.rules.election import Election, Wish
from replication.controller.rules.topics import (
    MAX_NEW_PARTITIONS,
    TOO_MANY_PARTITIONS,
    Chance,
    manual_assignment,
    new_partition,
    place,
)
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage, PartitionRegistration, TopicImage
from replication.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from replication.wire.create_topics import CreatableReplicaAssignment
from replication.wire.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectionPartitionResult,
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import PartitionChangeRecord, PartitionRecord
from storage.types import TopicPartition

_ELECTIONS = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}


# CreatePartitions.


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, *, chance: Chance
) -> Decision[CreatePartitionsResponse]:
    asked = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    if sum(_additional(image, topic) for topic in topics.values()) > MAX_NEW_PARTITIONS:
        # Kafka has this limit for CreateTopics alone; here it answers a record list too long
        # with UNKNOWN_SERVER_ERROR, and makes the partitions that fitted.
        refused = [
            CreatePartitionsTopicResult(
                name=name,
                error_code=ErrorCode.POLICY_VIOLATION,
                error_message=TOO_MANY_PARTITIONS,
            )
            for name in topics
        ]
        return Decision(CreatePartitionsResponse(results=refused))
    records: list[PartitionRecord] = []
    results = []
    for topic in topics.values():
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            records += _new_partitions(image, topic, chance, times=asked[topic.name])
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.detail
        results.append(result)
    made = () if request.validate_only else tuple(records)
    return Decision(CreatePartitionsResponse(results=results), made)


def _additional(image: MetadataImage, asked: CreatePartitionsTopic) -> int:
    """Return how many partitions `asked` adds, whether they can be added or not."""
    topic = image.topics.get(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


def _new_partitions(
    image: MetadataImage, asked: CreatePartitionsTopic, chance: Chance, *, times: int
) -> list[PartitionRecord]:
    if times > 1:
        error = ErrorCode.INVALID_REQUEST
        raise KafkaError(error, f"topic '{asked.name}' is asked for {times} times")
    topic = image.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{asked.name}'")
    there = len(topic.partitions)
    if asked.count <= there:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic '{asked.name}' has {there} partitions already"
        )
    assignment = _assignment(image, asked, topic, chance)
    return [
        new_partition(image, topic.topic_id, number, replicas)
        for number, replicas in enumerate(assignment, start=there)
    ]


def _assignment(
    image: MetadataImage, asked: CreatePartitionsTopic, topic: TopicImage, chance: Chance
) -> list[tuple[int, ...]]:
    first = topic.partitions[0]
    # During a reassignment, Kafka counts the replicas that are removed as well.
    factor = len(set(first.replicas) - set(first.removing))
    additional = asked.count - len(topic.partitions)
    if asked.assignments is None:
        return place(image, partitions=additional, factor=factor, chance=chance)
    if len(asked.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{additional} partitions are added, but {len(asked.assignments)} are assigned",
        )
    by_number = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=each.broker_ids)
        for index, each in enumerate(asked.assignments)
    ]
    return manual_assignment(image, by_number, factor=factor)


# ElectLeaders.


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, *, rules_of: RulesOf
) -> Decision[ElectLeadersResponse]:
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        return Decision(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    changes = PartitionChanges(image, rules_of)
    asked = request.topic_partitions
    if asked is None:
        asked = [
            ElectionTopic(topic=name, partitions=sorted(image.topics[name].partitions))
            for name in sorted(image.topics)
        ]
    results = []
    for each in asked:
        elected = [_elected(changes, each.topic, number, election) for number in each.partitions]
        if request.topic_partitions is None:
            elected = [one for one in elected if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=each.topic, partition_result=elected))
    answer = ElectLeadersResponse(replica_election_results=results)
    return Decision(answer, tuple(changes.records), "asked for an election")


def _elected(
    changes: PartitionChanges, name: str, number: int, election: Election
) -> ElectionPartitionResult:
    error, why = _elect(changes, name, number, election)
    return ElectionPartitionResult(partition_id=number, error_code=error, error_message=why)


def _elect(
    changes: PartitionChanges, name: str, number: int, election: Election
) -> tuple[ErrorCode, str | None]:
    topic = changes.image.topics.get(name)
    partition = None if topic is None else changes.partition(topic, number)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}"
    preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads"
    if changes.make(topic, number, Wish(), election=election) is not None:
        return ErrorCode.NONE, None
    if preferred:
        return (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {partition.replicas[0]} may not lead",
        )
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is alive"


# Leader balance.


def balanced(
    image: MetadataImage, *, rules_of: RulesOf, imbalance_percentage: int
) -> tuple[PartitionChangeRecord, ...]:
    """Return the elections of preferred leaders, for brokers that lead too few of their partitions.

    These are the brokers that do not lead more than `leader.imbalance.per.broker.percentage` of the
    partitions whose first replica they are. That is the documented meaning, and that of the
    controllers of ZooKeeper's time; Kafka's QuorumController elects at any percentage
    (maybeBalancePartitionLeaders).
    """
    changes = PartitionChanges(image, rules_of)
    preferred: dict[int, list[tuple[TopicPartition, PartitionRegistration]]] = {}
    for each, _, registration in image.partitions():
        preferred.setdefault(registration.replicas[0], []).append((each, registration))
    for broker, partitions in sorted(preferred.items()):
        others = [each for each, now in partitions if now.leader not in (broker, NO_LEADER)]
        imbalanced = len(others) * 100 > imbalance_percentage * len(partitions)
        if imbalanced and image.may_join_isr(broker):
            for name, number in others:
                changes.make(image.topics[name], number, Wish(), election=Election.PREFERRED)
    return tuple(changes.records)
