"""One stretch of a log: a `.log` file of batches, and the two indexes that lead into it.

    00000000000000000100.log         batches, base offset 100, end to end
    00000000000000000100.index       offset -> position      one entry every
    00000000000000000100.timeindex   timestamp -> offset     index.interval.bytes or so
    00000000000000000100.txnindex    what was aborted, where something was

    append(last_offset 109)      [100-104][105-109]       size = where the next one goes
    locate(107)                  position of [105-109]    index floor, then header by header

Rule 1: an index entry is written after the bytes that it points at, and never for the
first append of a segment. Indexes only shorten a walk; the batches are the truth.

Rule 2: nothing but headers is ever read here. What a reader gets is a `FileRegion`.

Rule 3: files are opened when first needed, and `storage.log.open_segments` has them closed again.
An idle partition costs no index, and ten thousand of them no descriptors.

Rule 4: an index is not trusted, since its file may rot while it is open. Where an entry leads to no
batch, or past the offset, the entries before it are asked. A timestamp counts if the batch at its
offset has it; only which segment to search for one is not checked, as that would read all of them.
(Kafka skips records then, shows aborted ones, and deletes a segment too early.)

Index files are preallocated (sparse) while the segment is active, and so is the `.log` where
the topic asks for it (`preallocate`); both are trimmed when it is closed or rolled. A crash
leaves the zeroes, which are no batches, and recovery cuts them off.

This file is long because a segment is one file and three indexes that change together.
(LogSegment, LazyIndex in Kafka.)
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import attrs

from storage.attributes import define, frozen
from storage.batch.record_batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    leading_empty,
    read_header,
)
from storage.errors import CorruptRecordError
from storage.filesystem import FileSystem
from storage.log.file_region import FileRegion, Pins
from storage.log.index.index_file import MAX_RELATIVE_OFFSET, IndexFile
from storage.log.index.offset_index import OffsetIndex
from storage.log.index.time_index import TimeIndex, TimestampOffset
from storage.log.index.transaction_index import TransactionIndex
from storage.log.open_segments import OpenSegments
from storage.types import NO_OFFSET, Buffer, Offset

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
# What a segment that is to replace others is called until it has: being written, and whole.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

# How much is read at a time while walking headers: an index interval of small batches.
_WINDOW = 4096 + HEADER_SIZE
_EMPTY_WINDOW = 1000 * HEADER_SIZE
# More than so many bytes are never left without an index entry, whatever `index.interval.bytes`
# says: event loops walk the headers between two entries. (Kafka's requests walk in threads.)
MAX_INDEX_INTERVAL = 64 * 1024
# The last appends are what followers ask for next; they are found without reading, in a sixth of
# the time.
_REMEMBERED_APPENDS = 64


_Index = TypeVar("_Index", bound=IndexFile)


def file_name(base_offset: Offset, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


@frozen
class LogOffsetMetadata:
    """An offset, and where in the log it is: the segment, and the byte in its file."""

    offset: Offset
    segment_base_offset: Offset = NO_OFFSET
    position: int = -1


class LocatedBatch(NamedTuple):
    base_offset: Offset
    position: int
    size: int
    last_offset_delta: int
    record_count: int

    def may_lack(self, offset: Offset) -> bool:
        """Return whether compaction may have left no record in it at `offset` or after."""
        return self.record_count <= (self.last_offset_delta if offset > self.base_offset else 0)


_new = tuple.__new__  # for each append: `LocatedBatch` would be called through a function


def _located(position: int, header: BatchHeader) -> LocatedBatch:
    size = header.length + LENGTH_OVERHEAD
    located = header.base_offset, position, size, header.last_offset_delta, header.record_count
    return _new(LocatedBatch, located)


class SegmentRead(NamedTuple):
    """`size` bytes of a segment, from its batch `first` on."""

    size: int
    first: LocatedBatch


def _bounded_interval(index_interval_bytes: int) -> int:
    return min(index_interval_bytes, MAX_INDEX_INTERVAL)


# Without hooks: with them, each attribute that an append sets would take four calls.
@define(eq=False, kw_only=True, on_setattr=attrs.setters.NO_OP)
class Segment:
    file_system: FileSystem
    directory: str
    base_offset: Offset
    max_index_bytes: int
    index_interval_bytes: int = attrs.field(converter=_bounded_interval)
    # The end of each of its names while it is not part of the log yet, or not any more.
    name_suffix: str = ""
    # When it was made, for rolling segments whose records carry no time. None: not known yet.
    created_ms: int | None = None
    size: int = 0
    _max_timestamp: TimestampOffset | None = None
    _pins: Pins | None = None
    _offset_index: OffsetIndex | None = None
    _time_index: TimeIndex | None = None
    _transaction_index: TransactionIndex | None = None
    _indexes_have_room: bool = False
    _bytes_since_index_entry: int = 0
    _first_batch_timestamp: int | None = None
    _end_offset: Offset | None = None
    # Appended to or cut since its time index got its closing entry.
    _is_open_ended: bool = False
    # The file is longer than its batches: zeroes, to be trimmed.
    _preallocated: bool = False
    # Noted there when a file is opened; None while it is being loaded or written by a worker.
    open_segments: OpenSegments | None = None
    _recent: dict[Offset, LocatedBatch] = attrs.field(factory=dict)

    @classmethod
    def create(
        cls,
        file_system: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        max_index_bytes: int,
        index_interval_bytes: int,
        wall_ms: int | None = None,
        preallocate_bytes: int = 0,
        name_suffix: str = "",
    ) -> "Segment":
        """Make a new, empty segment. Files of that base that are there are leftovers, and go."""
        segment = cls(
            file_system=file_system,
            directory=directory,
            base_offset=base_offset,
            max_index_bytes=max_index_bytes,
            index_interval_bytes=index_interval_bytes,
            name_suffix=name_suffix,
            created_ms=wall_ms,
            max_timestamp=TimestampOffset(NO_TIMESTAMP, base_offset),
            preallocated=preallocate_bytes > 0,
            is_open_ended=True,
        )
        for suffix in SEGMENT_SUFFIXES:
            file_system.remove(segment.path(suffix))
        file = file_system.open(segment.path(LOG_SUFFIX), create=True)
        try:
            if preallocate_bytes:
                file.allocate(preallocate_bytes)
        finally:
            file.close()
        return segment

    @classmethod
    def load(
        cls,
        file_system: FileSystem,
        directory: str,
        base_offset: Offset,
        *,
        max_index_bytes: int,
        index_interval_bytes: int,
    ) -> "Segment":
        """Load the segment that is there, as it is: `recovery` decides whether to believe it."""
        segment = cls(
            file_system=file_system,
            directory=directory,
            base_offset=base_offset,
            max_index_bytes=max_index_bytes,
            index_interval_bytes=index_interval_bytes,
        )
        segment.size = segment.pins.file.size()
        segment.created_ms = file_system.modified_ms(segment.path(LOG_SUFFIX))
        return segment

    # Files, opened when first needed.

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self.name_suffix}"

    @property
    def pins(self) -> Pins:
        if self._pins is None:
            self._pins = Pins(self.file_system.open(self.path(LOG_SUFFIX)))
            self._note_open()
        return self._pins

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._offset_index = self._open_index(OffsetIndex, INDEX_SUFFIX)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._time_index = self._open_index(TimeIndex, TIME_INDEX_SUFFIX)
        return self._time_index

    def _open_index(self, kind: type[_Index], suffix: str) -> _Index:
        index = kind.open(
            self.file_system,
            self.path(suffix),
            base_offset=self.base_offset,
            max_size=self.max_index_bytes,
        )
        self._note_open()
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex.open(
                self.file_system, self.path(TRANSACTION_INDEX_SUFFIX)
            )
            self._note_open()
        return self._transaction_index

    def _note_open(self) -> None:
        if self.open_segments is not None:
            self.open_segments.note(self)

    def release(self) -> bool:
        """Close all files until they are needed again; False, and they stay, while pinned."""
        if self._pins is not None and len(self._pins):
            return False
        try:
            # The room that is not used yet would count as entries when they are opened again.
            self.trim_indexes()
        except OSError:
            return False  # the caller is at work on another log: this one will find out itself
        self.release_indexes()
        if self._pins is not None:
            self._pins.close()
            self._pins = None
        return True

    # Appending.

    @property
    def indexes_full(self) -> bool:
        offsets, times = self._offset_index, self._time_index
        if not self._indexes_have_room or offsets is None or times is None:
            if self.size == 0 and offsets is None:
                return False
            self._make_room_in_indexes()
            offsets, times = self.offset_index, self.time_index
        return offsets.is_full or times.is_full

    def holds_offset(self, offset: Offset) -> bool:
        """Return whether `offset` can be written relative to the base."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def open_for_append(self, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Open what `append` will write to, so that no shortage interrupts it; `indexes_full` has
        been asked before, and has opened the indexes unless the segment is empty.
        """
        assert self.pins.file is not None, "it is open now"
        before_the_last = batches[-1][0] - batches[0][0]
        if self.size == 0 and before_the_last > self.index_interval_bytes:
            self._make_room_in_indexes()
        for _, header in batches:
            if header.is_control:
                assert self.transaction_index is not None, "it is open now, where it exists"
                return

    def open_files(self) -> None:
        """Open what `truncate_to` will change, so that no shortage interrupts it."""
        files = self.pins, self.offset_index, self.time_index, self.transaction_index
        assert None not in files, "they are open now"

    def append(self, records: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Put `records` at the end: one write of the very buffer given.

        `batches` are those in it, in order; only the differences of their positions count.
        """
        (start, first), (_, last) = batches[0], batches[-1]
        last_offset = last.base_offset + last.last_offset_delta
        relative = last_offset - self.base_offset
        assert 0 <= relative <= MAX_RELATIVE_OFFSET, "a segment rolls before its offsets overflow"
        position = self.size
        self._is_open_ended = True
        self.pins.file.write(position, records)
        self.size = position + len(records)
        self._end_offset = last_offset + 1
        self._remember(first.base_offset, _located(position, first))
        # Each batch by itself, however many came at once: a follower's log is found in as fast
        # as its leader's, and DumpLogSegments takes an entry for the batch that it points at.
        if len(batches) == 1:
            self.reindex(position, first)
        else:
            self._index_all(batches, moved_by=position - start)

    def _index_all(self, batches: Sequence[tuple[int, BatchHeader]], *, moved_by: int) -> None:
        """Do what `reindex` of each batch would do, with one write to each index.

        So a follower that catches up appends batches of 16 KiB in four fifths of the time.
        """
        offsets: list[tuple[Offset, int]] = []
        times: list[tuple[int, Offset]] = []
        most_offsets = most_times = latest = 0
        behind, interval = self._bytes_since_index_entry, self.index_interval_bytes
        before_the_last = batches[-1][0] - batches[0][0]
        if behind + before_the_last > interval and not self.indexes_full:
            most_offsets, most_times = self.offset_index.room, self.time_index.room
            latest = self.time_index.last_entry.timestamp
        youngest, its_offset = self.max_timestamp
        for at, header in batches:
            if header.max_timestamp > youngest:
                youngest, its_offset = header.max_timestamp, header.last_offset
            if behind > interval:
                behind = 0
                if len(offsets) < most_offsets and len(times) < most_times:
                    offsets.append((header.last_offset, at + moved_by))
                    if youngest > latest:
                        latest = youngest
                        times.append((youngest, its_offset))
            behind += header.size
        self._max_timestamp = TimestampOffset(youngest, its_offset)
        self._bytes_since_index_entry = behind
        if offsets:
            self.offset_index.extend(offsets)
            self.time_index.extend(times)

    def reindex(self, position: int, header: BatchHeader) -> None:
        """Index the batch at `position`: it was just appended, or recovery found it."""
        youngest = self.max_timestamp
        if header.max_timestamp > youngest.timestamp:
            youngest = TimestampOffset(header.max_timestamp, header.last_offset)
            self._max_timestamp = youngest
        if self._bytes_since_index_entry > self.index_interval_bytes:
            # Between appends a full index rolls the segment; within one it stays as it is.
            if not self.indexes_full:
                self.offset_index.append(header.last_offset, position)
                self.time_index.maybe_append(*youngest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += header.size

    def fill_indexes(
        self,
        offsets: bytearray,
        times: bytearray,
        *,
        max_timestamp: TimestampOffset,
        bytes_since_index_entry: int,
    ) -> None:
        """Fill indexes that were reset with what `reindex` of every batch would have put there."""
        self.offset_index.fill(offsets)
        self.time_index.fill(times)
        self._max_timestamp = max_timestamp
        self._bytes_since_index_entry = bytes_since_index_entry

    def _make_room_in_indexes(self) -> None:
        if not self._indexes_have_room:
            self.offset_index.resize(self.max_index_bytes)
            self.time_index.resize(self.max_index_bytes)
            self._indexes_have_room = True

    def _remember(self, offset: Offset, batch: LocatedBatch) -> None:
        recent = self._recent
        recent[offset] = batch
        if len(recent) > 2 * _REMEMBERED_APPENDS:  # seldom, so that an append costs no more for it
            self._recent = dict(list(recent.items())[-_REMEMBERED_APPENDS:])

    # Reading.

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield every whole batch from `position` on. Raise CorruptRecordError where no batch
        begins.
        """
        file = self.pins.file
        while position + HEADER_SIZE <= self.size:
            # A preallocated file is longer, and zeroes are no header.
            start, window = position, file.read(position, min(_WINDOW, self.size - position))
            if len(window) < HEADER_SIZE:
                raise CorruptRecordError(f"{file.path} was cut to {file.size()} bytes by others")
            while position - start + HEADER_SIZE <= len(window):
                try:
                    header = read_header(window, position - start)
                except CorruptRecordError as error:
                    raise CorruptRecordError(f"{file.path}, byte {position}: {error}") from error
                if position + header.size > self.size:
                    return
                yield position, header
                position += header.size

    def locate(self, offset: Offset) -> LocatedBatch | None:
        """Return the first batch that ends at `offset` or later; None past the last."""
        if self.size == 0:
            return None
        if offset in self._recent:
            return self._recent[offset]
        for position, header in self.headers(self.start_before(offset)):
            if header.last_offset >= offset:
                located = _located(position, header)
                if header.base_offset == offset:
                    self._remember(offset, located)
                return located
        return None

    def start_before(self, offset: Offset) -> int:
        """Return a byte at which a batch begins that does not begin past `offset`; 0 for the first.

        It is what the index has, unless that has rotted (rule 4).
        """
        start = self.offset_index.lookup(offset).position
        if start == 0 or self._begins_before(start, offset):
            return start
        others = (entry.position for entry in self.offset_index.before(offset))
        return next((each for each in others if self._begins_before(each, offset)), 0)

    def start_before_byte(self, position: int) -> int:
        """Return a byte at which a batch begins, before `position`; 0 for the first."""
        known = self.offset_index.positions_before(position)
        return next((each for each in known if each < position and self._header_at(each)), 0)

    def _begins_before(self, position: int, offset: Offset) -> bool:
        """Return whether a batch begins at that byte, and not past `offset`."""
        header = self._header_at(position)
        return header is not None and header.base_offset <= offset

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that begins there; None where none does."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return None
        try:
            return read_header(self.pins.file.read(position, HEADER_SIZE), 0)
        except CorruptRecordError:
            return None

    def read(
        self, start_offset: Offset, max_bytes: int, *, max_position: int, min_one: bool
    ) -> SegmentRead | None:
        """Return where the bytes for a read at `start_offset` lie; None past the last batch."""
        located = self.locate(start_offset)
        if located is None:
            return None
        wanted = located.size if min_one and max_bytes < located.size else max_bytes
        return SegmentRead(max(0, min(wanted, max_position - located.position)), located)

    def end_of_empty(self, position: int, limit: int) -> int:
        """Return where the empty batches that follow one another from `position` end, at `limit` or
        before.
        """
        while position + HEADER_SIZE <= limit:
            window = self.pins.file.read(position, min(_EMPTY_WINDOW, limit - position))
            empty = leading_empty(window)
            position += empty * HEADER_SIZE
            if not empty or empty < len(window) // HEADER_SIZE:
                break
        return position

    def upper_bound(self, position: int) -> Offset | None:
        """Return an offset above all that lie before `position`; None where only the end is known."""
        behind = self.offset_index.first_position_from(position) if self.size else None
        header = None if behind is None or behind < position else self._header_at(behind)
        return None if header is None else header.base_offset

    def start_before_time(self, timestamp: int) -> Offset:
        """Return an offset whose batch has the first record of `timestamp` or younger, or is before it."""
        known = self.time_index.lookup(timestamp)
        return known.offset if self._carries(known) else self.base_offset

    def _carries(self, entry: TimestampOffset) -> bool:
        """Return whether the batch at the offset of `entry` has its timestamp (rule 4)."""
        located = self.locate(entry.offset)
        header = None if located is None else self._header_at(located.position)
        return header is not None and header.max_timestamp == entry.timestamp

    def region(self, position: int, size: int) -> FileRegion:
        return self.pins.pin(position, size)

    @property
    def first_batch_timestamp(self) -> int | None:
        """The largest timestamp of its first batch; None while it is empty."""
        if self._first_batch_timestamp is None:
            for _, header in self.headers():
                self._first_batch_timestamp = header.max_timestamp
                break
        return self._first_batch_timestamp

    def waited_for_roll_ms(self, *, wall_ms: int | None, max_timestamp: int) -> int:
        """Return how long it has been filling, by the times of its records if they have any."""
        first = self._first_batch_timestamp
        if first is None:
            first = self.first_batch_timestamp
        if first is not None and first >= 0:
            return max_timestamp - first
        if wall_ms is None or self.created_ms is None:
            self.created_ms = wall_ms if self.created_ms is None else self.created_ms
            return 0
        return wall_ms - self.created_ms

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it."""
        if self._max_timestamp is None:
            self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
            if self.size:
                self._max_timestamp = self._last_timestamp_on_disk()
        return self._max_timestamp

    def newest_ms(self) -> int:
        """Return the time of its youngest record; that of its last write, where no record has one.

        Segments are deleted by it, so a batch has to say so, too (rule 4).
        """
        youngest = self.max_timestamp
        if youngest.timestamp != NO_TIMESTAMP and not self._carries(youngest):
            youngest = self._max_timestamp = self._youngest_of(self._late_entry())
        timestamp = youngest.timestamp
        return timestamp if timestamp >= 0 else self.file_system.modified_ms(self.path(LOG_SUFFIX))

    def _last_timestamp_on_disk(self) -> TimestampOffset:
        largest = self.time_index.last_entry
        if not self._is_open_ended and (
            self.time_index.entry_count or self.first_batch_timestamp == NO_TIMESTAMP
        ):
            return largest  # the closing entry, or none where no record carries a time
        return self._youngest_of(largest)

    def _late_entry(self) -> TimestampOffset:
        """Return an entry of the time index, before its last one, that its batch agrees with; the
        segment's beginning where there is none.

        The steps back double, so that few are asked although many in a row have rotted.
        """
        back = 2
        while back <= self.time_index.entry_count:
            entry = self.time_index.entry(self.time_index.entry_count - back)
            if self._carries(entry):
                return entry
            back *= 2
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def _youngest_of(self, largest: TimestampOffset) -> TimestampOffset:
        """Return `largest`, or what is younger in its batch or behind."""
        for _, header in self.headers(self.start_before(largest.offset)):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    # Ends.

    @property
    def end_offset(self) -> Offset:
        """The offset after its last batch; the base where there is none."""
        if self._end_offset is None:
            self._end_offset = self.base_offset
            if self.size:
                for _, header in self.headers(self.start_before(self.offset_index.last_offset)):
                    self._end_offset = header.next_offset
        return self._end_offset

    def end_before(self, batch: LocatedBatch) -> Offset:
        """Return where the log would end if `batch` and all behind it were cut off."""
        end = self.base_offset
        start = self.start_before(batch.base_offset - 1)
        for position, header in self.headers(start):  # pragma: no branch - `batch` is one of them
            if position >= batch.position:
                break
            end = header.next_offset
        return end

    def truncate_to(self, offset: Offset, *, wall_ms: int | None = None) -> int:
        """Cut before the first batch that ends at `offset` or later; return how many bytes went."""
        located = self.locate(offset)
        if self.size == 0:
            self.created_ms = wall_ms
        if located is None:
            return 0
        removed = self.size - located.position
        self.cut(located.position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._indexes_have_room = False
        self._make_room_in_indexes()
        self._bytes_since_index_entry = 0
        self._max_timestamp = None
        if self.size == 0:
            self.created_ms = wall_ms
        return removed

    def abort_regions(self) -> None:
        """Abort all that is on its way from here: the segment leaves the log's end."""
        if self._pins is not None:
            self._pins.abort_beyond(0)

    def cut(self, size: int) -> None:
        """Cut the file alone to `size`, and abort what is on its way from beyond that."""
        self.pins.abort_beyond(size)
        self.pins.file.truncate(size)
        self.size = size
        self._preallocated = False
        self._is_open_ended = True
        self._recent.clear()
        self._first_batch_timestamp = None
        self._end_offset = None

    def become_inactive(self, *, closing: bool = False) -> bool:
        """Give the time index its closing entry, and give up the spare room of all files.

        Where the log is `closing`, even an empty segment has indexes, as Kafka expects of it.
        Return whether there was anything to do: a segment that was closed and not written to is as
        it was.
        """
        if not self._is_open_ended:
            return False
        if self._preallocated:
            self.pins.file.truncate(self.size)
            self._preallocated = False
        if self._time_index is None and self.size == 0 and not closing:
            return False
        self._make_room_in_indexes()
        self.time_index.maybe_append(*self.max_timestamp, closing=True)
        self.trim_indexes()
        self._is_open_ended = False
        return True

    def trim_indexes(self) -> None:
        self._indexes_have_room = False
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.trim()

    def reset_indexes(self) -> None:
        """Empty the indexes, to be filled by `reindex`."""
        self.offset_index.reset(max_size=self.max_index_bytes)
        self.time_index.reset(max_size=self.max_index_bytes)
        self.transaction_index.reset()
        self._is_open_ended = True
        self._indexes_have_room = True
        self._bytes_since_index_entry = 0
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def close(self) -> None:
        """Release the files as they are: what a crash does, too."""
        if self.open_segments is not None:
            self.open_segments.forget(self)
        if self._pins is not None:
            self._pins.close()
        self._close_indexes()

    def release_indexes(self) -> None:
        """Close them until they are needed again."""
        self._close_indexes()
        self._offset_index = self._time_index = self._transaction_index = None

    def _close_indexes(self) -> None:
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.close()

    def delete(self) -> list[str]:
        """Rename its files out of the way, and return all names that they have or may get.

        An index that is made after this gets such a name, too: the name without the suffix may
        be that of another segment by then. Regions that are being sent stay readable: they hold
        the file, not its name.
        """
        if not self.name_suffix.endswith(DELETED_SUFFIX):
            for suffix in SEGMENT_SUFFIXES:
                path = self.path(suffix)
                if self.file_system.exists(path):
                    self.file_system.rename(path, path + DELETED_SUFFIX)
            self.name_suffix += DELETED_SUFFIX
        self.close()
        self.release_indexes()
        return [self.path(suffix) for suffix in SEGMENT_SUFFIXES]
