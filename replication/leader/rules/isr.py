"""The rules of the ISR: which replicas are in sync, and what the leader may commit (KIP-497, KIP-841, KIP-903, KIP-966).

Rule 1: this module holds numbers, never records and never a clock; times are arguments.

Rule 2: the high watermark counts the *maximal* ISR: the members the controller has
confirmed, plus one that it was asked to add. A member it was asked to drop still counts
until it agrees, because that member may yet become leader.

    state               isr         maximal_isr
    CommittedIsr        {1,2}       {1,2}
    PendingExpand(3)    {1,2}       {1,2,3}
    PendingShrink(2)    {1,2}       {1,2}

Rule 3: one change at a time. A pending state is an object; an answer that finds another
object in its place is too late and is ignored.

Rule 4: a follower is caught up at the time of a fetch that reached the leader's log end, or at
the time of the fetch *before* it if this one reaches the log end of that time.

    leader's log end    10           15            15
    follower fetches     0     10          15
                                └ caught up as of the first fetch
                                            └ caught up as of now

A follower whose log end equals the leader's is caught up even if it does not fetch for long.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from replication.errors import ErrorCode
from storage.attributes import define, frozen
from storage.types import NO_BROKER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

NEVER_MS = -(2**62)
"""A time before any that a node's clock may show."""


# Proposals to the controller, and its answers.


@frozen
class IsrMember:
    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH
    """The broker epoch of its last fetch; -1 if it is not known (KIP-903)."""


@frozen(kw_only=True)
class IsrProposal:
    """An AlterPartition request for one partition."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(member.broker_id for member in self.isr)


@frozen(kw_only=True)
class IsrAnswer:
    """The controller's answer to one proposal."""

    error: ErrorCode = ErrorCode.NONE
    leader_epoch: LeaderEpoch = -1
    partition_epoch: int = -1
    isr: frozenset[int] = frozenset()


# The state of a leader's ISR.


@frozen
class CommittedIsr:
    isr: frozenset[int]
    maximal_isr: frozenset[int] = attrs.field(init=False, eq=False, repr=False)

    @maximal_isr.default
    def _is_the_isr(self) -> frozenset[int]:
        return self.isr


@functools.lru_cache(maxsize=1024)
def committed(isr: tuple[int, ...]) -> CommittedIsr:
    """Return the state for this ISR; partitions with the same ISR share one object."""
    return CommittedIsr(frozenset(isr))


@frozen(eq=False)
class PendingExpand:
    joining: int
    sent: IsrProposal
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.last_committed.isr | {self.joining}


@frozen(eq=False)
class PendingShrink:
    leaving: frozenset[int]
    sent: IsrProposal
    last_committed: CommittedIsr

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.last_committed.isr


Pending: TypeAlias = PendingExpand | PendingShrink
IsrState: TypeAlias = CommittedIsr | Pending


# What to do after the controller's answer (Partition.handleAlterPartitionUpdate).


@frozen
class Commit:
    """The controller agreed: `isr` is committed at `partition_epoch`."""

    isr: frozenset[int]
    partition_epoch: int


@frozen
class Revert:
    """The change will not happen: the committed ISR holds, and is not proposed again."""


@frozen
class AwaitMetadata:
    """This leader is behind: the change stays pending until newer metadata replaces it."""


@frozen
class Resubmit:
    """The outcome of the change is unknown: the same proposal is sent again."""


@frozen
class Ignore:
    """The answer belongs to an earlier leader epoch or partition epoch."""


IsrOutcome: TypeAlias = Commit | Revert | AwaitMetadata | Resubmit | Ignore


def outcome_of(answer: IsrAnswer, *, leader_epoch: LeaderEpoch, partition_epoch: int) -> IsrOutcome:
    """Return what a leader at these epochs does after `answer`."""
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


# The state of a follower.


@define(eq=False)
class Pulse:
    """The time of the last request of a follower's fetch session."""

    last_fetch_ms: int = NEVER_MS


@define(kw_only=True)
class FollowerState:
    """One follower as its leader sees it (Replica.ReplicaState).

    While the partition is settled in the follower's session, the session's times are used.
    """

    log_start_offset: Offset = NO_OFFSET
    log_end_offset: Offset = NO_OFFSET
    last_fetch_leader_log_end: Offset = 0
    """The leader's log end when this follower last fetched."""
    broker_epoch: int | None = None
    """None until the follower has fetched; -1 if its fetch version carries none."""
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
        """Take the times of `pulse` from now on; the follower is at the leader's log end."""
        assert self.log_end_offset == self.last_fetch_leader_log_end, "the follower is caught up"
        self.pulse = pulse

    def keep_times(self) -> None:
        """Copy the times of the pulse, so that its later ones do not count."""
        if self.pulse is None:
            return
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
        if self.pulse is not None:
            self.keep_times()
        caught_up_ms = NEVER_MS
        if fetch_offset >= leader_log_end:
            caught_up_ms = now_ms
        elif fetch_offset >= self.last_fetch_leader_log_end:
            caught_up_ms = self._last_fetch_ms
        # Conditions: `max` would take longer, for every fetch.
        if caught_up_ms > self._last_caught_up_ms:  # noqa: PLR1730
            self._last_caught_up_ms = caught_up_ms
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        if leader_log_end > self.last_fetch_leader_log_end:  # noqa: PLR1730
            self.last_fetch_leader_log_end = leader_log_end
        self._last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def on_new_leader_epoch(
        self, *, in_isr: bool, reelected: bool, leader_log_end: Offset, now_ms: int
    ) -> None:
        """Begin a leader epoch, about which the follower's earlier fetches say nothing.

        A leader that is reelected keeps the follower's offsets; a new leader knows none.
        """
        assert self.pulse is None, "a new leader epoch unsettles everything first"
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
        """Whether the follower has fetched from this leader."""
        return self.log_end_offset >= 0

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long the follower has been behind; -1 if it was never caught up."""
        return -1 if self.last_caught_up_ms == NEVER_MS else now_ms - self.last_caught_up_ms

    def caught_up(self, *, leader_log_end: Offset, now_ms: int, max_lag_ms: int) -> bool:
        return (
            self.log_end_offset == leader_log_end or now_ms - self.last_caught_up_ms <= max_lag_ms
        )


def effective_min_isr(*, min_insync_replicas: int, remote_replicas: int) -> int:
    """Return `min.insync.replicas`, at most the number of replicas."""
    return min(min_insync_replicas, 1 + remote_replicas)


def is_eligible(*, fetched_epoch: int | None, registered_epoch: int | None, may_lead: bool) -> bool:
    """Return whether a follower may be in the ISR at all.

    It must be neither fenced nor shutting down (`may_lead`, KIP-841), and the process that
    fetched must be the one that is registered now (KIP-903): a wiped disk has a new epoch.
    """
    if not may_lead or registered_epoch is None or fetched_epoch is None:
        return False
    return fetched_epoch in {NO_BROKER_EPOCH, registered_epoch}


def may_expand(
    follower: FollowerState,
    *,
    high_watermark: Offset,
    leader_epoch_start: Offset,
    leader_log_start: Offset,
) -> bool:
    """Return whether a follower outside the ISR holds enough to join, and nothing else.

    It must reach the high watermark and the start of this leader epoch (KAFKA-7128: a new
    leader's own high watermark may be behind). Its log must not begin before the leader's: what
    it has there was compared with nothing, and may be other records than those that the leader
    has deleted. The answer to its fetch moves its log start. (Kafka lets it join before that.)
    """
    if NO_OFFSET < follower.log_start_offset < leader_log_start:
        return False
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
    """Return the members that have lagged for too long; none while a change is pending (Rule 3)."""
    if not isinstance(state, CommittedIsr):
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
    """Return the high watermark that the followers' positions allow; None if it may not move.

    It waits for every member of the maximal ISR, and for a follower that is about to join:
    caught up by time, and eligible (`may_join`). Below the minimum ISR it does not move
    (KIP-966), so that consumers see nothing that an election could lose. The caller never
    moves it back: a result below the present high watermark changes nothing.
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
