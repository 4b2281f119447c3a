"""The rules of truncation: where two logs diverge, and how far a follower truncates (KIP-101, KIP-279, KIP-320, KIP-595).

Two logs that hold the same epochs, each beginning and ending at the same offsets, hold
the same records: an epoch has one leader, and a leader never writes an offset twice. So a
follower need not compare records. It names its last epoch; the leader says where that
epoch, or the greatest older one it knows, ends in its own log.

    leader      [e0: 0-4][e2: 5-11][e6: 12-29]
    follower    [e0: 0-6][e3: 7-9][e4: 10-13]

    follower names        leader answers    follower's own          truncates to
    e4, fetching at 14    e2 ends at 12     e0, before e2, ends 7   7, and asks again
    e0, fetching at 7     e0 ends at 5      e0 ends at 7            5
    e0, fetching at 5     records from 5

Rule 1: the answer may name an epoch that the follower never saw (KIP-279). The logs then
diverge at or before the end of the follower's next older epoch; it truncates there and asks
again with what is left. Each round leaves it one epoch less, so the rounds end.

Rule 2: a follower never truncates to an offset above its own log end.

Rule 3: an offset is exclusive wherever it is an end; -1 stands for one that is not known.

If a fetch offset lies outside the leader's log, the log's two ends decide (`reset_offset`),
and the next fetch compares leader epochs again.
"""

import enum
from collections.abc import Callable

from storage.attributes import frozen
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, OffsetAndEpoch

EpochLookup = Callable[[LeaderEpoch], OffsetAndEpoch]
"""Returns where an epoch ends in a log (LeaderEpochCache.end_offset_for); -1, -1 if unknown."""


@frozen
class OffsetTruncationState:
    """The offset to truncate to, and whether the logs then agree for certain (Kafka's class)."""

    offset: Offset
    completed: bool


def truncation_offset(
    *, leader: OffsetAndEpoch, fetch_offset: Offset, log_end: Offset, local_end: EpochLookup
) -> OffsetTruncationState:
    """Return how far to truncate, given the leader's answer (getOffsetTruncationState)."""
    if leader.offset == NO_OFFSET:
        # The leader knows no epoch to compare by: fall back on where we began, the high watermark.
        return OffsetTruncationState(fetch_offset, completed=True)
    if leader.leader_epoch == NO_LEADER_EPOCH:
        # A leader of before KIP-279 answers for the epoch we named, and does not say so.
        return OffsetTruncationState(min(leader.offset, log_end), completed=True)
    local = local_end(leader.leader_epoch)
    if local.offset == NO_OFFSET:
        # Every epoch we hold is older than the one the leader names.
        return OffsetTruncationState(min(leader.offset, log_end), completed=True)
    if local.leader_epoch != leader.leader_epoch:
        return OffsetTruncationState(min(local.offset, log_end), completed=False)
    return OffsetTruncationState(min(local.offset, leader.offset, log_end), completed=True)


class Reset(enum.Enum):
    """The fate of a log whose end lies outside the leader's."""

    TRUNCATE = "truncate"
    KEEP = "keep"
    START_OVER = "start over"
    ASK_EPOCHS = "ask where epochs end"


@frozen(kw_only=True)
class OffsetReset:
    """The decision about a log that is out of range: its fate, and the next fetch offset."""

    reset: Reset
    fetch_offset: Offset
    lag: int


def reset_above_leader(*, leader_end: Offset, local_end: Offset) -> OffsetReset | None:
    """Return the reset of a log that is longer than the leader's, as after an unclean election.

    Return None if it is not longer: then the leader's log start decides (`reset_offset`).
    """
    if leader_end >= local_end:
        return None
    return OffsetReset(reset=Reset.TRUNCATE, fetch_offset=leader_end, lag=0)


def reset_offset(*, leader_start: Offset, leader_end: Offset, local_end: Offset) -> OffsetReset:
    """Return the reset of a log that is not longer than the leader's.

    The log is kept even if it ends exactly where the leader's begins: the next response moves
    its log start to the leader's.
    """
    assert local_end <= leader_end, "a longer log is truncated to the leader's end first"
    fetch_offset = max(leader_start, local_end)
    return OffsetReset(
        reset=Reset.START_OVER if leader_start > local_end else Reset.KEEP,
        fetch_offset=fetch_offset,
        lag=max(0, leader_end - fetch_offset),
    )


def reset_as_consumer(*, leader_start: Offset, local_end: Offset) -> OffsetReset:
    """Return the reset for a fetcher that learns the leader's high watermark, not its log end.

    The high watermark may be below the local log end although nothing was lost: a new leader
    learns it only from its followers. So if the local log reaches the leader's log start,
    leader epochs have to decide whether anything must be truncated.
    """
    starts_over = leader_start > local_end
    return OffsetReset(
        reset=Reset.START_OVER if starts_over else Reset.ASK_EPOCHS,
        fetch_offset=max(leader_start, local_end),
        lag=0,
    )
