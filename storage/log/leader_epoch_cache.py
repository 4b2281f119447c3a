"""The first offset of each leader epoch, from which follows where two logs diverge.

    log      [e0: 0-4][e2: 5-11][e6: 12-29]     log end offset 30
    entries  0@0  2@5  6@12

    end_offset_for(2) = (2, 12)    where the next epoch begins
    end_offset_for(4) = (2, 12)    4 is unknown: the largest epoch below it answers
    end_offset_for(6) = (6, 30)    the latest epoch ends at the log end
    end_offset_for(7) = (-1, -1)   undefined: nothing here is as new

Rule 1: epochs and start offsets both strictly increase. If a new entry contradicts older ones,
these are removed.

Rule 2: an epoch that begins with a batch is written to the disk before the recovery point passes
that batch: until then recovery reads the batch again, which has its epoch. An epoch that begins
without a batch is flushed by its leader. Truncations may reach the disk later as well: a file with
too many entries is cut to the two ends of the log when it is loaded.

(KIP-101, KIP-279; LeaderEpochFileCache in Kafka.)
"""

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final

import attrs

from storage.attributes import define
from storage.checkpoint import EpochEntry, LeaderEpochCheckpoint
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset, OffsetAndEpoch

UNDEFINED: Final = OffsetAndEpoch(offset=NO_OFFSET, leader_epoch=NO_LEADER_EPOCH)

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


@define(eq=False)
class LeaderEpochCache:
    """One log's epochs, in memory, over `checkpoint` on disk."""

    checkpoint: LeaderEpochCheckpoint
    latest_entry: EpochEntry | None = attrs.field(init=False, default=None)
    _entries: list[EpochEntry] = attrs.field(init=False, factory=list)
    is_being_written: bool = attrs.field(init=False, default=False)
    _dirty: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        for entry in self.checkpoint.read():
            self._assign(entry)

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy, oldest first."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return None if self.latest_entry is None else self.latest_entry.epoch

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note that `epoch` has begun at `start_offset`; only the first batch of an epoch changes anything.

        It is on the disk after `flush`.
        """
        assert epoch >= 0, f"a leader epoch is never negative, not even {epoch}"
        assert start_offset >= 0, f"a start offset is never negative, not even {start_offset}"
        if self._assign(EpochEntry(epoch, start_offset)):
            self._dirty = True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> OffsetAndEpoch:
        """Return the largest epoch up to `epoch` that this log knows, and where it ends here.

        `UNDEFINED` where `epoch` is newer than all of them, or is itself undefined.
        """
        if epoch == NO_LEADER_EPOCH or not self._entries:
            return UNDEFINED
        if epoch == self._entries[-1].epoch:
            return OffsetAndEpoch(offset=log_end_offset, leader_epoch=epoch)
        higher = bisect_right(self._entries, epoch, key=_epoch)
        if higher == len(self._entries):
            return UNDEFINED
        # KIP-279: below every epoch we know, the epoch asked about is as good as empty here.
        floor_epoch = self._entries[higher - 1].epoch if higher else epoch
        return OffsetAndEpoch(offset=self._entries[higher].start_offset, leader_epoch=floor_epoch)

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """Return the leader epoch that `offset` was appended in; None below the first entry."""
        count = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[count - 1].epoch if count else None

    def truncate_from_start(self, offset: Offset) -> None:
        """Forget what lies below `offset`, the new log start: the epoch that holds it starts there."""
        count = bisect_right(self._entries, offset, key=_start_offset)
        if count and self._entries[count - 1].start_offset < offset:
            self._replace(0, count, [EpochEntry(self._entries[count - 1].epoch, offset)])
            self._dirty = True
        elif count > 1:
            self._replace(0, count - 1, [])
            self._dirty = True

    def truncate_from_end(self, offset: Offset) -> None:
        """Forget the epochs that begin at `offset`, the new log end, or later. A negative one
        changes nothing.
        """
        if offset < 0:
            return
        count = bisect_left(self._entries, offset, key=_start_offset)
        if count < len(self._entries):
            self._replace(count, len(self._entries), [])
            self._dirty = True

    def clear(self) -> None:
        """Forget every epoch; on disk after `flush`."""
        self._dirty = self._dirty or bool(self._entries)
        self._replace(0, len(self._entries), [])

    def flush(self) -> None:
        """Write what has changed since the last write; fit for a worker thread."""
        if not self._dirty:
            return
        # Clean from the moment of the copy: what is assigned during the write is not in it.
        self._dirty = False
        self.is_being_written = True
        try:
            self.checkpoint.write(list(self._entries))
        except OSError:
            self._dirty = True
            raise
        finally:
            self.is_being_written = False

    def _assign(self, entry: EpochEntry) -> bool:
        """Put `entry` at the end; return whether that changes anything."""
        latest = self.latest_entry
        if (
            latest is not None
            and entry.epoch == latest.epoch
            and entry.start_offset >= latest.start_offset
        ):
            return False
        keep = len(self._entries)
        while keep and (
            self._entries[keep - 1].epoch >= entry.epoch
            or self._entries[keep - 1].start_offset >= entry.start_offset
        ):
            keep -= 1
        self._replace(keep, len(self._entries), [entry])
        return True

    def _replace(self, start: int, end: int, entries: list[EpochEntry]) -> None:
        self._entries[start:end] = entries
        self.latest_entry = self._entries[-1] if self._entries else None
