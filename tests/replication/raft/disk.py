"""A node's log as naive as it can be, and a disk that may lose what was not synced.

A log is a tuple of entries. A snapshot is a prefix of it: the entries before `start` are in the
snapshot only, so the log keeps them all and serves those from `start` on.

    entries   [e1: 0-4][e3: 5-7]     end = 8, last epoch = 3
    start                ^ 5         a fetch at 4 is answered with the snapshot (5, 1)

A disk keeps every version that was written since the last sync: a kill leaves any one of them.
"""

from random import Random
from typing import Generic, TypeVar

import attrs

from replication.raft.rules.log_view import LogView
from replication.raft.rules.voters import VoterSetHistory
from replication.wire.control_records import KRaftVersionRecord, VotersRecord
from storage.checkpoint import EpochEntry
from storage.types import OffsetAndEpoch

Version = TypeVar("Version")
Record = TypeVar("Record", KRaftVersionRecord, VotersRecord)


@attrs.frozen
class Entry:
    """One record of the metadata log: a client's number, or a control record."""

    epoch: int
    value: object


@attrs.frozen
class NaiveLog:
    """The entries of a node, from offset 0 on, and where its log begins."""

    entries: tuple[Entry, ...] = ()
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else 0

    def view(self, flushed_end: int) -> LogView:
        """Return what the rules see of it: epochs and snapshots as numbers."""
        snapshot = self.snapshot if self.start else None
        epochs: list[EpochEntry] = []
        for offset, entry in enumerate(self.entries[self.start :], self.start):
            if not epochs or entry.epoch > epochs[-1].epoch:
                epochs.append(EpochEntry(entry.epoch, offset))
        return LogView(
            end_offset=self.end,
            flushed_end_offset=flushed_end,
            start_offset=self.start,
            epochs=tuple(epochs),
            earliest_snapshot=snapshot,
            latest_snapshot=snapshot,
        )

    @property
    def snapshot(self) -> OffsetAndEpoch:
        """The end of the snapshot, and the epoch of its last entry."""
        return OffsetAndEpoch(self.start, self.entries[self.start - 1].epoch)

    def history(self, before: VoterSetHistory) -> VoterSetHistory:
        """Return the voters that this log names, of which `before` knows those in no log."""
        snapshot, found = NaiveLog(self.entries[: self.start]), before
        for record in (snapshot.newest(KRaftVersionRecord), snapshot.newest(VotersRecord)):
            if record is not None:
                found = found.after(record, self.start - 1)
        for offset, entry in enumerate(self.entries[self.start :], self.start):
            if isinstance(entry.value, KRaftVersionRecord | VotersRecord):
                found = found.after(entry.value, offset)
        return found

    def newest(self, kind: type[Record]) -> Record | None:
        """Return the last record of this kind, None if there is none."""
        return next((e.value for e in reversed(self.entries) if isinstance(e.value, kind)), None)

    def with_entries(self, *entries: Entry) -> "NaiveLog":
        return attrs.evolve(self, entries=self.entries + entries)

    def truncated(self, end: int) -> "NaiveLog":
        return attrs.evolve(self, entries=self.entries[:end])


@attrs.define
class UnsyncedDisk(Generic[Version]):
    """The versions of one file that a kill may leave behind; the last one is what is read."""

    versions: list[Version]
    _dropped: int = 0

    @property
    def read(self) -> Version:
        return self.versions[-1]

    def write(self, version: Version) -> None:
        self.versions.append(version)

    @property
    def written(self) -> int:
        """The number of the version that a sync which begins now will save."""
        return self._dropped + len(self.versions) - 1

    def synced(self, written: int) -> None:
        """Forget the versions before this number: no kill brings them back."""
        count = max(written - self._dropped, 0)
        del self.versions[:count]
        self._dropped += count

    def lose(self, chance: Random) -> None:
        """Leave one of the versions, as a kill or a power cut does."""
        self.versions = [chance.choice(self.versions)]


def flushed_end(disk: UnsyncedDisk[NaiveLog]) -> int:
    """Return the end of what every version of a log has."""
    entries = disk.read.entries
    for version in disk.versions[:-1]:
        shared = min(len(version.entries), len(entries))
        if version.entries[:shared] == entries[:shared]:
            entries = entries[:shared]
        else:
            pairs = enumerate(zip(version.entries, entries, strict=False))
            entries = entries[: next(offset for offset, (one, other) in pairs if one != other)]
    return len(entries)
