"""The facts of the log that the rules of the quorum use, and where a follower may read in it.

A LogView is a value: the task that owns the log makes one after each change of it.

    [e0: 0-4][e1: 5-7]              end_offset 8, last_epoch 1
    a follower has read to          it gets
    6, last epoch 1                 records from 6 on
    7, last epoch 0                 diverging: epoch 0 ends at 5, so it truncates
    9, last epoch 1                 diverging: epoch 1 ends at 8
    3, below the log's start        the latest snapshot
(Kafka: ReplicatedLog.validateOffsetAndEpoch, ValidOffsetAndEpoch.)
"""

from bisect import bisect_right

from storage.attributes import frozen
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch


@frozen(kw_only=True)
class LogView:
    """The ends of a log. `epochs` says where each leader epoch began, oldest first.

    `flushed_end_offset` is the end of what is synced. The earliest snapshot ends where the log
    starts; both snapshots are None where there are none. The bootstrap snapshot is not one of them.
    """

    end_offset: Offset = 0
    flushed_end_offset: Offset = 0
    start_offset: Offset = 0
    epochs: tuple[EpochEntry, ...] = ()
    earliest_snapshot: OffsetAndEpoch | None = None
    latest_snapshot: OffsetAndEpoch | None = None

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record, or of the snapshot if the log is empty."""
        if self.epochs:
            return self.epochs[-1].epoch
        return self.latest_snapshot.leader_epoch if self.latest_snapshot else 0

    def is_reached_by(self, *, last_epoch: LeaderEpoch, end_offset: Offset) -> bool:
        """Return whether a log that ends like this is at least as long as this one."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)

    def end_of_epoch(self, leader_epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Return the largest epoch here that is not above `leader_epoch`, and where it ends."""
        after = bisect_right(self.epochs, leader_epoch, key=lambda entry: entry.epoch)
        end = self.epochs[after].start_offset if after < len(self.epochs) else self.end_offset
        if after:
            return OffsetAndEpoch(end, self.epochs[after - 1].epoch)
        if self.earliest_snapshot is not None:
            return self.earliest_snapshot
        return OffsetAndEpoch(self.start_offset, 0)


@frozen
class ReadOn:
    """The follower's log is a beginning of this one: it may read on from where it asked."""


@frozen
class Diverging:
    """The follower's log differs: it truncates to where this epoch ends here, if it is longer."""

    end: OffsetAndEpoch


@frozen
class BelowStart:
    """The records that the follower asks for are no longer here: it fetches this snapshot."""

    snapshot: OffsetAndEpoch


Position = ReadOn | Diverging | BelowStart


def position_of(log: LogView, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> Position:
    """Return what a leader with this `log` answers a follower that has read this far."""
    earliest, latest = log.earliest_snapshot, log.latest_snapshot
    if fetch_offset == 0 and latest is not None:
        return BelowStart(latest)  # a snapshot is shorter than the log from its beginning
    if fetch_offset == 0 and log.start_offset == 0 and last_fetched_epoch == 0:
        return ReadOn()
    if (
        earliest is not None
        and latest is not None
        and (
            fetch_offset < log.start_offset
            or (fetch_offset == log.start_offset and last_fetched_epoch != earliest.leader_epoch)
            or last_fetched_epoch < earliest.leader_epoch
        )
    ):
        return BelowStart(latest)
    end = log.end_of_epoch(last_fetched_epoch)
    if end.leader_epoch != last_fetched_epoch or end.offset < fetch_offset:
        return Diverging(end)
    return ReadOn()
