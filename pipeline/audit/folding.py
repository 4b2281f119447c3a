"""Folds: what a replica's batches add up to, so that a survey needs one row for each replica.

    b1  [0-4 e0 crc a][5-9 e0 crc b] | [10-12 e1 crc c]     2 batches + 1 batch   digest a+b + c
    b2  [0-4 e0 crc a] | [5-9 e0 crc b][10-12 e1 crc c]     1 batch + 2 batches   digest a + b+c

Rule 1: folds add. Where a segment, a task or a file of headers ends makes no difference to
their sum, and neither does the order in which they come.

Rule 2: replicas are alike where their sums are. A digest is the sum, modulo 2^64, of a hash of
all that identifies each batch, twice with different hashes: a batch that differs in one of these
fields alone changes both sums for certain, and anything else goes unseen once in 2^128. Batches of a replica
that is not damaged are each at an offset of their own, so that none is there twice; and how
many there are is compared too.

Rule 3: what lies below the highest log start of the partition's replicas is not folded; a
batch that reaches beyond it is, as a whole. Damage counts wherever it is.

Rule 4: one vector operation goes over the headers of many segments: a call costs as much for
one batch as for a thousand, and ten thousand partitions have a segment each.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from pipeline.audit.headers import Scanned, SegmentHeaders, is_in_order, read_quickly, scan_slowly
from storage.batch.record_batch import LENGTH_OVERHEAD
from storage.filesystem import FileSystem
from storage.types import Offset, TopicPartition

# A replica of a partition: its name, and the partition.
Who: TypeAlias = tuple[str, TopicPartition]
Words: TypeAlias = npt.NDArray[np.uint64]

# Headers that are held at once, 61 bytes each.
MOST_HEADERS: Final = 65_536
# An empty segment takes as much memory as this many headers.
_SEGMENT_COST: Final = 8

EVERY_OFFSET: Final = 2**63 - 1
_SIXTY_FOUR_BITS: Final = 2**64
# Odd multipliers of no pattern (SplitMix64 and MurmurHash3 end with these): two for each hash.
_MULTIPLIERS: Final = (
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
)
_HALF: Final = np.uint64(32)
_SHIFT: Final = np.uint64(29)


@attrs.frozen(kw_only=True)
class Fold:
    """The sums of some batches of one replica."""

    batches: int = 0
    records: int = 0
    size: int = 0
    end_offset: Offset | None = None
    last_epoch: int | None = None
    digest: tuple[int, ...] = ()
    is_damaged: bool = False

    def __add__(self, other: "Fold") -> "Fold":
        last = max(self, other, key=lambda fold: -1 if fold.end_offset is None else fold.end_offset)
        return Fold(
            batches=self.batches + other.batches,
            records=self.records + other.records,
            size=self.size + other.size,
            end_offset=last.end_offset,
            last_epoch=last.last_epoch,
            digest=tuple(
                (mine + theirs) % _SIXTY_FOUR_BITS
                for mine, theirs in zip_longest(self.digest, other.digest, fillvalue=0)
            ),
            is_damaged=self.is_damaged or other.is_damaged,
        )


def fold(
    files: FileSystem,
    segments: Iterable[SegmentHeaders],
    *,
    check_crcs: bool,
    most_headers: int = MOST_HEADERS,
) -> Iterator[tuple[Who, Fold]]:
    """Yield the sums of the batches in `segments` by replica; a long replica has several parts."""
    waiting: list[tuple[SegmentHeaders, Scanned]] = []
    count = 0
    for segment in segments:
        found = read_quickly(files, segment, check_crcs=check_crcs)
        if found is None:  # a damaged file, or one that ends in spare room
            found = scan_slowly(files, segment, check_crcs=check_crcs)
        waiting.append((segment, found))
        count += len(found.headers) + _SEGMENT_COST
        if count >= most_headers:
            yield from _folded(waiting)
            waiting, count = [], 0
    if waiting:
        yield from _folded(waiting)


def _folded(scanned: Sequence[tuple[SegmentHeaders, Scanned]]) -> Iterator[tuple[Who, Fold]]:
    whose = [(segment.replica, segment.topic_partition) for segment, _ in scanned]
    who = list(dict.fromkeys(whose))
    numbers = {each: number for number, each in enumerate(who)}
    number = np.array([numbers[each] for each in whose])
    everything = _Headers.of(scanned)
    damaged = set(number[everything.damaged()].tolist())
    for at, found in everything.sums(number[everything.segment]):
        yield who[at], found
    for at in damaged:
        yield who[at], Fold(is_damaged=True)


@attrs.frozen
class _Headers:
    """The headers of many segments, one after the other, each with the number of its segment."""

    segments: Sequence[tuple[SegmentHeaders, Scanned]]
    found: Scanned
    segment: npt.NDArray[np.int64]
    is_counted: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, scanned: Sequence[tuple[SegmentHeaders, Scanned]]) -> "_Headers":
        found = Scanned.together([each for _, each in scanned])
        lengths = [len(each.headers) for _, each in scanned]
        segment = np.repeat(np.arange(len(scanned)), lengths)
        starts = np.array([segment.start_offset for segment, _ in scanned], np.int64)
        return cls(scanned, found, segment, found.last_offsets >= starts[segment])

    def damaged(self) -> npt.NDArray[np.bool_]:
        """Return for each segment whether it is damaged."""
        damaged = np.array([found.damage is not None for _, found in self.segments])
        bases = np.array([segment.base_offset for segment, _ in self.segments], np.int64)
        damaged[self.segment[~is_in_order(self.found, bases[self.segment], self.segment)]] = True
        if self.found.is_sound is not None:
            damaged[self.segment[self.is_counted & ~self.found.is_sound]] = True
        limits = [_limit(segment) for segment, _ in self.segments]
        reaches_on = self.found.last_offsets >= np.array(limits, np.int64)[self.segment]
        damaged[self.segment[reaches_on]] = True
        return damaged

    def sums(self, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, Fold]]:
        """Yield the sums of the counted headers by number; equal numbers are neighbours."""
        header, numbers = self.found.headers[self.is_counted], numbers[self.is_counted]
        if not len(header):
            return
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        ends = np.append(firsts[1:], len(header))
        sizes = header["length"].astype(np.int64) + LENGTH_OVERHEAD
        columns = [
            numbers[firsts],
            ends - firsts,
            np.add.reduceat(header["record_count"].astype(np.int64), firsts),
            np.add.reduceat(sizes, firsts),
            self.found.last_offsets[self.is_counted][ends - 1] + 1,
            header["leader_epoch"][ends - 1],
            *(np.add.reduceat(hashes, firsts) for hashes in _hashes(header)),
        ]
        for number, batches, records, size, end, epoch, *digest in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield (
                number,
                Fold(
                    batches=batches,
                    records=records,
                    size=size,
                    end_offset=end,
                    last_epoch=epoch,
                    digest=tuple(digest),
                ),
            )


def _limit(segment: SegmentHeaders) -> Offset:
    """Return the base offset of the next segment, which this one must not reach."""
    return EVERY_OFFSET if segment.next_base is None else segment.next_base


def _hashes(header: npt.NDArray[np.void]) -> Iterator[Words]:
    """Yield, for each hash, 64 bits made from all fields that identify a batch."""
    words = [
        header["base_offset"].astype(np.uint64),
        _pair(header["leader_epoch"], header["last_offset_delta"]),
        _pair(header["crc"], header["length"]),
    ]
    for first, second in _MULTIPLIERS:
        hashes = np.full(len(header), second)
        for word in words:
            hashes ^= word
            hashes *= first
            hashes ^= hashes >> _HALF
            hashes *= second
            hashes ^= hashes >> _SHIFT
        yield hashes


def _pair(high: npt.NDArray[np.generic], low: npt.NDArray[np.generic]) -> Words:
    """Return two numbers of 32 bits as one word."""
    return high.astype(np.uint32).astype(np.uint64) << _HALF | low.astype(np.uint32)
