"""From an offset to about where it stands in its segment's file.

An entry is (offset relative to the segment's base i32, position i32), one for every
`index.interval.bytes` or so of log: the largest offset of an append, and where that append
begins.

    .log     [100-104][105-109][110-114][115-119]
    .index   (4 -> 0)          (14 -> 2 * size)          base 100

    lookup(112) = (104, 0): the greatest entry at or below; scan forward from there

(OffsetIndex in Kafka.)
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import attrs

from storage.attributes import define
from storage.errors import CorruptIndexError
from storage.log.index.index_file import MAX_RELATIVE_OFFSET, IndexFile
from storage.types import Offset

ENTRY_SIZE: Final = 8
LAYOUT: Final = struct.Struct(">ii")


class OffsetPosition(NamedTuple):
    """`offset` is in, or before, the batch at byte `position`."""

    offset: Offset
    position: int


@define(eq=False)
class OffsetIndex(IndexFile):
    """The `.index` of one segment."""

    layout = LAYOUT

    # That of the last entry; the base offset where there is none.
    last_offset: Offset = attrs.field(init=False)

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    @property
    def room(self) -> int:
        """The number of entries that it takes before it is full."""
        return self.max_entries - self.entry_count

    def append(self, offset: Offset, position: int) -> None:
        self.extend([(offset, position)])

    def extend(self, entries: Sequence[tuple[Offset, int]]) -> None:
        """Append all of them, whose offsets rise, in one write."""
        (first, _), (last, _) = entries[0], entries[-1]
        base = self.base_offset
        assert 0 <= first - base <= last - base <= MAX_RELATIVE_OFFSET, (
            "a segment rolls before its offsets overflow"
        )
        if first <= self.last_offset and self.entry_count:
            raise CorruptIndexError(
                f"{self.path}: offset {first} after {self.last_offset}, its last"
            )
        self._write(b"".join([LAYOUT.pack(at - base, position) for at, position in entries]))
        self.last_offset = last

    def lookup(self, offset: Offset) -> OffsetPosition:
        """Return the greatest entry at or below `offset`; (base, 0) where there is none."""
        relative = offset - self.base_offset
        if self.entry_count and offset >= self.last_offset:
            return self.entry(self.entry_count - 1)
        count = self._count_while(lambda entry: entry[0] <= relative)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def before(self, offset: Offset) -> Iterator[OffsetPosition]:
        """Yield the entries before the one that `lookup` returns, the last one first."""
        relative = offset - self.base_offset
        for index in range(self._count_while(lambda entry: entry[0] <= relative) - 2, -1, -1):
            yield self.entry(index)

    def first_position_from(self, position: int) -> int | None:
        """Return the first position of an entry that is `position` or behind it; None where there is
        none.
        """
        count = self._count_while(lambda entry: entry[1] < position)
        return self.entry(count).position if count < self.entry_count else None

    def positions_before(self, position: int) -> Iterator[int]:
        """Yield the positions of the entries below `position`, the greatest one first."""
        for index in range(self._count_while(lambda entry: entry[1] < position) - 1, -1, -1):
            yield self.entry(index).position

    def entry(self, index: int) -> OffsetPosition:
        relative, position = self._raw_entry(index)
        return OffsetPosition(self.base_offset + relative, position)

    def entries(self) -> Iterator[OffsetPosition]:
        for relative, position in self._raw_entries():
            yield OffsetPosition(self.base_offset + relative, position)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries at `offset` and after."""
        relative = offset - self.base_offset
        self._keep(self._count_while(lambda entry: entry[0] < relative))

    def sanity_check(self) -> None:
        """Raise CorruptIndexError where the file cannot be an index of this segment."""
        if self.entry_count and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: its last offset {self.last_offset} is below its base"
            )
        self._check_length()

    def _find_last(self) -> None:
        count = self.entry_count
        self.last_offset = self.entry(count - 1).offset if count else self.base_offset
