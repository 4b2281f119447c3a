"""Consumer groups: their members, and the offsets that they have committed.

The coordinator of each group is asked.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from replication.client.admin.calls import (
    Calls,
    OpenAdmin,
    Outcome,
    only,
    outcomes,
    raise_if_refused,
    some_failed,
)
from replication.client.admin.values import (
    BrokerDescription,
    GroupDescription,
    GroupMember,
    ListedGroup,
)
from replication.client.arguments import list_of_names
from replication.client.cluster_view import Node
from replication.client.offsets import (
    OffsetAndMetadata,
    committed_offset,
    offset_fetch_request,
    topics_to_commit,
)
from replication.client.requests import ask, nested
from replication.errors import ErrorCode, KafkaError
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.describe_groups import DescribedGroup, DescribeGroupsRequest
from replication.wire.list_groups import ListGroupsRequest
from replication.wire.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from replication.wire.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from replication.wire.offset_fetch import OffsetFetchResponse
from storage.types import TopicPartition

_DEAD = "Dead"


async def list_groups(admin: OpenAdmin, *, states: Iterable[str] = ()) -> list[ListedGroup]:
    """Return the groups of all coordinators; with `states`, only those in one of them."""
    calls, wanted = admin.calls, list(states)

    async def once() -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for broker_id in await calls.broker_ids():
            response = await calls.broker(broker_id, ListGroupsRequest(states_filter=wanted))
            raise_if_refused(response)
            for each in response.groups:
                found[each.group_id] = ListedGroup(
                    group_id=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.group_state,
                )
        return [found[group_id] for group_id in sorted(found)]

    return await calls.keep_asking(once)


async def describe_groups(
    admin: OpenAdmin, group_ids: Iterable[str]
) -> dict[str, GroupDescription]:
    """Return the state, the protocol, the members and their assignments of each group, by its id.

    GROUP_ID_NOT_FOUND for a group that does not exist.
    """
    calls = admin.calls

    async def one(group_id: str) -> Outcome:
        node = await calls.coordinator(group_id)
        response = await calls.network.call(node, ask(DescribeGroupsRequest(groups=[group_id])))
        described = only(response.groups)
        if described.error_code == ErrorCode.NONE and described.group_state == _DEAD:
            return Outcome(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return Outcome(described.error_code, None, _described(described, node))

    return await _each(calls, group_ids, one)


async def _each(
    calls: Calls, group_ids: Iterable[str], one: Callable[[str], Awaitable[Outcome]]
) -> dict[str, Any]:
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        return {group_id: await one(group_id) for group_id in left}

    return await calls.for_each(list_of_names(group_ids), once)


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


async def delete_groups(admin: OpenAdmin, group_ids: Iterable[str]) -> None:
    """Delete groups and their offsets; NON_EMPTY_GROUP if a group has members."""
    calls = admin.calls

    async def one(group_id: str) -> Outcome:
        request = DeleteGroupsRequest(groups_names=[group_id])
        return Outcome.of(only((await calls.ask_coordinator(group_id, request)).results))

    await _each(calls, group_ids, one)


async def list_group_offsets(
    admin: OpenAdmin,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that a group has committed; partitions without one are left out."""
    calls = admin.calls
    request = offset_fetch_request(group_id, partitions, require_stable=require_stable)

    async def once() -> dict[TopicPartition, OffsetAndMetadata]:
        return _committed(await calls.ask_coordinator(group_id, request, min_version=2))

    return await calls.keep_asking(once)


def _committed(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of the only group in a response; newer versions list several groups."""
    group = response.groups[0] if response.groups else response
    raise_if_refused(group)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code != ErrorCode.NONE:
                failed[partition] = KafkaError(ErrorCode.of(each.error_code))
            elif (committed := committed_offset(each)) is not None:
                found[partition] = committed
    some_failed(failed)
    return found


async def alter_group_offsets(
    admin: OpenAdmin, group_id: str, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit offsets for a group without members; UNKNOWN_MEMBER_ID if it has any."""
    calls = admin.calls

    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        wanted = {each: committed[each] for each in left}
        topics = topics_to_commit(wanted, OffsetCommitTopic, OffsetCommitPartition)
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        return outcomes((await calls.ask_coordinator(group_id, request)).topics)

    await calls.for_each(list(committed), once)


async def delete_group_offsets(
    admin: OpenAdmin, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    """Delete a group's offsets of partitions that no member reads.

    GROUP_SUBSCRIBED_TO_TOPIC for the others.
    """
    calls = admin.calls

    async def once(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, Outcome]:
        topics = nested(
            left,
            OffsetDeleteTopic,
            lambda tp: OffsetDeletePartition(partition_index=tp.partition),
        )
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = await calls.ask_coordinator(group_id, request)
        raise_if_refused(response)
        return outcomes(response.topics)

    await calls.for_each(list(partitions), once)
