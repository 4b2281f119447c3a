"""The walk by column against the one record by record: the same keys, offsets, records and errors."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, read_header, walk
from storage.batch.records import Record, encode_batch
from storage.batch.varint import varint
from storage.cleaner import columns
from storage.cleaner.columns import ByColumn, Slots, digests
from storage.cleaner.offset_map import SLOT_SIZE, OffsetMap
from storage.cleaner.record_walk import (
    CleanerStats,
    JudgedBatch,
    OneByOne,
    RecordWalk,
    SoundBatch,
    best_walk,
    sound_batch,
)
from storage.errors import CorruptRecordError

# Around a word of a digest, the longest short key, and what one and two bytes count.
KEYS = [bytes(size) for size in (0, 1, 7, 8, 9, 63, 64, 255, 256, 257, 600)]
keys = st.none() | st.sampled_from([*KEYS, b"a", b"b", b"c", b"a" * 300])
values = st.none() | st.sampled_from([0, 1, 63, 64, 9000]).map(bytes)
records = st.builds(
    lambda step, timestamp, key, value, headers: (
        step,
        Record(timestamp=timestamp, key=key, value=value, headers=headers),
    ),
    st.sampled_from([1, 1, 2, 64, 9000]),
    st.sampled_from([0, 1, 64, 9000, 2**62]),
    keys,
    values,
    st.sampled_from([(), (("h", None), ("name", b"value"))]),
)
Content = list[tuple[list[tuple[int, Record]], Codec]]
batches_of_records = st.lists(
    st.tuples(st.lists(records, max_size=8), st.sampled_from([Codec.NONE, Codec.LZ4])), max_size=6
)


def spread(content: Content, *, together: bool) -> list[SoundBatch]:
    """Batches of rising offsets, with gaps where records have gone."""
    offset, made = 0, []
    for steps, codec in content:
        base, placed = offset, []
        for step, record in steps:
            placed.append(record._replace(offset=offset))
            offset += step
        offset += 1
        made.append(
            encode_batch(placed, base_offset=base, codec=codec, last_offset_delta=offset - 1 - base)
        )
    return [
        sound_batch(data, at, header)
        for data in ([b"".join(made)] if together else made)
        for at, header in walk(data)
    ]


def left(
    each_walk: RecordWalk, batches: list[SoundBatch], drops: Sequence[bool]
) -> tuple[CleanerStats, list[object]]:
    stats = CleanerStats()
    judged = [JudgedBatch(each, drop) for each, drop in zip(batches, drops, strict=False)]
    kept = each_walk.judge(judged, stats)
    return stats, [
        (bytes(each.data), each.count, each.max_timestamp_delta, each.has_tombstone)
        for each in kept
        if each.count
    ]


@given(
    content=batches_of_records,
    slots=st.sampled_from([3, 8, 1000]),
    bounds=st.tuples(st.integers(0, 300), st.integers(0, 20_000)),
    drops=st.lists(st.booleans(), min_size=6, max_size=6),
    at_once=st.tuples(st.booleans(), st.sampled_from([1, 3, 1 << 14])),
)
def test_both_walks_find_and_leave_the_same(
    content: Content,
    slots: int,
    bounds: tuple[int, int],
    drops: list[bool],
    at_once: tuple[bool, int],
) -> None:
    (first_dirty, clean_up_to), (together, records_most) = bounds, at_once
    batches = spread(content, together=together)
    maps = OffsetMap(slots * SLOT_SIZE), OffsetMap(slots * SLOT_SIZE)
    one, many = OneByOne(maps[0]), ByColumn(maps[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_RECORDS_MOST", records_most)
        assert one.enter(batches, first_dirty) == many.enter(batches, first_dirty)
        assert (maps[0].size, maps[0].latest_offset) == (maps[1].size, maps[1].latest_offset)
        for each in maps:
            each.saw(clean_up_to)
        assert left(one, batches, drops) == left(many, batches, drops)


@given(
    slots=st.integers(10, 60) | st.just(400),
    at_first=st.sampled_from([1, 2, 1 << 12]),
    puts=st.lists(st.lists(st.binary(max_size=2), max_size=30), max_size=8),
    asked=st.lists(st.binary(max_size=2), max_size=50),
)
def test_slots_are_a_dict_until_the_map_is_full(
    slots: int, at_first: int, puts: list[list[bytes]], asked: list[bytes]
) -> None:
    offset_map = OffsetMap(slots * SLOT_SIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_SLOTS_AT_FIRST", at_first)
        found, twin = Slots(offset_map), dict[bytes, int]()
    offset = 0
    for each in puts:
        fitting = found.fitting(digests_of(each))
        entered = each[:fitting]
        found.put(digests_of(entered), np.arange(offset, offset + fitting))
        for key in each:
            if len(twin) == offset_map.most:
                break
            twin[key] = offset
            offset += 1
            fitting -= 1
        assert fitting == 0
        assert offset_map.size == len(twin)
    names = [*twin, *asked]
    assert found.get(digests_of(names)).tolist() == [twin.get(key, -1) for key in names]


def digests_of(names: list[bytes]) -> columns.Digest:
    lengths = np.array([len(each) for each in names], np.int64)
    return digests(b"".join(names) + bytes(7), np.cumsum(lengths) - lengths, lengths)


def test_different_keys_have_different_digests() -> None:
    names = [b"%x" % number * size for number in range(2000) for size in (1, 7, 80)]
    names += [*KEYS, *(bytes(n) + b"\1" + bytes(40 - n) for n in range(41))]
    assert len(np.unique(digests_of(names), axis=0)) == len(set(names))


def test_a_walk_without_numpy_is_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(best_walk(OffsetMap(1 << 10)), ByColumn)
    monkeypatch.setitem(sys.modules, "storage.cleaner.columns", None)
    assert isinstance(best_walk(OffsetMap(1 << 10)), OneByOne)


RECORD = encode_batch([Record(timestamp=0, key=b"key", value=b"value")])[HEADER_SIZE:]


# No two neighbours are of one size, so that no run is looked for.
MANY = encode_batch(
    [Record(timestamp=0, key=b"key", value=bytes(number % 7)) for number in range(80)]
)[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        pytest.param(RECORD[:-1], 1, id="cut off"),
        pytest.param(b"\0" + RECORD, 2, id="empty"),
        pytest.param(varint(-5) + RECORD[1:], 1, id="a negative length"),
        pytest.param(varint(2**30) + RECORD, 1, id="a gigabyte"),
        pytest.param(b"\x0c\0\0\0\x14" + bytes(2) + RECORD, 2, id="a key past its record"),
        pytest.param(b"\x0c\0\0\0\x01\x14\0" + RECORD, 2, id="a value past its record"),
        pytest.param(RECORD * 2, 3, id="more counted than there are"),
        pytest.param(RECORD * 2, 1, id="fewer counted than there are"),
        pytest.param(RECORD, 0, id="none counted"),
        pytest.param(MANY + varint(-5) + RECORD * 9, 90, id="a negative length among many"),
    ],
)
def test_records_that_lie_are_corrupt_to_both(data: bytes, count: int) -> None:
    header = read_header(encode_batch([]))._replace(record_count=count)
    batch = SoundBatch(header, memoryview(b""), data, 0, len(data))
    for each in (OneByOne(OffsetMap(1 << 10)), ByColumn(OffsetMap(1 << 10))):
        with pytest.raises(CorruptRecordError):
            each.enter([batch], 0)
