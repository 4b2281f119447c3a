"""What a cleaner knows of a batch: where its records are, its transactions, the offsets of keys."""

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    decode_batch,
    encode_batch,
)
from storage.batch.varint import varint
from storage.cleaner.columns import ByColumn
from storage.cleaner.filter import BatchFilter
from storage.cleaner.offset_map import SLOT_SIZE, OffsetMap
from storage.cleaner.record_walk import (
    CleanerStats,
    MakeWalk,
    OneByOne,
    SoundBatch,
    places,
    sound_batch,
)
from storage.cleaner.transactions import CleanedTransactions
from storage.errors import CorruptRecordError
from storage.log.index.transaction_index import AbortedTransaction
from tests.storage.logs import batch

# Both sides of numbers of one byte and of two.
sizes = st.sampled_from([0, 1, 63, 64, 200, 8191, 8192])
maybe_bytes = st.none() | sizes.map(bytes)
records = st.builds(
    lambda timestamp, step, key, value: (step, Record(timestamp=timestamp, key=key, value=value)),
    st.integers(0, 2**62),
    st.sampled_from([1, 63, 64, 9000]),
    maybe_bytes,
    maybe_bytes,
)
RECORD = encode_batch([Record(timestamp=0, key=b"key", value=b"value")])[HEADER_SIZE:]


@given(st.lists(records, min_size=1, max_size=6))
def test_the_places_say_what_the_records_say(content: list[tuple[int, Record]]) -> None:
    offset, spread = 0, []
    for step, record in content:
        spread.append(record._replace(offset=offset))
        offset += step
    batch = encode_batch(spread)
    base, data, following = spread[0].timestamp, batch[HEADER_SIZE:], 0
    found = list(places(data, len(spread)))
    assert [
        (base + timestamp_delta, offset_delta, key, has_value)
        for _, _, _, timestamp_delta, offset_delta, key, has_value in found
    ] == [
        (record.timestamp, record.offset, record.key, record.value is not None)
        for record in decode_batch(batch)
    ]
    for begin, rest, end, *_ in found:
        assert begin == following < rest < end
        following = end
    assert following == len(data)


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        pytest.param(RECORD[:-1], 1, "a record of 14 bytes at byte 0 of 14", id="cut off"),
        pytest.param(b"\0" + RECORD, 2, "a record of 0 bytes at byte 0", id="empty"),
        pytest.param(varint(-5) + RECORD[1:], 1, "a record of -5 bytes", id="a negative length"),
        pytest.param(varint(2**30) + RECORD, 1, "a record of 1073741824 bytes", id="a gigabyte"),
        pytest.param(
            b"\x0c\0\0\0\x14" + bytes(2) + RECORD,
            2,
            r"a key of 10 and a value of -?\d+ bytes in a record of 6",
            id="a key past its record",
        ),
        pytest.param(
            b"\x0c\0\0\0\x01\x14\0" + RECORD,
            2,
            "a key of -1 and a value of 10 bytes in a record of 6",
            id="a value past its record",
        ),
        pytest.param(RECORD * 2, 3, "fewer than the 3 records", id="more counted than there are"),
        pytest.param(
            RECORD * 2, 1, f"{len(RECORD)} bytes after the last", id="fewer counted than there are"
        ),
    ],
)
def test_records_that_lie_are_corrupt(data: bytes, count: int, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        list(places(data, count))


@pytest.mark.parametrize(
    ("walk", "count"),
    [
        pytest.param(OneByOne, 20_000, id="one by one"),
        pytest.param(ByColumn, 200_000, id="by column"),
    ],
)
def test_nothing_is_remembered_of_each_record_of_a_batch(walk: MakeWalk, count: int) -> None:
    """A small batch may inflate to millions of them."""
    batch = encode_batch([Record(timestamp=1, key=b"k", value=b"v")] * count, base_offset=7)
    offset_map = OffsetMap(1 << 12)
    records_walk = walk(offset_map)
    before = encode_batch([Record(timestamp=1, key=b"k")], base_offset=7 + count // 2)
    assert records_walk.enter([sound(before)], 0)
    offset_map.saw(7 + count - 1)
    judge = BatchFilter(
        walk=records_walk,
        transactions=CleanedTransactions(),
        last_records={},
        round_end=7 + count,
        wall_ms=0,
        delete_retention_ms=0,
        stats=CleanerStats(),
    )
    tracemalloc.start()
    try:
        (kept,) = judge.keep([sound(batch)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept is not None
    assert read_header(kept).record_count == count // 2
    assert most < 4 * len(batch)


def sound(batch: bytes) -> SoundBatch:
    return sound_batch(batch, 0, read_header(batch))


ABORTED = AbortedTransaction(producer_id=7, first_offset=10, last_offset=15, last_stable_offset=16)
ABORT = EndTransactionMarker(ControlRecordType.ABORT, 0)


def at(offset: int) -> BatchHeader:
    return read_header(
        batch(at=offset, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )


def test_a_transaction_in_the_indexes_of_two_segments_ends_once() -> None:
    transactions = CleanedTransactions()
    transactions.add_aborted([ABORTED])
    assert transactions.on_batch(at(10))
    assert not transactions.on_control_batch(at(15), ABORT)
    assert transactions.take_met() == [ABORTED]
    # The next segment's index has it too; by then the producer has begun another.
    transactions.add_aborted([ABORTED])
    assert not transactions.on_batch(at(20))


def test_a_marker_that_was_emptied_goes_and_one_that_is_not_known_stays() -> None:
    transactions = CleanedTransactions()
    emptied = read_header(encode_batch([], control=True))
    assert transactions.on_control_batch(emptied, None)
    assert not transactions.on_control_batch(at(3), None)


@given(
    slots=st.integers(10, 60),
    puts=st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=200),
    asked=st.lists(st.binary(max_size=3), max_size=50),
)
def test_an_offset_map_is_a_dict_until_it_is_full(
    slots: int, puts: list[tuple[bytes, int]], asked: list[bytes]
) -> None:
    found = OffsetMap(slots * SLOT_SIZE)
    twin: dict[bytes, int] = {}
    for key, offset in puts:
        if found.is_full:
            break
        found.put(key, offset)
        twin[key] = offset
        assert found.size == len(twin)
    assert found.is_full == (len(twin) >= int(slots * 0.9))
    for key in [*twin, *asked]:
        assert found.get(key) == twin.get(key, -1)


def test_an_offset_map_is_filled_to_nine_tenths() -> None:
    found = OffsetMap(100 * SLOT_SIZE)
    for number in range(90):
        assert not found.is_full
        found.put(b"%d" % number, number)
    assert found.is_full
    assert found.utilization == 0.9


def test_the_latest_offset_of_a_map_never_falls() -> None:
    found = OffsetMap(10 * SLOT_SIZE)
    found.saw(7)
    found.saw(3)
    assert found.latest_offset == 7


def test_an_offset_map_needs_room_for_a_key() -> None:
    with pytest.raises(ValueError, match="too few"):
        OffsetMap(SLOT_SIZE)
