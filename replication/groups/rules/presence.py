"""SyncGroup, Heartbeat, LeaveGroup, and the check of a commit: the requests of members."""

from collections.abc import Mapping

from replication.errors import ErrorCode
from replication.groups.rules.classic import ClassicGroup
from replication.groups.rules.effects import NO_MEMBER_ID, Answer, Moment, SyncResult
from replication.groups.rules.group import Group, GroupState


def fault_of(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return the error of a request of this member; NONE where the group has such a member."""
    if group_instance_id is not None:
        known_as = group.static_member_id(group_instance_id)
        if known_as is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known_as != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _fault_in_generation(
    group: Group, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = fault_of(group, member_id, group_instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def sync(
    machine: ClassicGroup,
    *,
    ticket: int,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    assignments: Mapping[str, bytes],
    at: Moment,
) -> None:
    """Answer a SyncGroup. The leader's request has the assignments; a member without one gets an
    empty assignment.
    """
    group = machine.group
    error = _fault_in_generation(group, member_id, group_instance_id, generation)
    if error is ErrorCode.NONE:
        is_other_type = protocol_type not in (None, group.protocol_type)
        if is_other_type or protocol_name not in (None, group.protocol_name):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not ErrorCode.NONE:
        machine.add_effect(Answer(ticket, SyncResult(error=error)))
        return
    member = group.members[member_id]
    machine.has_synced(member_id)
    if group.state is GroupState.STABLE:
        machine.add_effect(Answer(ticket, machine.synced(member)))
        member.renew_session(at.now_ms)
        return
    # A member that sends another SyncGroup has given up its former request.
    machine.answer_sync(member, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = ticket
    if group.is_leader(member_id):
        for each in group.members.values():
            each.assignment = assignments.get(each.member_id, b"")
        machine.store_assignment()


def heartbeat(
    machine: ClassicGroup,
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    at: Moment,
) -> ErrorCode:
    group = machine.group
    error = _fault_in_generation(group, member_id, group_instance_id, generation)
    if error is not ErrorCode.NONE:
        return error
    group.members[member_id].renew_session(at.now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    machine: ClassicGroup,
    *,
    member_id: str,
    group_instance_id: str | None,
    at: Moment,
) -> ErrorCode:
    """Remove one member; an administrator names only the instance id."""
    group = machine.group
    if member_id == NO_MEMBER_ID:
        known_as = None if group_instance_id is None else group.static_member_id(group_instance_id)
        if known_as is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        machine.remove_member(group.members[known_as], "removed", at)
    elif member_id in machine.pending:
        del machine.pending[member_id]
        machine.maybe_complete_join(at)
    else:
        error = fault_of(group, member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        machine.remove_member(group.members[member_id], "left", at)
    return ErrorCode.NONE


def commit(
    machine: ClassicGroup,
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    at: Moment,
) -> ErrorCode:
    """Return whether offsets may be committed; a commit counts as a heartbeat.

    A commit without a generation comes from a consumer without a group, or from an administrator;
    it is allowed only while the group has no members.
    """
    group = machine.group
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    error = _fault_in_generation(group, member_id, group_instance_id, generation)
    if error is not ErrorCode.NONE:
        return error
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.members[member_id].renew_session(at.now_ms)
    return ErrorCode.NONE
