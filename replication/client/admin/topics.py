"""Topics are created, deleted, extended and described; partitions get leaders and move.

DescribeTopicPartitions (KIP-966) answers a page at a time. A page ends with a cursor, where the
next page begins; a cursor that does not advance is refused, since it would be followed for ever.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from replication.client.admin.calls import Calls, OpenAdmin, Outcome, outcomes, outcomes_by
from replication.client.admin.values import (
    NewTopic,
    PartitionDescription,
    Reassignment,
    TopicDescription,
)
from replication.client.arguments import list_of_names
from replication.client.errors import UnsupportedVersionError
from replication.client.requests import nested
from replication.errors import ErrorCode, ProtocolError
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
from replication.wire.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from replication.wire.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from replication.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from replication.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from storage.types import TopicId, TopicPartition


async def create_topics(
    admin: OpenAdmin, new_topics: Iterable[NewTopic], *, validate_only: bool = False
) -> dict[str, TopicId]:
    """Create topics; return their ids by name."""
    calls, wanted = admin.calls, {topic.name: topic for topic in new_topics}
    return await calls.ask_about(
        list(wanted),
        lambda names: CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=calls.config.request_timeout_ms,
            validate_only=validate_only,
        ),
        lambda response: outcomes_by("name", response.topics, lambda each: each.topic_id),
    )


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


async def delete_topics(admin: OpenAdmin, names: Iterable[str]) -> None:
    """Delete topics with all of their records; brokers learn of it shortly after."""
    calls = admin.calls
    await calls.ask_about(
        list_of_names(names),
        lambda left: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in left],
            topic_names=list(left),
            timeout_ms=calls.config.request_timeout_ms,
        ),
        lambda response: outcomes_by("name", response.responses),
    )


async def create_partitions(
    admin: OpenAdmin,
    counts: Mapping[str, int],
    *,
    replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
) -> None:
    """Raise the number of partitions of each topic to its count.

    `replicas` names the brokers of the new partitions, by topic; for other topics the cluster
    chooses them.
    """
    calls, chosen = admin.calls, replicas or {}

    def wanted(name: str) -> CreatePartitionsTopic:
        assignments = None
        if name in chosen:
            assignments = [CreatePartitionsAssignment(broker_ids=list(e)) for e in chosen[name]]
        return CreatePartitionsTopic(name=name, count=counts[name], assignments=assignments)

    await calls.ask_about(
        list(counts),
        lambda names: CreatePartitionsRequest(
            topics=[wanted(name) for name in names],
            timeout_ms=calls.config.request_timeout_ms,
            validate_only=validate_only,
        ),
        lambda response: outcomes_by("name", response.results),
    )


async def list_topics(admin: OpenAdmin) -> list[str]:
    """Return the names of all topics, internal ones included."""
    response = await admin.calls.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return sorted(each.name for each in response.topics if each.name is not None)


async def describe_topics(admin: OpenAdmin, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Return the id, partitions, leaders, replicas and ISR of each topic, by its name.

    Brokers without DescribeTopicPartitions do not name the eligible leaders (KIP-966).
    """
    calls = admin.calls

    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        try:
            return await _describe_by_pages(calls, left)
        except UnsupportedVersionError:
            return await _describe_by_metadata(calls, left)

    return await calls.for_each(list_of_names(names), once)


async def _describe_by_metadata(calls: Calls, names: Sequence[str]) -> Mapping[str, Outcome]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    return outcomes_by("name", (await calls.any_broker(request)).topics, _description)


async def _describe_by_pages(calls: Calls, names: Sequence[str]) -> Mapping[str, Outcome]:
    found: dict[str, Outcome] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names)], cursor=cursor
        )
        response = await calls.any_broker(request)
        for each in response.topics:
            _add_page(found, each)
        if response.next_cursor is None:
            return found
        if cursor is not None and _place(response.next_cursor) <= _place(cursor):
            raise ProtocolError("a page of topics ends before it begins")
        cursor = response.next_cursor


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _add_page(found: dict[str, Outcome], topic: Any) -> None:
    """Add the partitions of `topic` to those that an earlier page listed."""
    described = _description(topic)
    before = found.get(described.name)
    if before is not None and before.code == ErrorCode.NONE:
        partitions = (*before.value.partitions, *described.partitions)
        described = attrs.evolve(before.value, partitions=partitions)
    found[described.name] = Outcome(topic.error_code, None, described)


def _description(topic: Any) -> TopicDescription:
    """Return the topic that a response of either API describes."""
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(each) for each in partitions),
    )


def _partition(
    given: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition,
) -> PartitionDescription:
    described = PartitionDescription(
        partition=given.partition_index,
        leader=given.leader_id,
        leader_epoch=given.leader_epoch,
        replicas=tuple(given.replica_nodes),
        isr=tuple(given.isr_nodes),
        offline_replicas=tuple(given.offline_replicas),
    )
    if isinstance(given, MetadataResponsePartition):
        return described
    return attrs.evolve(
        described,
        eligible_leaders=_tuple_or_none(given.eligible_leader_replicas),
        last_known_eligible=_tuple_or_none(given.last_known_elr),
    )


def _tuple_or_none(brokers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if brokers is None else tuple(brokers)


async def elect_leaders(
    admin: OpenAdmin, partitions: Iterable[TopicPartition], *, unclean: bool = False
) -> None:
    """Make the preferred replica the leader of each partition.

    With `unclean`, a partition without a leader gets any replica that is alive, and loses the
    records that this replica does not have.
    """
    calls = admin.calls

    def read(response: ElectLeadersResponse) -> Mapping[TopicPartition, Outcome]:
        return {
            TopicPartition(topic.topic, each.partition_id): Outcome(0)
            if each.error_code == ErrorCode.ELECTION_NOT_NEEDED  # it leads already
            else Outcome.of(each)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    await calls.ask_about(
        list(partitions),
        lambda left: ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=nested(left, ElectionTopic),
            timeout_ms=calls.config.request_timeout_ms,
        ),
        read,
    )


async def alter_partition_reassignments(
    admin: OpenAdmin, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    """Move each partition to the given brokers; None cancels the move that is under way."""
    calls = admin.calls

    def wanted(tp: TopicPartition) -> ReassignablePartition:
        brokers = replicas[tp]
        return ReassignablePartition(
            partition_index=tp.partition, replicas=None if brokers is None else list(brokers)
        )

    await calls.ask_about(
        list(replicas),
        lambda left: AlterPartitionReassignmentsRequest(
            timeout_ms=calls.config.request_timeout_ms,
            topics=nested(left, ReassignableTopic, wanted),
        ),
        lambda response: outcomes(response.responses),
    )


async def list_partition_reassignments(
    admin: OpenAdmin, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the moves that are under way, of `partitions` or of all partitions."""
    calls, topics = admin.calls, None
    if partitions is not None:
        topics = nested(partitions, ListPartitionReassignmentsTopics)
    request = ListPartitionReassignmentsRequest(
        timeout_ms=calls.config.request_timeout_ms, topics=topics
    )
    return {
        TopicPartition(topic.name, each.partition_index): Reassignment(
            replicas=tuple(each.replicas),
            adding=tuple(each.adding_replicas),
            removing=tuple(each.removing_replicas),
        )
        for topic in (await calls.ask(request)).topics
        for each in topic.partitions
    }
