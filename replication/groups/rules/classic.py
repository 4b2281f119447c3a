"""Kafka's classic group protocol: all members join, the leader assigns, each gets its assignment.

    JoinGroup   waits until all members have joined, or the rebalance timeout is over:
                one generation, one leader, one protocol
    SyncGroup   waits until the leader's assignment is stored; then each member gets its part
    Heartbeat   keeps the session; its error makes the member join again

Rule 1: this is a value. Requests, times and outcomes of writes go in; `take` returns the effects
(effects.py). Every ticket that went in comes out with one answer.

Rule 2: a member that waits for an answer cannot send heartbeats, since its connection waits, so its
session does not expire meanwhile. A member that has never received its id is removed after five
minutes: it may be gone, and no request would ever show it.

Rule 3: an empty group waits `group.initial.rebalance.delay.ms` for more members, and again
for each newcomer, up to the rebalance timeout. Any other group waits for all known members.

Rule 4: a static member (KIP-345) keeps its place until its session expires; a dynamic member
that has not joined again when a generation begins is removed.

joining.py and presence.py hold the requests; this module holds time and writes.
(Kafka: GroupCoordinator, GroupMetadataManager, DelayedJoin.)
"""

from typing import Final, assert_never

import attrs

from replication.errors import ErrorCode
from replication.events import Event, GroupMemberLeft, GroupRebalanceStarted, GroupStabilized
from replication.groups.rules.effects import (
    Answer,
    AssignmentStored,
    Effect,
    Emit,
    EmptyStored,
    JoinedMember,
    JoinResult,
    Moment,
    Purpose,
    ReplacementStored,
    Store,
    SyncResult,
)
from replication.groups.rules.group import Group, GroupState, Member, Protocol
from replication.groups.rules.records import group_record
from storage.attributes import define, frozen

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
SHORTEST_WAIT_MS: Final = 100


@frozen(kw_only=True)
class GroupLimits:
    """The limits of groups in a broker's configuration."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int

    def allows_session(self, timeout_ms: int) -> bool:
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


@frozen(kw_only=True)
class _JoinTimer:
    """The end of waiting for members; an initial rebalance may wait `left_ms` more."""

    deadline_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    left_ms: int = 0


@define(eq=False)
class ClassicGroup:
    """One group at work."""

    group: Group
    limits: GroupLimits
    pending: dict[str, int] = attrs.field(factory=dict, init=False)
    """The ids that were given to newcomers who have not joined with them (KIP-394), with deadlines."""
    _join_timer: _JoinTimer | None = attrs.field(default=None, init=False)
    _unsynced: set[str] = attrs.field(factory=set, init=False)
    _sync_deadline_ms: int | None = attrs.field(default=None, init=False)
    _newcomers: bool = attrs.field(default=False, init=False)
    _effects: list[Effect] = attrs.field(factory=list, init=False)

    # Out.

    def take(self) -> list[Effect]:
        """Return and clear the effects; called after every other call."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next `tick` that has an effect; None without a deadline."""
        deadlines = [each.deadline_ms for each in self.group.members.values()]
        deadlines += [*self.pending.values(), self._sync_deadline_ms]
        if self._join_timer is not None:
            deadlines.append(self._join_timer.deadline_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def add_effect(self, effect: Effect) -> None:
        self._effects.append(effect)

    def emit(self, event: Event) -> None:
        self.add_effect(Emit(event))

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the JoinGroup of this member that waits, if there is one."""
        if member.join_ticket is not None:
            self.add_effect(Answer(member.join_ticket, result))
            member.join_ticket = None

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        if member.sync_ticket is None:
            return False
        self.add_effect(Answer(member.sync_ticket, result))
        member.sync_ticket = None
        return True

    def joined(
        self, member: Member, *, leader: str = "", skip_assignment: bool = False
    ) -> JoinResult:
        """Return the answer to `member` about the generation that the group is in."""
        group = self.group
        answered_as_leader = group.is_leader(member.member_id) and not leader
        return JoinResult(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or group.leader_id or "",
            skip_assignment=skip_assignment,
            members=self._all_joined() if answered_as_leader else (),
        )

    def _all_joined(self) -> tuple[JoinedMember, ...]:
        name = self.group.protocol_name
        assert name is not None, "a generation with members has a protocol"
        return tuple(
            JoinedMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata(name),
            )
            for each in self.group.members.values()
        )

    # Time.

    def resume(self, at: Moment) -> None:
        """Begin every session anew after the log was read, and rebalance a group that is too large."""
        for member in self.group.members.values():
            member.renew_session(at.now_ms)
        if len(self.group.members) > self.limits.max_size:
            self.maybe_prepare_rebalance("more members than group.max.size", at)

    def tick(self, at: Moment) -> None:
        """Expire the sessions, ids and rebalances whose deadline has passed."""
        for member_id in [each for each, due in self.pending.items() if due <= at.now_ms]:
            del self.pending[member_id]
            self.maybe_complete_join(at)
        for member in list(self.group.members.values()):
            if member.deadline_ms is not None and member.deadline_ms <= at.now_ms:
                if member.awaits_answer:
                    member.deadline_ms = None
                else:
                    self.remove_member(member, "session expired", at)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= at.now_ms:
            self._expire_sync(at)
        if self._join_timer is not None and self._join_timer.deadline_ms <= at.now_ms:
            self._join_time_is_up(self._join_timer, at)

    def _join_time_is_up(self, timer: _JoinTimer, at: Moment) -> None:
        if timer.is_initial and self._newcomers and timer.left_ms > 0:
            self._newcomers = False
            delay_ms = min(self.limits.initial_rebalance_delay_ms, timer.left_ms)
            self._join_timer = _JoinTimer(
                deadline_ms=at.now_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                left_ms=max(timer.left_ms - timer.delay_ms, 0),
            )
        else:
            self._complete_join(at)

    def _expire_sync(self, at: Moment) -> None:
        """Remove the members that have joined without sending a SyncGroup."""
        for member_id in sorted(self._unsynced):
            self._drop(self.group.members[member_id], "did not sync")
        self.prepare_rebalance("members did not sync in time", at)

    # Rebalancing.

    def note_newcomer(self) -> None:
        """Note a newcomer: an initial rebalance waits longer for more of them."""
        if self.group.state is GroupState.PREPARING_REBALANCE and self.group.generation == 0:
            self._newcomers = True

    def maybe_prepare_rebalance(self, cause: str, at: Moment) -> None:
        if self.group.is_in(GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            self.prepare_rebalance(cause, at)

    def prepare_rebalance(self, cause: str, at: Moment) -> None:
        """Begin to wait for the members to join again."""
        group = self.group
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._answer_assignments(ErrorCode.REBALANCE_IN_PROGRESS, at)
        self._all_have_synced()
        timeout_ms = group.rebalance_timeout_ms
        if group.state is GroupState.EMPTY:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._join_timer = _JoinTimer(
                deadline_ms=at.now_ms + delay_ms,
                is_initial=True,
                delay_ms=delay_ms,
                left_ms=max(timeout_ms - delay_ms, 0),
            )
        else:
            self._join_timer = _JoinTimer(deadline_ms=at.now_ms + timeout_ms)
        group.transition(GroupState.PREPARING_REBALANCE, wall_ms=at.wall_ms)
        self.emit(
            GroupRebalanceStarted(
                group=group.group_id,
                generation=group.generation,
                members=len(group.members),
                cause=cause,
            )
        )
        self.maybe_complete_join(at)

    def maybe_complete_join(self, at: Moment) -> None:
        """Complete the rebalance if no member is missing; an initial one waits all the same."""
        timer = self._join_timer
        if timer is None or timer.is_initial or self.pending or not self.group.has_all_joined:
            return
        self._complete_join(at)

    def _complete_join(self, at: Moment) -> None:
        group = self.group
        for member in [each for each in group.members.values() if not each.awaits_join]:
            if not member.is_static:
                self._drop(member, "did not rejoin")
        if group.members and not group.elect_joined_leader():
            # Only static members, none of which has joined again: wait until their sessions
            # expire. Their rebalance timeouts may be 0.
            wait_ms = max(group.rebalance_timeout_ms, SHORTEST_WAIT_MS)
            self._join_timer = _JoinTimer(deadline_ms=at.now_ms + wait_ms)
            return
        self._join_timer = None
        group.begin_generation(wall_ms=at.wall_ms)
        self._all_have_synced()
        if group.state is GroupState.EMPTY:
            self.add_effect(Store(group_record(group.group_id, group.value()), EmptyStored()))
            return
        for member in group.members.values():
            self.answer_join(member, self.joined(member))
            member.renew_session(at.now_ms)
            member.is_new = False
        self._unsynced = set(group.members)
        self._sync_deadline_ms = at.now_ms + group.rebalance_timeout_ms

    def has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _all_have_synced(self) -> None:
        self._unsynced.clear()
        self._sync_deadline_ms = None

    # Members.

    def remove_member(self, member: Member, cause: str, at: Moment) -> None:
        """Remove a member, and rebalance its partitions to the others."""
        self._drop(member, cause)
        if self.group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare_rebalance(f"a member is gone: {cause}", at)
        else:
            self.maybe_complete_join(at)

    def _drop(self, member: Member, cause: str) -> None:
        gone = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(member, JoinResult(error=gone))
        self.answer_sync(member, SyncResult(error=gone))
        self.group.remove(member.member_id)
        self.has_synced(member.member_id)
        self.emit(
            GroupMemberLeft(
                group=self.group.group_id,
                member=member.member_id,
                instance=member.group_instance_id or "",
                cause=cause,
            )
        )

    def replace_member(self, old_id: str, new_id: str) -> Member:
        """Fence a static member's process, and return the member under another process's id."""
        member = self.group.members[old_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(member, JoinResult(error=fenced, member_id=old_id))
        self.answer_sync(member, SyncResult(error=fenced))
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        return self.group.rename(old_id, new_id)

    # Writes.

    def store_assignment(self) -> None:
        """Write the group as it is now, with the members' assignments."""
        record = group_record(self.group.group_id, self.group.value())
        self.add_effect(Store(record, AssignmentStored(self.group.generation)))

    def on_stored(self, purpose: Purpose, error: ErrorCode, at: Moment) -> None:
        """Take the outcome of a write; meanwhile the group may have moved on."""
        match purpose:
            case AssignmentStored():
                self._on_assignment_stored(purpose, error, at)
            case ReplacementStored():
                self._on_replacement_stored(purpose, error, at)
            case EmptyStored():
                pass  # if it is lost, the next coordinator removes its last members again
            case never:
                assert_never(never)

    def _on_assignment_stored(
        self, purpose: AssignmentStored, error: ErrorCode, at: Moment
    ) -> None:
        group = self.group
        is_current = purpose.generation == group.generation
        if not is_current or group.state is not GroupState.COMPLETING_REBALANCE:
            return
        self._answer_assignments(error, at)
        if error is not ErrorCode.NONE:
            self.prepare_rebalance(f"the assignment could not be stored: {error.name}", at)
            return
        group.transition(GroupState.STABLE, wall_ms=at.wall_ms)
        assert group.protocol_name is not None, "a stable group has a protocol"
        self.emit(
            GroupStabilized(
                group=group.group_id,
                generation=group.generation,
                protocol=group.protocol_name,
                leader=group.leader_id or "",
                members=tuple(group.members),
            )
        )

    def _answer_assignments(self, error: ErrorCode, at: Moment) -> None:
        """Answer every waiting SyncGroup with the member's assignment, or with the error."""
        group = self.group
        for member in group.members.values():
            if error is not ErrorCode.NONE:
                member.assignment = b""
            if self.answer_sync(member, self.synced(member, error)):
                member.renew_session(at.now_ms)

    def synced(self, member: Member, error: ErrorCode = ErrorCode.NONE) -> SyncResult:
        if error is not ErrorCode.NONE:
            return SyncResult(error=error)
        return SyncResult(
            protocol_type=self.group.protocol_type,
            protocol_name=self.group.protocol_name,
            assignment=member.assignment,
        )

    def _on_replacement_stored(
        self, purpose: ReplacementStored, error: ErrorCode, at: Moment
    ) -> None:
        """Answer the static member that has returned; or undo its return, where the write failed."""
        group = self.group
        member = group.members.get(purpose.new_member_id)
        if member is None or member.join_ticket != purpose.ticket:
            return  # removed or replaced meanwhile, and answered
        if group.state is not GroupState.STABLE or group.generation != purpose.generation:
            return  # a rebalance will answer it
        if error is not ErrorCode.NONE:
            self.answer_join(member, JoinResult(error=error, generation=group.generation))
            member.protocols = tuple(Protocol(*each) for each in purpose.protocols)
            member.rebalance_timeout_ms = purpose.rebalance_timeout_ms
            member.session_timeout_ms = purpose.session_timeout_ms
            group.rename(purpose.new_member_id, purpose.old_member_id)
        elif purpose.may_skip_assignment:
            leads = group.is_leader(member.member_id)
            self.answer_join(member, self.joined(member, skip_assignment=leads))
        else:
            # Before JoinGroup 9 no answer lets a leader skip the assignment; so the answer
            # names the leader by its former id, and this member does not assign.
            self.answer_join(member, self.joined(member, leader=purpose.old_leader))
        member.renew_session(at.now_ms)

    # The end.

    def unload(self, error: ErrorCode, at: Moment) -> None:
        """Answer every waiting request with `error`: this broker no longer coordinates the group."""
        for member in self.group.members.values():
            self.answer_join(member, JoinResult(error=error, member_id=member.member_id))
            self.answer_sync(member, SyncResult(error=error))
            member.deadline_ms = None
        self.pending.clear()
        self._join_timer = None
        self._all_have_synced()
        self.group.transition(GroupState.DEAD, wall_ms=at.wall_ms)
