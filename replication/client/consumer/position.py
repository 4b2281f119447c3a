"""Where a consumer reads one partition, and in which of four states it is to do so (KIP-320).

    state              a position   fetched   may become
    INITIALIZING       none         no        any other
    FETCHING           yes          yes       any but INITIALIZING
    AWAIT_RESET        none         no        FETCHING, AWAIT_RESET
    AWAIT_VALIDATION   yes          no        any but INITIALIZING

Rule 1: only FETCHING is fetched. A position whose leader has changed is first compared with
the new leader's log (OffsetsForLeaderEpoch), where both know epochs.

Rule 2: a change that the table does not have is no error: it comes too late, and is ignored.

(Kafka: SubscriptionState.FetchPosition, FetchStates, TopicPartitionState.)
"""

import enum

import attrs

from replication.client.cluster_view import UNKNOWN_LEADER, Leader
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


@attrs.frozen
class FetchPosition:
    """The next offset to read, the epoch of the record before it, and whom to read from."""

    offset: Offset
    offset_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader: Leader = UNKNOWN_LEADER

    @property
    def can_be_validated(self) -> bool:
        return self.offset_epoch >= 0 and self.leader.epoch >= 0


class FetchState(enum.Enum):
    """The states of the table above."""

    INITIALIZING = "initializing"
    FETCHING = "fetching"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"


_FOLLOWING = {
    FetchState.INITIALIZING: frozenset(FetchState) - {FetchState.INITIALIZING},
    FetchState.FETCHING: frozenset(FetchState) - {FetchState.INITIALIZING},
    FetchState.AWAIT_RESET: frozenset({FetchState.FETCHING, FetchState.AWAIT_RESET}),
    FetchState.AWAIT_VALIDATION: frozenset(FetchState) - {FetchState.INITIALIZING},
}


@attrs.frozen
class PreferredReadReplica:
    """Whom the leader told us to read from, and until when (KIP-392)."""

    node_id: int
    expires_ms: float


@attrs.define(eq=False)
class PartitionState:
    """All that a consumer remembers of one partition that is assigned to it."""

    state: FetchState = FetchState.INITIALIZING
    position: FetchPosition | None = None
    reset_strategy: "OffsetResetStrategy | None" = None
    next_retry_ms: float | None = None
    high_watermark: Offset | None = None
    last_stable_offset: Offset | None = None
    log_start_offset: Offset | None = None
    preferred: PreferredReadReplica | None = None
    paused: bool = False
    pending_revocation: bool = False
    pending_on_assigned: bool = False

    @property
    def has_valid_position(self) -> bool:
        return self.state is FetchState.FETCHING

    @property
    def is_fetchable(self) -> bool:
        held = self.paused or self.pending_revocation or self.pending_on_assigned
        return self.has_valid_position and not held

    def _become(self, state: FetchState, position: FetchPosition | None) -> bool:
        if state not in _FOLLOWING[self.state]:
            return False
        self.state, self.position, self.next_retry_ms = state, position, None
        has_one = state in (FetchState.FETCHING, FetchState.AWAIT_VALIDATION)
        assert has_one == (position is not None), "the state says whether there is a position"
        return True

    def reset(self, strategy: "OffsetResetStrategy") -> None:
        """Forget where we were; `strategy` says where to begin anew."""
        if self._become(FetchState.AWAIT_RESET, None):
            self.reset_strategy = strategy

    def seek_validated(self, position: FetchPosition) -> None:
        if self._become(FetchState.FETCHING, position):
            self.reset_strategy = None

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Go there, and have it compared with the leader's log where that can be."""
        self.seek_validated(position)
        self._validate(position)

    def _validate(self, position: FetchPosition) -> None:
        awaits = position.can_be_validated
        self._become(FetchState.AWAIT_VALIDATION if awaits else FetchState.FETCHING, position)

    def maybe_validate(self, leader: Leader) -> bool:
        """The leader is this now; whether the position must be validated before it is used."""
        if self.state is FetchState.AWAIT_RESET or leader.node is None:
            return False
        if self.position is not None and self.position.leader != leader:
            self._validate(attrs.evolve(self.position, leader=leader))
            self.preferred = None
        return self.state is FetchState.AWAIT_VALIDATION

    def take_leader(self, leader: Leader) -> None:
        """The same of a broker that cannot validate (OffsetsForLeaderEpoch below version 3)."""
        if self.position is not None:
            self._become(FetchState.FETCHING, attrs.evolve(self.position, leader=leader))

    def complete_validation(self) -> None:
        if self.position is not None:
            self._become(FetchState.FETCHING, self.position)

    def is_due(self, now_ms: float) -> bool:
        """Whether what it awaits may be asked for (again)."""
        return self.next_retry_ms is None or now_ms >= self.next_retry_ms


@attrs.frozen
class OffsetResetStrategy:
    """Where to begin where nothing says so: a timestamp of ListOffsets, or a span before now."""

    name: str
    timestamp: int | None = None
    before_now_ms: int | None = None

    def __str__(self) -> str:
        return self.name
