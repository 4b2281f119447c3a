"""A log's segments, in order: the last one is active, the others are only read.

[0 ─ 99][100 ─ 257][258 ─ ...        floor(180) is the segment at 100
   0       100       258 active      between(100, 258) is the one at 100, and so on
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from storage.log.segment import Segment
from storage.types import Offset

_base_offset = attrgetter("base_offset")


class Segments:
    active: Segment
    """The last one, to which records are appended; not set as long as there is none."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=_base_offset)
        self._note_active()

    def _note_active(self) -> None:
        if self._segments:
            self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def base_offsets(self) -> list[Offset]:
        return [segment.base_offset for segment in self._segments]

    @property
    def size(self) -> int:
        """The bytes of batches in all of them."""
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: Offset) -> Segment | None:
        """Return the last segment that begins at or before `offset`; None where there is none."""
        if self._segments and offset >= self.active.base_offset:
            return self.active
        index = bisect_right(self._segments, offset, key=_base_offset)
        return self._segments[index - 1] if index else None

    def after(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def starting_with(self, offset: Offset) -> list[Segment]:
        """Return the floor of `offset` and all that follow; all where there is no floor."""
        index = bisect_right(self._segments, offset, key=_base_offset)
        return self._segments[max(0, index - 1) :]

    def between(self, from_offset: Offset, to_offset: Offset) -> list[Segment]:
        """Return the segments that may hold offsets in [from_offset, to_offset)."""
        if from_offset > to_offset:
            raise ValueError(f"from {from_offset} to {to_offset} is backwards")
        if from_offset == to_offset:
            return []
        start = max(0, bisect_right(self._segments, from_offset, key=_base_offset) - 1)
        return self._segments[start : bisect_left(self._segments, to_offset, key=_base_offset)]

    def add(self, segment: Segment) -> None:
        index = bisect_left(self._segments, segment.base_offset, key=_base_offset)
        self._segments.insert(index, segment)
        self._note_active()

    def remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        self._note_active()

    def pop_last(self) -> Segment:
        last = self._segments.pop()
        self._note_active()
        return last
