"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the requests of members to their coordinator.

A join waits for its group, as long as a rebalance may take, and a sync for the leader's assignment.
Other requests on the same connection wait meanwhile, as in Kafka; a member whose heartbeat waits
there is not late.
"""

import trio

from replication.broker.handlers.node import BrokerNode
from replication.errors import ErrorCode, KafkaError
from replication.groups.rules.effects import JoinedMember
from replication.groups.rules.group import Protocol
from replication.net.pace import in_steps
from replication.server.server import RequestContext
from replication.steps import STEP, each_of
from replication.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
from replication.wire.join_group import (
    NULL_PROTOCOL_SINCE,
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from replication.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeftMember
from replication.wire.sync_group import (
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

OWN_REBALANCE_TIMEOUT_SINCE = 1  # of JoinGroup (KIP-62)
MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
SKIP_ASSIGNMENT_SINCE = 9  # KIP-814
PROTOCOL_NAMED_SINCE = 5  # of SyncGroup (KIP-559)
MANY_LEAVE_SINCE = 3  # of LeaveGroup (KIP-345)


async def join_group(
    node: BrokerNode, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    version, session_ms = context.version, request.session_timeout_ms
    has_own = version >= OWN_REBALANCE_TIMEOUT_SINCE
    is_dynamic = request.group_instance_id is None
    result = await node.groups.join_group(
        request.group_id,
        client_id=context.client_id or "",
        client_host="/" + context.peer.rpartition(":")[0],
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_own else session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(await in_steps(each_of(_protocol, request.protocols))),
        must_know_its_id=is_dynamic and version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
        reason=request.reason or "",
    )
    no_name = None if version >= NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_name if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=await in_steps(each_of(_member, result.members)),
    )


def _protocol(named: JoinGroupProtocol) -> Protocol:
    return Protocol(named.name, named.metadata)


def _member(joined: JoinedMember) -> JoinGroupMember:
    return JoinGroupMember(
        member_id=joined.member_id,
        group_instance_id=joined.group_instance_id,
        metadata=joined.metadata,
    )


async def sync_group(
    node: BrokerNode, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    unnamed = request.protocol_type is None or request.protocol_name is None
    if context.version >= PROTOCOL_NAMED_SINCE and unnamed:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    result = await node.groups.sync_group(
        request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=dict(await in_steps(each_of(_assignment, request.assignments))),
    )
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


def _assignment(given: SyncGroupAssignment) -> tuple[str, bytes]:
    return given.member_id, given.assignment


async def heartbeat(
    node: BrokerNode, _: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    error = await node.groups.heartbeat(
        request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    return HeartbeatResponse(error_code=error)


async def leave_group(
    node: BrokerNode, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    many = context.version >= MANY_LEAVE_SINCE
    leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    if many:
        leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    left: list[LeftMember] = []
    try:
        start = 0
        while start == 0 or start < len(leaving):
            if start:
                await trio.lowlevel.checkpoint()
            # Each that leaves is work for every member that stays.
            end = start + 1 + STEP // (1 + node.groups.member_count(request.group_id))
            some, start = leaving[start:end], end
            errors = await node.groups.leave_group(request.group_id, some)
            left += [
                LeftMember(member_id=member_id, group_instance_id=instance, error_code=error)
                for (member_id, instance), error in zip(some, errors, strict=True)
            ]
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not many:
        return LeaveGroupResponse(error_code=left[0].error_code)
    return LeaveGroupResponse(members=left)
