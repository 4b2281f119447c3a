"""The position of a consumer in one partition, and the four states of it (KIP-320).

    state              a position   fetched   may become
    INITIALIZING       none         no        any other
    FETCHING           yes          yes       any but INITIALIZING
    AWAIT_RESET        none         no        FETCHING, AWAIT_RESET
    AWAIT_VALIDATION   yes          no        any but INITIALIZING

Rule 1: only a partition in FETCHING is fetched. A position whose leader has changed is first
compared with the new leader's log (OffsetsForLeaderEpoch), if both know epochs.

Rule 2: a change that the table does not have is no error: it comes too late, and is ignored.

Rule 3: a partition without a position begins where `auto.offset.reset` says: earliest, latest,
none, or `by_duration:P1DT6H` (KIP-1106).

(Kafka: SubscriptionState.FetchPosition, FetchStates, TopicPartitionState.)
"""

import enum
import re

import attrs

from replication.client.cluster_view import UNKNOWN_LEADER, Leader
from replication.wire import list_offsets
from storage.attributes import define, frozen
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


@frozen
class FetchPosition:
    """The next offset to read, the leader epoch of the record before it, and the leader."""

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


@frozen
class PreferredReadReplica:
    """The replica that the leader named to read from, and until when (KIP-392)."""

    node_id: int
    expires_ms: float


@define(eq=False)
class PartitionState:
    """The state of one partition that is assigned to a consumer."""

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
        """Forget the position; `strategy` finds the next one."""
        if self._become(FetchState.AWAIT_RESET, None):
            self.reset_strategy = strategy

    def seek_validated(self, position: FetchPosition) -> None:
        if self._become(FetchState.FETCHING, position):
            self.reset_strategy = None

    def seek_unvalidated(self, position: FetchPosition) -> None:
        """Move to `position`, and let it be compared with the leader's log if possible."""
        self.seek_validated(position)
        self._validate(position)

    def _validate(self, position: FetchPosition) -> None:
        awaits = position.can_be_validated
        self._become(FetchState.AWAIT_VALIDATION if awaits else FetchState.FETCHING, position)

    def maybe_validate(self, leader: Leader) -> bool:
        """Note the present leader; return whether the position must be validated before it is used."""
        if self.state is FetchState.AWAIT_RESET or leader.node is None:
            return False
        if self.position is not None and self.position.leader != leader:
            self._validate(attrs.evolve(self.position, leader=leader))
            self.preferred = None
        return self.state is FetchState.AWAIT_VALIDATION

    def take_leader(self, leader: Leader) -> None:
        """Note a leader that cannot validate positions (OffsetsForLeaderEpoch below version 3)."""
        if self.position is not None:
            self._become(FetchState.FETCHING, attrs.evolve(self.position, leader=leader))

    def complete_validation(self) -> None:
        if self.position is not None:
            self._become(FetchState.FETCHING, self.position)

    def is_due(self, now_ms: float) -> bool:
        """Return whether the request that it waits for may be sent (again)."""
        return self.next_retry_ms is None or now_ms >= self.next_retry_ms


@frozen
class OffsetResetStrategy:
    """The place to begin without a position: a timestamp of ListOffsets, or a time before now."""

    name: str
    timestamp: int | None = None
    before_now_ms: int | None = None

    def __str__(self) -> str:
        return self.name


EARLIEST = OffsetResetStrategy("earliest", timestamp=list_offsets.EARLIEST)
LATEST = OffsetResetStrategy("latest", timestamp=list_offsets.LATEST)
_BY_DURATION = "by_duration:"

# As java.time.Duration has it: days and a time, of which anything may be left out but all.
_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def parse_strategy(text: str) -> OffsetResetStrategy | None:
    """Return the strategy that `auto.offset.reset` names; None for `none`, ValueError if unknown."""
    match text.lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "none":
            return None
        case named if named.startswith(_BY_DURATION):
            span = _duration_ms(text[len(_BY_DURATION) :])
            return OffsetResetStrategy(text, before_now_ms=span)
        case _:
            raise ValueError(text)


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    parts = found.groups() if found is not None else ()
    if not any(parts):
        raise ValueError(f"{text} is not a duration such as P1DT6H")
    return int(sum(float(part or 0) * unit for part, unit in zip(parts, _UNITS_MS, strict=True)))


def timestamp_of(strategy: OffsetResetStrategy, *, wall_ms: int) -> int:
    """Return the timestamp with which ListOffsets finds the place of `strategy`."""
    if strategy.timestamp is not None:
        return strategy.timestamp
    assert strategy.before_now_ms is not None, "a strategy is one or the other"
    return wall_ms - strategy.before_now_ms
