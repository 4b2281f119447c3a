"""JoinGroup: the admission of a member, and the rebalance after it (KIP-345, KIP-394, KIP-814).

no member id, static      replaces the member of its instance id, or becomes a new member
no member id, dynamic     receives an id, and joins with it (since version 4)
an id given before        becomes a member
a member's id             joins again: with the same metadata, in a settled group, it is
                          answered at once; else a rebalance begins
"""

from typing import Final

from replication.errors import ErrorCode
from replication.events import GroupMemberJoined
from replication.groups.rules.classic import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from replication.groups.rules.effects import (
    NO_MEMBER_ID,
    Answer,
    JoinResult,
    Moment,
    ReplacementStored,
    Store,
)
from replication.groups.rules.group import GroupState, Member, Protocol
from replication.groups.rules.presence import fault_of
from replication.groups.rules.records import group_record
from storage.attributes import frozen

_SETTLED: Final = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


@frozen(kw_only=True)
class Join:
    """One JoinGroup. `new_member_id` is the id for a newcomer."""

    ticket: int
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    must_know_its_id: bool = False
    may_skip_assignment: bool = False
    reason: str = ""


def join(group: ClassicGroup, request: Join, at: Moment) -> None:
    """Answer a JoinGroup, at once or with the next generation."""
    if not _has_room(group, request.member_id):
        _turn_away(group, request, at)
    elif (error := _refusal(group, request)) is not ErrorCode.NONE:
        answer = JoinResult(error=error, member_id=request.member_id)
        group.add_effect(Answer(request.ticket, answer))
    elif request.member_id == NO_MEMBER_ID:
        _join_as_newcomer(group, request, at)
    elif request.member_id in group.pending:
        _add(group, request, request.member_id, at)
    else:
        _join_again(group, request, at)
    group.maybe_complete_join(at)


def _refusal(machine: ClassicGroup, request: Join) -> ErrorCode:
    group = machine.group
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(request.protocol_type, request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == NO_MEMBER_ID:
        return ErrorCode.NONE
    if request.member_id in machine.pending:
        # Only dynamic members receive an id: a request with an instance id as well is wrong.
        is_static = request.group_instance_id is not None
        return ErrorCode.UNKNOWN_MEMBER_ID if is_static else ErrorCode.NONE
    return fault_of(group, request.member_id, request.group_instance_id)


def _has_room(machine: ClassicGroup, member_id: str) -> bool:
    """Return whether group.max.size lets this member in.

    During a rebalance only the members that have joined again count: the last ones of a group that
    is too large are refused.
    """
    group = machine.group
    if group.is_in(GroupState.EMPTY, GroupState.DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_back = member is not None and member.awaits_join
        return is_back or group.awaiting < machine.limits.max_size
    return member is not None or len(group.members) < machine.limits.max_size


def _turn_away(machine: ClassicGroup, request: Join, at: Moment) -> None:
    answer = JoinResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED)
    machine.add_effect(Answer(request.ticket, answer))
    machine.pending.pop(request.member_id, None)
    member = machine.group.members.get(request.member_id)
    if member is not None:
        machine.remove_member(member, "no room in the group", at)


def _join_as_newcomer(machine: ClassicGroup, request: Join, at: Moment) -> None:
    instance = request.group_instance_id
    known_as = None if instance is None else machine.group.static_member_id(instance)
    if known_as is not None:
        _replace(machine, request, known_as, at)
    elif instance is None and request.must_know_its_id:
        new_id = request.new_member_id
        machine.pending[new_id] = at.now_ms + request.session_timeout_ms
        answer = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
        machine.add_effect(Answer(request.ticket, answer))
    else:
        _add(machine, request, request.new_member_id, at)


def _add(machine: ClassicGroup, request: Join, member_id: str, at: Moment) -> None:
    machine.note_newcomer()
    machine.pending.pop(member_id, None)
    machine.group.add(
        Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            is_new=True,
            join_ticket=request.ticket,
            deadline_ms=at.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
    )
    machine.emit(
        GroupMemberJoined(
            group=machine.group.group_id,
            member=member_id,
            instance=request.group_instance_id or "",
            client=request.client_id,
        )
    )
    machine.maybe_prepare_rebalance(_because("a member joins", request), at)


def _join_again(machine: ClassicGroup, request: Join, at: Moment) -> None:
    group, member = machine.group, machine.group.members[request.member_id]
    is_same = member.protocols == request.protocols
    # A leader that joins again wants to assign again, because there are more partitions, for example.
    wants_to_assign = group.state is GroupState.STABLE and group.is_leader(member.member_id)
    if group.is_in(*_SETTLED) and is_same and not wants_to_assign:
        machine.add_effect(Answer(request.ticket, machine.joined(member)))
        return
    _update(machine, member, request)
    cause = "the leader joins again" if wants_to_assign else "a member's metadata changes"
    machine.maybe_prepare_rebalance(_because(cause, request), at)


def _update(machine: ClassicGroup, member: Member, request: Join) -> None:
    # A member that joins again has given up its former request.
    machine.answer_join(
        member,
        JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
    )
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.join_ticket = request.ticket


def _replace(machine: ClassicGroup, request: Join, old_id: str, at: Moment) -> None:
    """Replace a static member by another process, which does not know the member id."""
    group, before = machine.group, machine.group.members[old_id]
    undo = ReplacementStored(
        ticket=request.ticket,
        generation=group.generation,
        old_member_id=old_id,
        new_member_id=request.new_member_id,
        protocols=before.protocols,
        rebalance_timeout_ms=before.rebalance_timeout_ms,
        session_timeout_ms=before.session_timeout_ms,
        old_leader=group.leader_id or "",
        may_skip_assignment=request.may_skip_assignment,
    )
    member = machine.replace_member(old_id, request.new_member_id)
    _update(machine, member, request)
    member.renew_session(at.now_ms)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the former id at this moment.
        machine.prepare_rebalance(_because("a static member is replaced", request), at)
    elif group.state is GroupState.STABLE:
        if group.select_protocol() == group.protocol_name:
            machine.add_effect(Store(group_record(group.group_id, group.value()), undo))
        else:
            machine.prepare_rebalance(_because("another protocol is chosen", request), at)


def _because(cause: str, request: Join) -> str:
    return f"{cause}: {request.reason}" if request.reason else cause
