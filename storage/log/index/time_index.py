"""From a timestamp to the offsets that may carry it, and the largest timestamp of a segment.

An entry is (timestamp i64, offset relative to the segment's base i32): up to and including
this offset no record of the segment is younger than this timestamp. The offset is the last
one of the batch that holds the timestamp.

    timestamps and relative offsets both increase: an append with an older timestamp adds nothing

    lookup(t) = the greatest entry at or below t; the first record at t or later stands
    after it, or is it

(TimeIndex in Kafka.)
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import attrs

from storage.attributes import define
from storage.batch.record_batch import NO_TIMESTAMP
from storage.errors import CorruptIndexError
from storage.log.index.index_file import IndexFile
from storage.types import Offset

ENTRY_SIZE: Final = 12
LAYOUT: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """Up to `offset`, nothing is younger than `timestamp`."""

    timestamp: int
    offset: Offset


@define(eq=False)
class TimeIndex(IndexFile):
    """The `.timeindex` of one segment."""

    layout = LAYOUT

    # (-1, base) where there is none.
    last_entry: TimestampOffset = attrs.field(init=False)

    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that closes the segment."""
        return self.entry_count >= self.max_entries - 1

    @property
    def room(self) -> int:
        """How many entries it takes before it is full."""
        return self.max_entries - 1 - self.entry_count

    def maybe_append(self, timestamp: int, offset: Offset, *, closing: bool = False) -> None:
        """Add an entry if `timestamp` is younger than the last.

        `closing`: take the slot kept for the last entry of a segment.
        """
        if not closing:
            assert not self.is_full, "a segment rolls before its time index is full"
        last = self.last_entry
        if self.entry_count and offset < last.offset:
            raise CorruptIndexError(f"{self.path}: offset {offset} after {last.offset}")
        if self.entry_count and timestamp < last.timestamp:
            raise CorruptIndexError(f"{self.path}: timestamp {timestamp} after {last.timestamp}")
        if timestamp > last.timestamp:
            self._add([(timestamp, offset)])

    def extend(self, entries: Sequence[tuple[int, Offset]]) -> None:
        """Add all of them in one write: each is younger than the one before it, and than the last."""
        if not entries:
            return
        (timestamp, offset), last = entries[0], self.last_entry
        assert timestamp > last.timestamp, "only what is younger is entered"
        if self.entry_count and offset < last.offset:
            raise CorruptIndexError(f"{self.path}: offset {offset} after {last.offset}")
        assert len(entries) <= self.room, "a segment rolls before its time index is full"
        self._add(entries)

    def _add(self, entries: Sequence[tuple[int, Offset]]) -> None:
        base, last = self.base_offset, TimestampOffset(*entries[-1])
        assert self.can_append_offset(last.offset), "a segment rolls before its offsets overflow"
        self._write(b"".join([LAYOUT.pack(at, offset - base) for at, offset in entries]))
        self.last_entry = last

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the greatest entry at or below `timestamp`; (-1, base) where there is none."""
        count = self._count_while(lambda entry: entry[0] <= timestamp)
        return self.entry(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, index: int) -> TimestampOffset:
        timestamp, relative = self._raw_entry(index)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def entries(self) -> Iterator[TimestampOffset]:
        for timestamp, relative in self._raw_entries():
            yield TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at `offset` and after."""
        relative = offset - self.base_offset
        self._keep(self._count_while(lambda entry: entry[1] < relative))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError where the file cannot be a time index of this segment."""
        if self.entry_count:
            last = self.last_entry
            if last.timestamp < self.entry(0).timestamp:
                raise CorruptIndexError(
                    f"{self.path}: its last timestamp {last.timestamp} is before its first"
                )
            if last.offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.path}: its last offset {last.offset} is below its base"
                )
        self._check_length()

    def _find_last(self) -> None:
        count = self.entry_count
        empty = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.last_entry = self.entry(count - 1) if count else empty
