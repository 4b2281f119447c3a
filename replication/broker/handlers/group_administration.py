"""DescribeGroups, ListGroups, DeleteGroups: groups as an administrator sees them."""

from collections.abc import Callable, Iterable
from functools import partial

import trio

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.groups.administration import delete_group, listed, type_of
from replication.groups.rules.group import GroupState, Member
from replication.groups.shard import HostedGroup
from replication.net.pace import in_steps
from replication.security.rules.acls import SUPPORTED, ResourceType, as_bits
from replication.server.server import RequestContext
from replication.steps import STEP, Steps, each_of
from replication.wire.consumer_protocol import PROTOCOL_TYPE
from replication.wire.delete_groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from replication.wire.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from replication.wire.list_groups import ListedGroupData, ListGroupsRequest, ListGroupsResponse
from replication.wire.metadata import UNKNOWN_OPERATIONS

NOT_FOUND_SINCE = 6  # of DescribeGroups (KIP-1043); before, such a group was dead
GROUP_OPERATIONS = as_bits(SUPPORTED[ResourceType.GROUP])


async def describe_groups(
    node: BrokerNode, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    operations = UNKNOWN_OPERATIONS
    if request.include_authorized_operations:
        operations = GROUP_OPERATIONS
    names = list(dict.fromkeys(request.groups))  # each once: a description may be long
    described = partial(_described, node, context.version, operations)
    return DescribeGroupsResponse(groups=await in_steps(_each_described(described, names)))


def _each_described(
    described: Callable[[str], DescribedGroup], names: Iterable[str]
) -> Steps[list[DescribedGroup]]:
    groups = []
    for name in names:
        groups.append(described(name))
        yield 1 + len(groups[-1].members)
    return groups


def _described(node: BrokerNode, version: int, operations: int, group_id: str) -> DescribedGroup:
    try:
        hosted = node.groups.serving(group_id).groups.get(group_id)
    except KafkaError as error:
        return DescribedGroup(error_code=error.code, group_id=group_id)
    if hosted is not None and hosted.consumers is None:
        shown = _shown(hosted)
        shown.authorized_operations = operations
        return shown
    dead = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version < NOT_FOUND_SINCE:
        dead.authorized_operations = operations
    if version >= NOT_FOUND_SINCE:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        why = "not found" if hosted is None else "is not a classic group"
        dead.error_message = f"Group {group_id} {why}."
    return dead


def _shown(hosted: HostedGroup) -> DescribedGroup:
    """Return what members said only if the group is stable, and what they were given last."""
    group = hosted.group
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_member(each, protocol) for each in group.members.values()],
    )


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


async def list_groups(
    node: BrokerNode, _: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    error, groups = await in_steps(listed(node.groups, request.states_filter, request.types_filter))
    return ListGroupsResponse(
        error_code=error, groups=await in_steps(each_of(_listed_group, groups))
    )


def _listed_group(hosted: HostedGroup) -> ListedGroupData:
    return ListedGroupData(
        group_id=hosted.group.group_id,
        protocol_type=(
            hosted.group.protocol_type or "" if hosted.consumers is None else PROTOCOL_TYPE
        ),
        group_state=hosted.state_name,
        group_type=type_of(hosted),
    )


async def delete_groups(
    node: BrokerNode, _: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = []
    for number, name in enumerate(dict.fromkeys(request.groups_names), start=1):
        error = await delete_group(node.groups, name)
        results.append(DeletedGroup(group_id=name, error_code=error))
        if number % STEP == 0:
            await trio.lowlevel.checkpoint()
    return DeleteGroupsResponse(results=results)
