"""Which segments of a log become one when it is cleaned.

    sizes       40  10  10 │ 60  30 │ 95 │ 20  20        most: 100
    groups     [   one    ] [  two ] [3 ] [ four ]

Rule 1: a group holds neighbours, and what it could come to at most fits one segment: bytes,
either index, and offsets relative to its base. So a group never needs a second file.

Rule 2: what compaction has shrunk is grouped again in the next round: small segments do not
stay small. (Cleaner.groupSegmentsBySize in Kafka.)
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.types import Offset


class GroupedSegment(Protocol):
    @property
    def base_offset(self) -> Offset: ...

    @property
    def next_base_offset(self) -> Offset:
        """The base of the segment after it."""

    @property
    def size(self) -> int: ...

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The sizes of the entries of its offset index, and of its time index."""


Grouped = TypeVar("Grouped", bound=GroupedSegment)


def group(
    segments: Iterable[Grouped], *, segment_bytes: int, index_bytes: int
) -> list[list[Grouped]]:
    """Return `segments`, oldest first, in groups of neighbours that each fit one segment."""
    groups: list[list[Grouped]] = []
    sizes = (0, 0, 0)
    most = (segment_bytes, index_bytes, index_bytes)
    for segment in segments:
        own = (segment.size, *segment.index_bytes)
        together = tuple(one + other for one, other in zip(sizes, own, strict=True))
        if (
            groups
            and all(one <= other for one, other in zip(together, most, strict=True))
            and _holds(groups[-1][0], segment)
        ):
            groups[-1].append(segment)
            sizes = (together[0], together[1], together[2])
        else:
            groups.append([segment])
            sizes = own
    return groups


def _holds(first: GroupedSegment, segment: GroupedSegment) -> bool:
    # An empty one has no offset to write down, however far away its neighbour begins.
    last_offset = segment.next_base_offset - 1
    return segment.size == 0 or last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
