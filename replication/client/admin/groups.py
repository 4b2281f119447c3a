"""Consumer groups: their members, and the offsets that they have committed.

The coordinator of each group is asked.

A group is described as by Kafka's admin client: ConsumerGroupDescribe (KIP-848) is asked first, and
DescribeGroups where that finds no consumer group, or is not served.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

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
from replication.client.errors import UnsupportedVersionError
from replication.client.offsets import (
    OffsetAndMetadata,
    committed_offset,
    offset_fetch_request,
    topics_to_commit,
)
from replication.client.requests import ask, nested
from replication.errors import ErrorCode, KafkaError, ProtocolError
from replication.wire.consumer_group_describe import (
    CONSUMER_MEMBER,
    UNKNOWN_MEMBER_TYPE,
    ConsumerGroupDescribeRequest,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from replication.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, partitions_of
from replication.wire.delete_groups import DeleteGroupsRequest
from replication.wire.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from replication.wire.list_groups import CLASSIC, CONSUMER, ListGroupsRequest
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

_DEAD: Final = "Dead"
_WITH_STATES, _WITH_TYPES = 4, 5
_NOT_A_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def list_groups(
    admin: OpenAdmin, *, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListedGroup]:
    """Return the groups of all coordinators; with `states` or `types`, only those of one of them.

    UnsupportedVersionError if a broker is too old to choose groups by them.
    """
    calls = admin.calls
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    oldest = _oldest_version(request)

    async def once() -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for broker_id in await calls.broker_ids():
            response = await calls.broker(broker_id, request, min_version=oldest)
            raise_if_refused(response)
            for each in response.groups:
                found[each.group_id] = ListedGroup(
                    group_id=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.group_state,
                    type=each.group_type,
                )
        return [found[group_id] for group_id in sorted(found)]

    return await calls.keep_asking(once)


def _oldest_version(request: ListGroupsRequest) -> int:
    """Return the first version that can say this; a broker before KIP-848 has classic groups only."""
    if request.types_filter and not {CLASSIC} <= set(request.types_filter) <= {CLASSIC, CONSUMER}:
        return _WITH_TYPES
    return _WITH_STATES if request.states_filter else 0


async def describe_groups(
    admin: OpenAdmin, group_ids: Iterable[str]
) -> dict[str, GroupDescription]:
    """Return the state, the protocol, the members and their assignments of each group, by its id.

    GROUP_ID_NOT_FOUND for a group that does not exist.
    """
    calls = admin.calls

    async def one(group_id: str) -> Outcome:
        node = await calls.coordinator(group_id)
        found = await _consumer_group(calls, node, group_id)
        if found.code not in _NOT_A_CONSUMER_GROUP:
            return found
        return await _classic_group(calls, node, group_id)

    return await _each(calls, group_ids, one)


async def _consumer_group(calls: Calls, node: Node, group_id: str) -> Outcome:
    try:
        response = await calls.network.call(
            node, ask(ConsumerGroupDescribeRequest(group_ids=[group_id]))
        )
    except UnsupportedVersionError as error:
        return Outcome(error.code)
    described = only(response.groups)
    return Outcome.of(described, _consumer_description(described, node))


async def _classic_group(calls: Calls, node: Node, group_id: str) -> Outcome:
    response = await calls.network.call(node, ask(DescribeGroupsRequest(groups=[group_id])))
    described = only(response.groups)
    if described.error_code == ErrorCode.NONE and described.group_state == _DEAD:
        return Outcome(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    return Outcome.of(described, _classic_description(described, node))


async def _each(
    calls: Calls, group_ids: Iterable[str], one: Callable[[str], Awaitable[Outcome]]
) -> dict[str, Any]:
    async def once(left: Sequence[str]) -> Mapping[str, Outcome]:
        return {group_id: await one(group_id) for group_id in left}

    return await calls.for_each(list_of_names(group_ids), once)


def _consumer_description(group: DescribedConsumerGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol=group.assignor_name,
        members=tuple(map(_consumer_member, group.members)),
        coordinator=_broker(coordinator),
        type=CONSUMER,
        group_epoch=group.group_epoch,
        target_assignment_epoch=group.assignment_epoch,
    )


def _consumer_member(member: DescribedConsumer) -> GroupMember:
    is_known = member.member_type != UNKNOWN_MEMBER_TYPE
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        partitions=_partitions(member.assignment),
        target_partitions=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
        upgraded=member.member_type == CONSUMER_MEMBER if is_known else None,
        rack_id=member.rack_id,
    )


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _classic_description(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(_classic_member(each, group.protocol_type) for each in group.members),
        coordinator=_broker(coordinator),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        metadata=member.member_metadata,
        assignment=member.member_assignment,
        partitions=_decoded(member.member_assignment) if protocol_type == PROTOCOL_TYPE else (),
    )


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment; none if it cannot be read."""
    if not assignment:
        return ()
    try:
        return tuple(partitions_of(decode_assignment(assignment).assigned_partitions))
    except ProtocolError:
        return ()


def _broker(coordinator: Node) -> BrokerDescription:
    return BrokerDescription(
        id=coordinator.as_coordinator().id, host=coordinator.host, port=coordinator.port
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
