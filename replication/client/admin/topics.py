"""Topics: made, deleted, grown, described; partitions: elected, moved, cut at the front."""

from collections.abc import Mapping, Sequence

from replication.client.admin.calls import Calls, Outcome, by_topic
from replication.client.admin.pages import described_by_pages
from replication.client.admin.values import (
    NewTopic,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from replication.client.errors import UnsupportedVersionError, raise_for
from replication.errors import ErrorCode
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest, TopicPartitions
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from storage.types import TopicId, TopicPartition


async def create_topics(
    calls: Calls, topics: Sequence[NewTopic], *, validate_only: bool
) -> dict[str, TopicId]:
    wanted = {topic.name: topic for topic in topics}

    async def once(names: Sequence[str]) -> Mapping[str, Outcome]:
        request = CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=calls.config.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await calls.any_broker(request)
        return {
            each.name: Outcome(each.error_code, each.error_message, each.topic_id)
            for each in response.topics
        }

    return await calls.for_each(list(wanted), once)


def _creatable(topic: NewTopic) -> CreatableTopic:
    by_hand = bool(topic.replicas)
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if by_hand else topic.partitions,
        replication_factor=-1 if by_hand else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(topic.replicas)
        ],
        configs=[CreatableTopicConfig(name=key, value=topic.configs[key]) for key in topic.configs],
    )


async def delete_topics(calls: Calls, names: Sequence[str]) -> None:
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in left],
            topic_names=list(left),
            timeout_ms=calls.config.request_timeout_ms,
        )
        response = await calls.any_broker(request)
        return {
            each.name: Outcome(each.error_code, each.error_message) for each in response.responses
        }

    await calls.for_each(names, once)


async def create_partitions(
    calls: Calls,
    counts: Mapping[str, int],
    *,
    replicas: Mapping[str, Sequence[Sequence[int]]],
    validate_only: bool,
) -> None:
    def wanted(name: str) -> CreatePartitionsTopic:
        assigned = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas[name]]
        return CreatePartitionsTopic(name=name, count=counts[name], assignments=assigned)

    def by_the_brokers(name: str) -> CreatePartitionsTopic:
        return CreatePartitionsTopic(name=name, count=counts[name], assignments=None)

    async def once(names: Sequence[str]) -> Mapping[str, Outcome]:
        request = CreatePartitionsRequest(
            topics=[(wanted if name in replicas else by_the_brokers)(name) for name in names],
            timeout_ms=calls.config.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await calls.any_broker(request)
        return {
            each.name: Outcome(each.error_code, each.error_message) for each in response.results
        }

    await calls.for_each(list(counts), once)


async def list_topics(calls: Calls) -> list[str]:
    async def once() -> list[str]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = await calls.any_broker(request)
        return sorted(each.name for each in response.topics if each.name is not None)

    return await calls.keep_asking(once)


async def describe_topics(calls: Calls, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Brokers that serve no DescribeTopicPartitions do not tell who is eligible (KIP-966)."""

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        try:
            return await described_by_pages(calls, left)
        except UnsupportedVersionError:
            return await _described_by_metadata(calls, left)

    return await calls.for_each(names, once)


async def _described_by_metadata(calls: Calls, names: Sequence[str]) -> Mapping[str, Outcome]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    response = await calls.any_broker(request)
    return {each.name: Outcome(each.error_code, None, _described(each)) for each in response.topics}


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline_replicas=tuple(each.offline_replicas),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
    )


async def elect_leaders(
    calls: Calls, partitions: Sequence[TopicPartition], *, unclean: bool
) -> None:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=[
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(left).items()
            ],
            timeout_ms=calls.config.request_timeout_ms,
        )
        response = await calls.any_broker(request)
        raise_for(response.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): _elected(
                each.error_code, each.error_message
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    await calls.for_each(partitions, once)


def _elected(code: int, message: str | None) -> Outcome:
    """Who leads already need not be elected."""
    return Outcome(0) if code == ErrorCode.ELECTION_NOT_NEEDED else Outcome(code, message)


async def alter_reassignments(
    calls: Calls, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=calls.config.request_timeout_ms,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=number,
                            replicas=_or_none(replicas[TopicPartition(topic, number)]),
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(left).items()
            ],
        )
        response = await calls.any_broker(request)
        raise_for(response.error_code, response.error_message or "")
        return {
            TopicPartition(topic.name, each.partition_index): Outcome(
                each.error_code, each.error_message
            )
            for topic in response.responses
            for each in topic.partitions
        }

    await calls.for_each(list(replicas), once)


def _or_none(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


async def list_reassignments(
    calls: Calls, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    async def once() -> dict[TopicPartition, Reassignment]:
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=calls.config.request_timeout_ms, topics=topics
        )
        response = await calls.any_broker(request)
        raise_for(response.error_code, response.error_message or "")
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                replicas=tuple(each.replicas),
                adding=tuple(each.adding_replicas),
                removing=tuple(each.removing_replicas),
            )
            for topic in response.topics
            for each in topic.partitions
        }

    return await calls.keep_asking(once)
