"""Who is in sync, and what that lets the leader commit (KIP-497, KIP-841, KIP-903, KIP-966).

Rule 1: this module holds numbers, never records and never a clock; times are arguments.

Rule 2: the high watermark counts the *maximal* ISR: the members the controller has
confirmed, plus one that it was asked to add. A member it was asked to drop still counts
until it agrees, because that member may yet become leader.

    state               isr         maximal_isr
    Committed           {1,2}       {1,2}
    PendingExpand(3)    {1,2}       {1,2,3}
    PendingShrink(2)    {1,2}       {1,2}

Rule 3: one change at a time. A pending state is an object; an answer that finds another
object in its place came too late, and is ignored.

Rule 4: a follower is caught up at the time of a fetch that reached the leader's log end,
or at the time of the fetch *before* it when this one reaches what was the log end then.

    leader's log end    10           15            15
    follower fetches     0     10          15
                                └ caught up as of the first fetch
                                            └ caught up as of now

A follower whose log end equals the leader's is caught up however long it is silent.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, assert_never

import attrs

from replication.errors import ErrorCode
from storage.types import NO_OFFSET, LeaderEpoch, Offset

NEVER_MS = -(2**62)
"""Before any time that a node's clock may show."""

NO_BROKER_EPOCH = -1


# What is sent to the controller, and what it says.


@attrs.frozen
class IsrMember:
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH
    """That of its last fetch; -1 where none is known (KIP-903)."""


@attrs.frozen(kw_only=True)
class IsrProposal:
    """The payload of an AlterPartition for one partition."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(member.broker_id for member in self.isr)


@attrs.frozen(kw_only=True)
class IsrAnswer:
    """What the controller said about one proposal."""

    error: ErrorCode = ErrorCode.NONE
    leader_epoch: LeaderEpoch = -1
    partition_epoch: int = -1
    isr: frozenset[int] = frozenset()


# The state of a leader's ISR.


@attrs.frozen
class Committed:
    isr: frozenset[int]

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr


@functools.lru_cache(maxsize=1024)
def committed(isr: tuple[int, ...]) -> Committed:
    """One object for all the partitions that have it, which are many and have few."""
    return Committed(frozenset(isr))


@attrs.frozen(eq=False)
class PendingExpand:
    joining: int
    sent: IsrProposal
    last_committed: Committed

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.last_committed.isr | {self.joining}


@attrs.frozen(eq=False)
class PendingShrink:
    leaving: frozenset[int]
    sent: IsrProposal
    last_committed: Committed

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.last_committed.isr


Pending: TypeAlias = PendingExpand | PendingShrink
IsrState: TypeAlias = Committed | Pending


# The controller's answer, as what to do about it (Partition.handleAlterPartitionUpdate).


@attrs.frozen
class Commit:
    """The controller agreed: `isr` is committed at `partition_epoch`."""

    isr: frozenset[int]
    partition_epoch: int


@attrs.frozen
class Revert:
    """The change will not happen: back to what was committed, and do not ask again."""


@attrs.frozen
class AwaitMetadata:
    """We are behind: stay pending until newer metadata replaces the state."""


@attrs.frozen
class Resubmit:
    """Nothing is known about the fate of the change: ask the same again."""


@attrs.frozen
class Ignore:
    """The answer belongs to an earlier reign or an earlier partition epoch."""


Outcome: TypeAlias = Commit | Revert | AwaitMetadata | Resubmit | Ignore


def outcome_of(answer: IsrAnswer, *, leader_epoch: LeaderEpoch, partition_epoch: int) -> Outcome:
    """What a leader at these epochs does about `answer`."""
    match answer.error:
        case ErrorCode.NONE:
            if answer.leader_epoch != leader_epoch or answer.partition_epoch < partition_epoch:
                return Ignore()
            return Commit(answer.isr, answer.partition_epoch)
        case ErrorCode.OPERATION_NOT_ATTEMPTED | ErrorCode.INELIGIBLE_REPLICA:
            return Revert()
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.UNKNOWN_TOPIC_ID
            | ErrorCode.FENCED_LEADER_EPOCH
            | ErrorCode.INVALID_UPDATE_VERSION
            | ErrorCode.INVALID_REQUEST
            | ErrorCode.NEW_LEADER_ELECTED
        ):
            return AwaitMetadata()
        case _:
            return Resubmit()


# What the leader knows of a follower.


@attrs.define(eq=False)
class Pulse:
    """When a follower's fetch session last asked about all that it holds."""

    last_fetch_ms: int = NEVER_MS


@attrs.define(kw_only=True)
class FollowerState:
    """One follower as its leader sees it (Replica.ReplicaState).

    While it has all that there is, and asks again and again, its times are its session's.
    """

    log_start_offset: Offset = NO_OFFSET
    log_end_offset: Offset = NO_OFFSET
    last_fetch_leader_log_end: Offset = 0
    """The leader's log end when this follower last fetched."""
    broker_epoch: int | None = None
    """None until it has fetched; -1 where its fetch is too old to carry one."""
    pulse: Pulse | None = None
    _last_fetch_ms: int = NEVER_MS
    _last_caught_up_ms: int = NEVER_MS

    @property
    def last_fetch_ms(self) -> int:
        return self._last_fetch_ms if self.pulse is None else self.pulse.last_fetch_ms

    @property
    def last_caught_up_ms(self) -> int:
        if self.pulse is None:
            return self._last_caught_up_ms
        return max(self._last_caught_up_ms, self.pulse.last_fetch_ms)

    def follow_pulse(self, pulse: Pulse) -> None:
        """It stands at the leader's log end: from here on each beat of `pulse` is a fetch there."""
        assert self.log_end_offset == self.last_fetch_leader_log_end, "it lacks nothing"
        self.pulse = pulse

    def keep_times(self) -> None:
        """The times as of the last beat, which no later one changes."""
        self._last_caught_up_ms, self._last_fetch_ms = self.last_caught_up_ms, self.last_fetch_ms
        self.pulse = None

    def on_fetch(
        self,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        leader_log_end: Offset,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """Note a fetch that the leader read at `leader_log_end` (Rule 4)."""
        self.keep_times()
        if fetch_offset >= leader_log_end:
            self._last_caught_up_ms = max(self._last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end:
            self._last_caught_up_ms = max(self._last_caught_up_ms, self._last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end = max(leader_log_end, self.last_fetch_leader_log_end)
        self._last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def on_new_leader_epoch(
        self, *, in_isr: bool, reelected: bool, leader_log_end: Offset, now_ms: int
    ) -> None:
        """A new reign begins: what was known of this follower says nothing about it any more.

        A leader that succeeds itself keeps where the follower stood; a new one knows nothing.
        """
        assert self.pulse is None, "a new reign unsettles everything first"
        self._last_caught_up_ms = now_ms if in_isr else NEVER_MS
        if reelected:
            self.last_fetch_leader_log_end = leader_log_end
            self._last_fetch_ms = now_ms if in_isr else NEVER_MS
        else:
            self.log_start_offset = NO_OFFSET
            self.log_end_offset = NO_OFFSET
            self.last_fetch_leader_log_end = NO_OFFSET
            self._last_fetch_ms = NEVER_MS
            self.broker_epoch = None

    @property
    def is_known(self) -> bool:
        """Whether it has fetched from this leader."""
        return self.log_end_offset >= 0

    def lag_ms(self, now_ms: int) -> int:
        """Since when it has lacked anything; -1 where it has never been caught up."""
        return -1 if self.last_caught_up_ms == NEVER_MS else now_ms - self.last_caught_up_ms

    def caught_up(self, *, leader_log_end: Offset, now_ms: int, max_lag_ms: int) -> bool:
        return (
            self.log_end_offset == leader_log_end or now_ms - self.last_caught_up_ms <= max_lag_ms
        )


def effective_min_isr(*, min_insync_replicas: int, remote_replicas: int) -> int:
    """`min.insync.replicas`, which cannot ask for more replicas than there are."""
    return min(min_insync_replicas, 1 + remote_replicas)


def is_eligible(*, fetched_epoch: int | None, registered_epoch: int | None, may_lead: bool) -> bool:
    """Whether a follower may be in the ISR at all.

    It is neither fenced nor shutting down (`may_lead`, KIP-841), and the process that
    fetched is the one that is registered now (KIP-903): a wiped disk comes with a new epoch.
    """
    if not may_lead or registered_epoch is None or fetched_epoch is None:
        return False
    return fetched_epoch in {NO_BROKER_EPOCH, registered_epoch}


def may_expand(
    follower: FollowerState, *, high_watermark: Offset, leader_epoch_start: Offset
) -> bool:
    """Whether a follower outside the ISR holds enough to join: all that is committed, and
    the start of this reign (KAFKA-7128: a new leader's own high watermark may be behind).
    """
    return follower.log_end_offset >= max(high_watermark, leader_epoch_start)


def out_of_sync(
    state: IsrState,
    followers: Mapping[int, FollowerState],
    *,
    leader: int,
    leader_log_end: Offset,
    now_ms: int,
    max_lag_ms: int,
) -> frozenset[int]:
    """The members to ask the controller to drop; none while a change is pending (Rule 3)."""
    if not isinstance(state, Committed):
        return frozenset()
    return frozenset(
        broker
        for broker in state.isr
        if broker != leader
        and not (
            (follower := followers.get(broker)) is not None
            and follower.caught_up(
                leader_log_end=leader_log_end, now_ms=now_ms, max_lag_ms=max_lag_ms
            )
        )
    )


def committed_end(
    state: IsrState,
    followers: Iterable[tuple[int, FollowerState]],
    *,
    leader_log_end: Offset,
    may_join: Callable[[int, FollowerState], bool],
    min_isr: int,
) -> Offset | None:
    """The high watermark that the followers' positions allow; None where it may not move.

    It waits for every maximal member, and for a follower that is about to join: caught up
    by time and eligible, which is what `may_join` says. Below the minimum ISR it stands
    still (KIP-966), so that nothing is exposed that an election could lose.
    The caller never moves it back: a candidate below the present one changes nothing.
    """
    if len(state.isr) < min_isr:
        return None
    end = leader_log_end
    maximal_isr = state.maximal_isr
    assert maximal_isr, "a partition with a leader has at least that leader in sync"
    for broker, follower in followers:
        if follower.log_end_offset < end and (broker in maximal_isr or may_join(broker, follower)):
            end = follower.log_end_offset
    return end


def describe_pending(state: IsrState) -> str:
    """One word for the log and for tests."""
    match state:
        case Committed():
            return "committed"
        case PendingExpand():
            return "pending expand"
        case PendingShrink():
            return "pending shrink"
        case other:
            assert_never(other)
