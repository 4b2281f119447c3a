"""Consumer groups: who is in them, and how far they have read. Coordinators are asked."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from replication.client.admin.calls import Calls, Outcome, by_topic, only, some_failed
from replication.client.admin.values import (
    BrokerDescription,
    GroupDescription,
    GroupMember,
    ListedGroup,
)
from replication.client.errors import raise_for
from replication.client.nodes import Node
from replication.client.offsets import OffsetAndMetadata
from replication.client.requests import ask
from replication.errors import ErrorCode, KafkaError
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.describe_groups import DescribedGroup, DescribeGroupsRequest
from replication.wire.list_groups import ListGroupsRequest
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from replication.wire.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)
from replication.wire.offset_fetch import (
    NO_OFFSET,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)
from storage.types import TopicPartition

_DEAD = "Dead"


async def list_groups(calls: Calls, *, states: Sequence[str]) -> list[ListedGroup]:
    """Of all brokers."""

    async def once() -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for broker_id in await calls.broker_ids():
            response = await calls.broker(broker_id, ListGroupsRequest(states_filter=list(states)))
            raise_for(response.error_code)
            for each in response.groups:
                found[each.group_id] = ListedGroup(
                    group_id=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.group_state,
                )
        return [found[group_id] for group_id in sorted(found)]

    return await calls.keep_asking(once)


async def describe_groups(calls: Calls, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
    async def one(group_id: str) -> Outcome:
        node = await calls.coordinator(group_id)
        response = await calls.network.call(node, ask(DescribeGroupsRequest(groups=[group_id])))
        described = only(response.groups)
        if described.error_code == ErrorCode.NONE and described.group_state == _DEAD:
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return Outcome(described.error_code, None, _described(described, node))

    return await _each(calls, group_ids, one)


async def _each(
    calls: Calls, group_ids: Sequence[str], one: Callable[[str], Awaitable[Outcome]]
) -> dict[str, Any]:
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        return {group_id: await one(group_id) for group_id in left}

    return await calls.for_each(group_ids, once)


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                metadata=each.member_metadata,
                assignment=each.member_assignment,
            )
            for each in group.members
        ),
        coordinator=BrokerDescription(
            id=coordinator.as_coordinator().id, host=coordinator.host, port=coordinator.port
        ),
    )


async def delete_groups(calls: Calls, group_ids: Sequence[str]) -> None:
    async def one(group_id: str) -> Outcome:
        node = await calls.coordinator(group_id)
        response = await calls.network.call(node, ask(DeleteGroupsRequest(groups_names=[group_id])))
        return Outcome(only(response.results).error_code)

    await _each(calls, group_ids, one)


async def list_group_offsets(
    calls: Calls,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    *,
    require_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    async def once() -> dict[TopicPartition, OffsetAndMetadata]:
        node = await calls.coordinator(group_id)
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=topics,
            groups=[OffsetFetchGroup(group_id=group_id, topics=topics)],
            require_stable=require_stable,
        )
        return _committed(await calls.network.call(node, ask(request, min_version=2)))

    return await calls.keep_asking(once)


def _committed(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Of one group, in whichever form; partitions without an offset are left out."""
    group = response.groups[0] if response.groups else response
    raise_for(group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.NONE:
                failed[partition] = KafkaError(ErrorCode.of(each.error_code))
            elif each.committed_offset != NO_OFFSET:
                found[partition] = OffsetAndMetadata(
                    offset=each.committed_offset,
                    metadata=each.metadata or "",
                    leader_epoch=each.committed_leader_epoch,
                )
    some_failed(failed)
    return found


async def alter_group_offsets(
    calls: Calls, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        node = await calls.coordinator(group_id)
        topics = [
            OffsetCommitTopic(
                name=topic,
                partitions=[
                    _commit(number, offsets[TopicPartition(topic, number)]) for number in numbers
                ],
            )
            for topic, numbers in by_topic(left).items()
        ]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        return _of_partitions(await calls.network.call(node, ask(request)))

    await calls.for_each(list(offsets), once)


def _commit(partition: int, offset: OffsetAndMetadata) -> OffsetCommitPartition:
    return OffsetCommitPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


async def delete_group_offsets(
    calls: Calls, group_id: str, partitions: Sequence[TopicPartition]
) -> None:
    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        node = await calls.coordinator(group_id)
        topics = [
            OffsetDeleteTopic(
                name=topic,
                partitions=[OffsetDeletePartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(left).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = await calls.network.call(node, ask(request))
        raise_for(response.error_code)
        return _of_partitions(response)

    await calls.for_each(partitions, once)


def _of_partitions(
    response: OffsetCommitResponse | OffsetDeleteResponse,
) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.name, each.partition_index): Outcome(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
