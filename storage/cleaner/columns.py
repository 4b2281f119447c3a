"""The walk over the records of many batches at a time, with numpy: see `storage.cleaner.record_walk`.

    batches      [k1 k2 k1][k3 k1]      2 MiB of them, where they were read or decompressed
    columns      offset, key, ...       `storage.batch.columns.vectors` finds them
    digests      of all keys            128 bits each
    slots        of all digests         of the same offset map, 24 bytes each, found together

Rule 1: all keys look at their slots at once. Those that have met another key go on to the next
slot, and are ever fewer.

Rule 2: two keys are one where their digests are the same. That of a short key is two sums of 64
bits, mixed word by word as MurmurHash3 ends; that of a long one is its MD5. Neither withstands
a writer who looks for two keys of one digest. Such a writer may as well replace the record of the
other key by a later one. Kafka's map goes by the MD5 alone.

Rule 3: at most `_RECORDS_MOST` records are looked at together, however small they are.

A log of 100-byte records is compacted in a seventh of the time that `OneByOne` takes
(docs/benchmarks.md, Compaction).
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import md5
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from storage.attributes import define, frozen
from storage.batch.columns.vectors import (
    Integers,
    read_all_but_headers,
    record_bodies,
)
from storage.batch.record_batch import BatchHeader
from storage.batch.records import skip_records
from storage.cleaner.offset_map import CELLS_PER_SLOT, OffsetMap
from storage.cleaner.record_walk import (
    LEAST_DELTA,
    CleanerStats,
    JudgedBatch,
    KeptRecords,
    SoundBatch,
    stays,
)
from storage.errors import CorruptRecordError
from storage.types import NO_OFFSET, Offset

# What a slot begins with that has a key and no offset yet: an offset of 0 is the least.
_ENTERED: Final = 1
_BYTES_AT_ONCE: Final = 1 << 21
_RECORDS_MOST: Final = 1 << 14

_SLOTS_AT_FIRST: Final = 1 << 12
# Where so much of the slots in use is taken, so many times more are used.
_SPREAD_AT: Final = 0.5
_SPREAD_BY: Final = 8

# Longer keys are not many, and each word of the longest key is a step for all of them.
_SHORT_KEY: Final = 256
_WORD: Final = 8
# By the number of bytes that are left of a key: those of the next word that belong to it.
_MASKS: Final = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
# Two mixers of 64 bits: that of MurmurHash3, and David Stafford's thirteenth variant of it.
_MIXERS: Final = (
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
)
_SHIFTS: Final = tuple(np.uint64(n) for n in (33, 29, 32))

Digest: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class _Stretch(NamedTuple):
    """All records of a batch, or some of one that has very many."""

    judged: JudgedBatch
    begin: int
    end: int
    record_count: int
    is_last: bool

    @property
    def header(self) -> BatchHeader:
        return self.judged.batch.header

    @property
    def source(self) -> bytes:
        return self.judged.batch.source


@frozen
class _Records:
    """The records of some stretches, taken apart; all that is not `data` is a column."""

    stretches: list[_Stretch]
    data: bytes
    # The first record of each stretch, and the first one after them all.
    borders: Integers
    begins: Integers
    ends: Integers
    offsets: Integers
    timestamp_deltas: Integers
    key_starts: Integers
    key_lengths: Integers
    has_value: Flags

    def digests(self, rows: Integers) -> Digest:
        """Return the digest of the key of each of `rows`."""
        return digests(self.data, self.key_starts[rows], self.key_lengths[rows])

    def per_record(self, of_stretches: Sequence[int]) -> Integers:
        """Repeat a number of each stretch for each of its records."""
        return np.repeat(np.array(of_stretches, np.int64), np.diff(self.borders))

    def counted(self, flags: Flags) -> Integers:
        """Return how many records of each stretch are flagged."""
        return np.diff(_running(flags)[self.borders])


@frozen
class ByColumn:
    """The walk with numpy."""

    offset_map: OffsetMap
    bytes_at_once: int = _BYTES_AT_ONCE
    _slots: "Slots" = attrs.field(init=False)

    @_slots.default
    def _slots_of_map(self) -> "Slots":
        return Slots(self.offset_map)

    def enter(self, batches: Sequence[SoundBatch], first_dirty_offset: Offset) -> bool:
        """Enter the keys from `first_dirty_offset` on; return whether the map had room for them."""
        last = NO_OFFSET
        for records in _taken_apart(JudgedBatch(each, drops_tombstones=False) for each in batches):
            rows = np.flatnonzero(
                (records.key_lengths >= 0) & (records.offsets >= first_dirty_offset)
            )
            found, offsets = records.digests(rows), records.offsets[rows]
            fitting = self._slots.fitting(found)
            self._slots.put(found[:fitting], offsets[:fitting])
            if fitting:
                last = int(offsets[fitting - 1])
            if fitting < rows.size:
                bases = records.per_record([each.header.base_offset for each in records.stretches])
                self.offset_map.saw(max(last, int(bases[rows[fitting]]) - 1))
                return False
        return True

    def judge(self, batches: Sequence[JudgedBatch], stats: CleanerStats) -> Iterator[KeptRecords]:
        """Yield which records of each batch stay."""
        parts: list[KeptRecords] = []
        for records in _taken_apart(batches):
            kept = _kept(records, self._staying(records, stats))
            for stretch, part in zip(records.stretches, kept, strict=True):
                parts.append(part)
                if stretch.is_last:
                    yield _together(parts)
                    parts = []

    def _staying(self, records: _Records, stats: CleanerStats) -> Flags:
        has_key, latest = records.key_lengths >= 0, self.offset_map.latest_offset
        rows = np.flatnonzero(has_key)
        last = np.full(has_key.size, NO_OFFSET, np.int64)
        last[rows] = self._slots.get(records.digests(rows))
        drops = [each.judged.drops_tombstones for each in records.stretches]
        staying: Flags = stays(
            offset=records.offsets,
            last=last,
            latest=latest,
            has_key=has_key,
            has_value=records.has_value,
            drops_tombstones=records.per_record(drops) > 0,
        )
        stats.invalid_records += int(np.count_nonzero(~staying & ~has_key))
        return staying


@define(eq=False)
class Slots:
    """The slots of an offset map, searched for many keys at once.

    Of the map's memory only so much is used as its keys need, so that the processor's caches hold
    the map of a small log.
    """

    offset_map: OffsetMap
    # How many slots are to be used later, the fewest last: in the end all of the map's.
    _more: list[int] = attrs.field(init=False)
    # Those in use; the map's first ones.
    _cells: Integers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._more = [self.offset_map.slots]
        while self._more[-1] // _SPREAD_BY >= _SLOTS_AT_FIRST:
            self._more.append(self._more[-1] // _SPREAD_BY)
        self._use_more()

    def _use_more(self) -> None:
        cells = np.frombuffer(self.offset_map.cells, np.int64).reshape(-1, CELLS_PER_SLOT)
        self._cells = cells[: self._more.pop()]

    def get(self, found: Digest) -> Integers:
        """Return the offset of each key; NO_OFFSET for one that is not in the map."""
        offsets = np.empty(len(found), np.int64)
        rows, slots = np.arange(len(found)), self._first_slots(found)
        while rows.size:
            cells = self._cells.take(slots, axis=0)
            same = _is_same(cells, found)
            offsets[rows] = np.where(same, cells[:, 0] - 1, NO_OFFSET)
            going = np.flatnonzero(~same & (cells[:, 0] != 0))
            rows, slots = rows[going], self._next_slots(slots[going])
            found = found.take(going, axis=0)
        return offsets

    def put(self, found: Digest, offsets: Integers) -> None:
        """Enter keys, each of which was last seen at its offset, where there is room for all."""
        while self._more and self.offset_map.size + len(found) > len(self._cells) * _SPREAD_AT:
            self._spread()
        self._enter(found, offsets)

    def _spread(self) -> None:
        """Use more slots. What they hold is copied meanwhile: a 16th of the map's memory at most."""
        entered = []
        # A part at a time, as the interpreter's lock is held for each.
        for first in range(0, len(self._cells), _RECORDS_MOST):
            some = self._cells[first : first + _RECORDS_MOST]
            entered.append(some[some[:, 0] != 0])
            some[:] = 0
        self._use_more()
        self.offset_map.size = 0
        for some in entered:
            self._enter(np.ascontiguousarray(some[:, 1:]).view(np.uint64), some[:, 0] - 1)

    def _enter(self, found: Digest, offsets: Integers) -> None:
        slots = self._first_slots(found)
        while slots.size:
            cells = self._cells.take(slots, axis=0)
            free = np.flatnonzero(cells[:, 0] == 0)
            if free.size:
                self._claim(slots[free], found.take(free, axis=0))
                cells = self._cells.take(slots, axis=0)
            same = _is_same(cells, found)
            here, going = np.flatnonzero(same), np.flatnonzero(~same)
            # Of records of one key the last one is written last, and stays.
            self._cells[slots[here], 0] = np.maximum(cells[here, 0], offsets[here] + 1)
            slots, offsets = self._next_slots(slots[going]), offsets[going]
            found = found.take(going, axis=0)

    def fitting(self, found: Digest) -> int:
        """Return how many of the keys, from the first on, can be entered before the map is full."""
        room = self.offset_map.most - self.offset_map.size
        if len(found) <= room or not room:
            return min(len(found), room)
        new = np.flatnonzero(self.get(found) == NO_OFFSET)
        _, firsts = np.unique(found[new], axis=0, return_index=True)
        if firsts.size < room:
            return len(found)
        return int(new[np.sort(firsts)[room - 1]]) + 1

    def _claim(self, slots: Integers, found: Digest) -> None:
        """Put keys into slots that are free; where several want the same slot, one gets it."""
        claims = np.arange(1, slots.size + 1)
        self._cells[slots, 0] = claims
        got = np.flatnonzero(self._cells[slots, 0] == claims)
        self._cells[slots[got], 1:] = found.take(got, axis=0).view(np.int64)
        self._cells[slots[got], 0] = _ENTERED
        self.offset_map.size += got.size

    def _first_slots(self, found: Digest) -> Integers:
        return (found[:, 0] % np.uint64(len(self._cells))).astype(np.int64)

    def _next_slots(self, slots: Integers) -> Integers:
        following = slots + 1
        following[following == len(self._cells)] = 0
        return following


def _is_same(cells: Integers, found: Digest) -> Flags:
    """Return whether each slot holds the key; a free one holds none."""
    keys = found.view(np.int64)
    taken: Flags = cells[:, 0] != 0
    taken &= cells[:, 1] == keys[:, 0]
    taken &= cells[:, 2] == keys[:, 1]
    return taken


def digests(data: bytes, starts: Integers, lengths: Integers) -> Digest:
    """Return the digest of each key in `data`, which has eight bytes where any key has one."""
    is_long = lengths > _SHORT_KEY
    short = np.where(is_long, 0, lengths)
    # With the length in it: zero bytes at its end make another key.
    found = np.stack((short, ~short), axis=1).view(np.uint64)
    last = len(data) - _WORD
    words: Digest = np.ndarray((max(last + 1, 0),), "<u8", data, 0, (1,))
    rows: Integers | slice = slice(None)
    for at in range(0, int(short.max(initial=0)), _WORD):
        left, places = short - at, starts + at
        if left.min() <= 0:
            rows = np.flatnonzero(left > 0)
            left, places = left[rows], places[rows]
        # At the very end of the data a word begins earlier, with bytes that are not of the key.
        early = np.maximum(places - last, 0)
        word = words[places - early] >> (early * 8).astype(np.uint64)
        word &= _MASKS[np.minimum(left, _WORD)]
        for column, mixer in enumerate(_MIXERS):
            found[rows, column] = _mixed(found[rows, column] ^ word, mixer)
    if is_long.any():
        begins, ends = starts[is_long].tolist(), (starts + lengths)[is_long].tolist()
        sums = [
            md5(data[begin:end], usedforsecurity=False).digest()
            for begin, end in zip(begins, ends, strict=True)
        ]
        found[is_long] = np.frombuffer(b"".join(sums), np.uint64).reshape(-1, 2)
    return found


def _mixed(numbers: Digest, mixer: tuple[np.uint64, np.uint64]) -> Digest:
    first, second = mixer
    numbers = (numbers ^ numbers >> _SHIFTS[0]) * first
    numbers = (numbers ^ numbers >> _SHIFTS[1]) * second
    return numbers ^ numbers >> _SHIFTS[2]


def _taken_apart(batches: Iterable[JudgedBatch]) -> Iterator[_Records]:
    """Take the records of `batches` apart, so many together as there may be."""
    together: list[_Stretch] = []
    count = 0
    for judged in batches:
        header, _, _, begin, end = judged.batch
        left = header.record_count
        if count + left > _RECORDS_MOST:
            if together:
                yield _columns(together)
                together, count = [], 0
            for stretch in _first_stretches(judged):
                yield _columns([stretch])
                begin, left = stretch.end, left - stretch.record_count
        together.append(_Stretch(judged, begin, end, left, is_last=True))
        count += left
    if together:
        yield _columns(together)


def _first_stretches(judged: JudgedBatch) -> Iterator[_Stretch]:
    """Yield all stretches but the last of a batch that has very many records."""
    header, _, source, begin, end = judged.batch
    left = header.record_count
    while left > _RECORDS_MOST:
        following = skip_records(memoryview(source)[:end], begin, _RECORDS_MOST)
        yield _Stretch(judged, begin, following, _RECORDS_MOST, is_last=False)
        begin, left = following, left - _RECORDS_MOST


def _columns(stretches: list[_Stretch]) -> _Records:
    data = stretches[0].source
    begins = np.array([each.begin for each in stretches])
    ends = np.array([each.end for each in stretches])
    counts = np.array([each.record_count for each in stretches])
    if any(each.source is not data for each in stretches):
        data = b"".join([each.source[each.begin : each.end] for each in stretches])
        sizes = ends - begins
        ends = np.cumsum(sizes)
        begins = ends - sizes
    every_byte = np.frombuffer(data, np.uint8)
    try:
        bodies = record_bodies(every_byte, begins, ends, counts)
        fields, headers_at = read_all_but_headers(every_byte, bodies)
    except IndexError as error:
        raise CorruptRecordError("records that end too early") from error
    record_ends = bodies.starts + bodies.lengths
    if (headers_at > record_ends).any():
        raise CorruptRecordError("a key and a value that are longer than their record")
    bases = np.array([each.header.base_offset for each in stretches], np.int64)
    borders = _running(counts)
    # A record begins where the one before it ends, unless it is the first of its stretch.
    record_begins = np.append(0, record_ends)[:-1]
    filled = np.flatnonzero(counts)
    record_begins[borders[filled]] = begins[filled]
    return _Records(
        stretches=stretches,
        data=data,
        borders=borders,
        begins=record_begins,
        ends=record_ends,
        offsets=np.repeat(bases, counts) + fields.offset_deltas,
        timestamp_deltas=fields.timestamp_deltas,
        key_starts=fields.key_starts,
        key_lengths=fields.key_lengths,
        has_value=fields.value_lengths >= 0,
    )


def _running(numbers: npt.NDArray[Any]) -> Integers:
    """Return the sum of the numbers before each of them, and of all."""
    sums = np.zeros(numbers.size + 1, np.int64)
    np.cumsum(numbers, out=sums[1:])
    return sums


def _kept(records: _Records, staying: Flags) -> Iterator[KeptRecords]:
    """Yield what stays of each stretch, each run of neighbours in one piece."""
    borders = records.borders
    counts = records.counted(staying).tolist()
    tombstones = records.counted(staying & ~records.has_value).tolist()
    latest = np.full(len(counts), LEAST_DELTA)
    filled = np.flatnonzero(np.diff(borders))
    if filled.size:
        deltas = np.where(staying, records.timestamp_deltas, LEAST_DELTA)
        latest[filled] = np.maximum.reduceat(deltas, borders[filled])
    view = memoryview(records.data)
    columns = counts, latest.tolist(), tombstones, _runs(records, staying)
    for count, youngest, dead, runs in zip(*columns, strict=True):
        pieces = [view[begin:end] for begin, end in runs]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        yield KeptRecords(data, count, youngest, has_tombstone=dead > 0)


def _runs(records: _Records, staying: Flags) -> Iterator[list[tuple[int, int]]]:
    """Yield for each stretch where the runs of records that stay begin and end."""
    firsts, lasts = records.borders[:-1], records.borders[1:] - 1
    filled = np.flatnonzero(firsts <= lasts)
    begins, ends = staying.copy(), staying.copy()
    begins[1:] &= ~staying[:-1]
    ends[:-1] &= ~staying[1:]
    # Neighbours in two stretches are of two runs.
    begins[firsts[filled]] = staying[firsts[filled]]
    ends[lasts[filled]] = staying[lasts[filled]]
    found = zip(records.begins[begins].tolist(), records.ends[ends].tolist(), strict=True)
    for count in records.counted(begins).tolist():
        yield list(islice(found, count))


def _together(parts: list[KeptRecords]) -> KeptRecords:
    """Return what stays of a batch from what stays of its stretches."""
    if len(parts) == 1:
        return parts[0]
    return KeptRecords(
        b"".join([each.data for each in parts]),
        sum(each.count for each in parts),
        max(each.max_timestamp_delta for each in parts),
        any(each.has_tombstone for each in parts),
    )
