"""The values that rules check, one replica's state and the batches of its log, and what they yield.

    disk   [0-4 e0][5-5 e0][6-9 e1]     read once each, as the log grows
    held    0-4 e0  5-5 e0  6-9 e1
    epochs  (0,0)           (1,6)       what the epoch cache should contain

Rule 1: a batch is read once, when it is new. Its last batch shows whether what was read before is
still there: a log changes at its ends only. Compaction is the exception, and compacted logs are
not compared with each other.

Rule 2: bytes are read from the page cache, beside the node: it costs the node no time.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import attrs

from storage.batch.record_batch import NO_TIMESTAMP, BatchHeader, read_header
from storage.batch.records import read_marker
from storage.checkpoint import EpochEntry
from storage.errors import CorruptRecordError
from storage.log.log import Log
from storage.log.segment import file_name
from storage.testing import SimulatedDisk
from storage.testing.disk import FileNode
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition


@attrs.frozen
class Wrong:
    """A rule that does not hold."""

    rule: str
    """The rule: the same text for every way in which it can be broken."""
    what: str


@attrs.define(eq=False)
class InvariantViolatedError(AssertionError):
    """Something that must never happen has happened: a bug of ours, whatever the story."""

    rule: str
    what: str

    def __str__(self) -> str:
        return self.what


class Written(NamedTuple):
    """The producer of a batch, and what the batch says of it (KIP-98)."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    is_transactional: bool
    coordinator_epoch: int | None
    """The epoch of the coordinator whose marker it is; None for records."""
    timestamp: int = NO_TIMESTAMP
    """The latest of its records, by the wall clock of the client or of the coordinator."""


class Batch(NamedTuple):
    """Two are the same records where they are equal."""

    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    crc: int
    written: Written | None = None
    """None where no producer has an id."""


class _Place(NamedTuple):
    """The place of a batch: in the segment of that base, at these bytes."""

    segment: Offset
    start: int
    end: int


_NOWHERE = _Place(-1, 0, 0)


@attrs.frozen(kw_only=True)
class OnlineReplica:
    """One replica that is online, at one moment."""

    node: str
    life: int
    """The number of the node's process; the first is 1."""
    partition: TopicPartition
    topic_id: TopicId
    is_leader: bool
    leader_epoch: LeaderEpoch
    partition_epoch: int
    log_start: Offset
    high_watermark: Offset
    log_end: Offset
    first_segment: Offset = 0
    isr: frozenset[int] = frozenset()
    """The ISR that the replica knows while it leads; empty otherwise."""
    maximal_isr: frozenset[int] = frozenset()
    min_isr: int = 1
    epochs: tuple[EpochEntry, ...] = ()
    emptied: frozenset[EpochEntry] = frozenset()
    """The entries of `epochs` whose records were all in a batch that was cut off
    (`HeldLog.emptied`).
    """

    @property
    def where(self) -> str:
        return f"{self.partition} on {self.node}"


@attrs.define(eq=False)
class Held:
    """The batches of one log, as far as they are known."""

    batches: list[Batch] = attrs.field(factory=list, init=False)
    epochs: list[EpochEntry] = attrs.field(factory=list, init=False)
    agreed: int = attrs.field(default=0, init=False)
    """The number of `batches` that are known to be what was committed (`committed.CommittedLog`).
    """
    dropped: int = attrs.field(default=0, init=False)
    """The number of batches that were cut off again."""
    lost: list[range] = attrs.field(factory=list, init=False)
    """The offsets that a disk that is not trusted has lost."""

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        if not self.epochs or self.epochs[-1].epoch != batch.leader_epoch:
            self.epochs.append(EpochEntry(batch.leader_epoch, batch.base_offset))

    def drop_last(self) -> None:
        batch = self.batches.pop()
        self.dropped += 1
        if self.epochs[-1].start_offset == batch.base_offset:
            self.epochs.pop()
        self.agreed = min(self.agreed, len(self.batches))

    def has_lost(self, batch: Batch) -> bool:
        """Return whether its disk has lost that batch, and the log goes on behind it."""
        goes_on = bool(self.batches) and batch.last_offset < self.batches[-1].base_offset
        return goes_on and any(
            batch.base_offset in each and batch.last_offset in each for each in self.lost
        )


@attrs.define(eq=False)
class HeldLog(Held):
    """The batches of a replica, read from its disk."""

    disk: SimulatedDisk
    log: Log
    _places: list[_Place] = attrs.field(factory=list, init=False)

    def read_on(self) -> None:
        """Drop the batches that were truncated; read the new ones."""
        while self.batches and not self._is_still_there():
            self.drop_last()
            self._places.pop()
        at = self._places[-1] if self._places else _NOWHERE
        for segment in self.log.segments:
            if segment.base_offset >= at.segment:
                start = at.end if segment.base_offset == at.segment else 0
                if start < segment.size:
                    self._read(segment.base_offset, start, segment.size)

    def content_from(self, offset: Offset) -> bytes:
        """Return the bytes of the batch that begins at `offset`."""
        index = bisect_right(self.batches, offset, key=attrgetter("base_offset")) - 1
        place = self._places[index]
        content = self._content(place.segment)
        assert content is not None, "a segment has a file"
        return bytes(content[place.start : place.end])

    def scanned(self) -> list[EpochEntry]:
        """Return where each epoch of its batches begins: where its first batches were, if these were
        cut off, or lost by a disk, and the epoch went on behind them.
        """
        known = {each.epoch: each for each in self.log.leader_epoch_cache.entries}
        return [
            known[each.epoch]
            if each.epoch in known and self._is_hole_up_to(known[each.epoch].start_offset, each)
            else each
            for each in self.epochs
        ]

    def _is_hole_up_to(self, offset: Offset, begun: EpochEntry) -> bool:
        count = bisect_right(self.batches, offset, key=attrgetter("base_offset"))
        return (
            self._is_hole(offset)
            and count < len(self.batches)
            and self.batches[count].base_offset == begun.start_offset
        )

    def emptied(self) -> frozenset[EpochEntry]:
        """Return the epochs without a batch that begin inside the log, where no batch is.

        A truncation inside a batch removes all of it, and its epoch stays known up to there.
        """
        written = {each.epoch for each in self.epochs}
        return frozenset(
            each
            for each in self.log.leader_epoch_cache.entries
            if each.epoch not in written and self._is_hole(each.start_offset)
        )

    def _is_hole(self, offset: Offset) -> bool:
        if not self.log.log_start_offset <= offset < self.log.log_end_offset:
            return False
        count = bisect_right(self.batches, offset, key=attrgetter("base_offset"))
        return count == 0 or self.batches[count - 1].last_offset < offset

    def _is_still_there(self) -> bool:
        last, place = self.batches[-1], self._places[-1]
        if last.last_offset >= self.log.log_end_offset:
            return False
        if last.last_offset < self.log.log_start_offset:
            return True  # let go of at the other end, perhaps with its segment
        content = self._content(place.segment)
        if content is None or len(content) < place.end:
            return False
        try:
            return last == _batch(content, place)
        except CorruptRecordError:
            return False  # another file, of which a batch lies across this place

    def _read(self, segment: Offset, start: int, size: int) -> None:
        content = self._content(segment)
        assert content is not None, "a segment has a file"
        while start < size:
            end = start + read_header(content, start).size
            if end > size:
                return  # the rest of it is being written
            place = _Place(segment, start, end)
            self.add(_batch(content, place))
            self._places.append(place)
            start = end

    def _content(self, segment: Offset) -> bytearray | None:
        node = self.disk.node(f"{self.log.directory}/{file_name(segment, '.log')}")
        return node.content if isinstance(node, FileNode) else None


def _batch(content: bytearray, place: _Place) -> Batch:
    header = read_header(content, place.start)
    written = _written(header, content, place) if header.has_producer else None
    return Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc, written)


def _written(header: BatchHeader, content: bytearray, place: _Place) -> Written | None:
    coordinator_epoch = None
    if header.is_control:
        marker = read_marker(bytes(content[place.start : place.end]))
        if marker is None:
            return None
        coordinator_epoch = marker.coordinator_epoch
    return Written(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.is_transactional,
        coordinator_epoch,
        header.max_timestamp,
    )


def drawn(batches: Sequence[Batch]) -> str:
    """Return the offsets and epochs of batches, for a message."""
    return ", ".join(
        f"{each.base_offset}-{each.last_offset}@e{each.leader_epoch}" for each in batches
    )
