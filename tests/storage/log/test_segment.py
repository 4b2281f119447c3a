"""One segment on its own."""

import random

import pytest
from hypothesis import given, strategies as st

from storage.batch.record_batch import read_header, walk
from storage.errors import CorruptRecordError, KafkaStorageError
from storage.log.index.offset_index import ENTRY_SIZE
from storage.log.index.transaction_index import AbortedTransaction
from storage.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from storage.log.time_lookup import first_at_or_after, youngest
from storage.testing import DiskCosts, FaultyFileSystem
from tests.storage.logs import WALL_MS, batch, contents, fill, new_disk, open_log, small_config


def new_segment(
    base: int = 40, *, interval: int = 10, system: FaultyFileSystem | None = None
) -> Segment:
    return Segment.create(
        system or new_disk(), "/d", base, max_index_bytes=1000, index_interval_bytes=interval
    )


def put(segment: Segment, at: int, count: int = 1, *, timestamp: int = 0) -> bytes:
    records = batch(count, at=at, epoch=0, timestamp=timestamp)
    header = read_header(records)
    segment.append(records, [(0, header)])
    return bytes(records)


def get(segment: Segment, offset: int, size: int = 1 << 20) -> bytes | None:
    found = segment.read(offset, size, max_position=segment.size, min_one=True)
    return None if found is None else segment.region(found.first.position, found.size).read()


@pytest.mark.conformance("SG-1")
@pytest.mark.parametrize(
    ("base", "largest"),
    [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (2**31, 2**32)],
)
def test_an_offset_that_the_index_cannot_express_is_not_appended(base: int, largest: int) -> None:
    segment = new_segment(base)
    assert not segment.holds_offset(largest)
    with pytest.raises(AssertionError, match="before its offsets overflow"):
        segment.append(batch(), [(0, read_header(batch())._replace(base_offset=largest))])
    assert segment.size == 0


@pytest.mark.parametrize("entries", [None, 0, 1], ids=["ours", "an empty index", "one entry"])
def test_little_is_read_to_find_an_offset_whatever_the_index_interval_is(
    entries: int | None,
) -> None:
    """An event loop walks from one index entry to the next. Apache Kafka leaves few of them."""
    disk = new_disk()
    log = open_log(disk, small_config(segment_bytes=1 << 20, index_interval_bytes=2**31 - 1))
    fill(log, 5000)
    log.close()
    if entries is not None:
        path = log.segments[0].path(INDEX_SUFFIX)
        disk.open(path).truncate(entries * ENTRY_SIZE)
    log = open_log(disk, log.config, clean=True)
    assert log.recovery.segments_recovered == (0 if entries is None else 1)
    (segment,) = log.segments
    disk.disk.costs = DiskCosts(read_per_byte=1)
    for find in (
        lambda: segment.locate(4000),
        lambda: segment.end_offset,
        log.offset_of_max_timestamp,
    ):
        disk.take_cost()
        assert find() is not None
        assert disk.take_cost() < 100_000 < segment.size


@pytest.mark.conformance("SG-2")
def test_an_empty_segment_reads_nothing() -> None:
    assert get(new_segment(), 40) is None


@pytest.mark.conformance("SG-3")
@pytest.mark.conformance("SG-4")
def test_a_read_starts_with_the_first_batch_that_reaches_its_offset() -> None:
    segment = new_segment()
    records = put(segment, 50, 2)
    assert get(segment, 41) == get(segment, 51) == records
    assert get(segment, 52) is None


@pytest.mark.conformance("SG-6")
@pytest.mark.parametrize("min_one", [False, True])
def test_a_read_that_may_reach_nothing_says_where_it_would_have_begun(min_one: bool) -> None:
    segment = new_segment()
    first, second = put(segment, 50), put(segment, 51)
    for offset, position in ((48, 0), (50, 0), (51, len(first))):
        found = segment.read(offset, 1, max_position=0, min_one=min_one)
        assert found is not None
        assert (found.first.position, found.size) == (position, 0)
    for offset in (52, 53):
        assert segment.read(offset, 1, max_position=0, min_one=min_one) is None
    assert segment.size == len(first) + len(second)


@pytest.mark.conformance("SG-7")
def test_append_two_truncate_one() -> None:
    segment = new_segment()
    for offset in range(40, 70):
        first = put(segment, offset)
        put(segment, offset + 1)
        segment.truncate_to(offset + 1)
        assert get(segment, offset) == first
        assert get(segment, offset + 1) is None


@pytest.mark.conformance("SG-8")
def test_an_empty_segment_that_is_cut_stays_fit_to_be_appended_to() -> None:
    segment_ms = 300_000
    log = open_log(new_disk(), small_config(segment_ms=segment_ms), wall_ms=WALL_MS)
    segment = log.segments.active
    assert segment.offset_index.entry_count == segment.time_index.entry_count == 0
    log.close()
    assert (segment.offset_index.size_in_bytes, segment.time_index.size_in_bytes) == (0, 0)

    log = open_log(log.local.file_system, log.config, clean=True)
    segment = log.segments.active
    segment.truncate_to(57, wall_ms=WALL_MS + 500)
    assert segment.waited_for_roll_ms(wall_ms=WALL_MS + 500, max_timestamp=-1) == 0
    assert not segment.indexes_full
    late = WALL_MS + 500 + segment_ms + 1
    assert segment.waited_for_roll_ms(wall_ms=late, max_timestamp=-1) == segment_ms + 1
    log.append_as_follower(batch(at=100, timestamp=-1), wall_ms=late)
    assert log.segments.base_offsets == [0]  # it was empty: waiting is no reason
    assert not segment.holds_offset(2**31 + 199)
    log.truncate_to(0)
    log.append_as_follower(batch(at=2**31 + 199, timestamp=-1), wall_ms=late)
    assert log.segments.base_offsets == [0, 2**31 + 199]  # but an offset that does not fit is


@pytest.mark.conformance("SG-9")
def test_the_largest_timestamp_is_found_again_after_a_truncation() -> None:
    size = len(batch())
    segment = new_segment(interval=2 * size - 1)
    for number in range(30):
        put(segment, 40 + number, timestamp=400 + 10 * number)
    assert segment.end_offset == 70
    assert segment.time_index.entry_count == 14
    segment.truncate_to(41)
    assert segment.time_index.entry_count == 0
    assert segment.max_timestamp.timestamp == 400
    assert segment.end_offset == 41


@given(
    times=st.lists(st.integers(-1, 50), min_size=1, max_size=12),
    kept=st.integers(0, 12),
    interval=st.sampled_from([0, 150, 10_000]),
)
def test_what_is_left_by_a_truncation_has_its_largest_timestamp(
    times: list[int], kept: int, interval: int
) -> None:
    """By the last entry of the time index and the batches behind it (LogSegment.truncateTo)."""
    segment = new_segment(0, interval=interval)
    for offset, timestamp in enumerate(times):
        put(segment, offset, timestamp=timestamp)
    segment.truncate_to(kept)
    left = times[:kept]
    largest = max(left, default=-1)
    assert segment.max_timestamp == (largest, left.index(largest) if largest >= 0 else 0)


@pytest.mark.conformance("SG-10")
def test_truncation_of_everything_leaves_a_segment_that_works() -> None:
    segment = new_segment()
    put(segment, 40, 2)
    segment.truncate_to(0, wall_ms=1000)
    assert segment.size == 0
    assert segment.waited_for_roll_ms(wall_ms=1000, max_timestamp=-1) == 0
    assert not segment.indexes_full
    records = put(segment, 40, 2)
    assert get(segment, 40) == records


@pytest.mark.conformance("SG-11")
def test_a_timestamp_leads_to_its_record() -> None:
    segment = new_segment()
    for number in range(10):
        put(segment, 40 + number, timestamp=400 + 10 * number)
    expected = {420: 42, 421: 43, 430: 43, 431: 44, 491: None, 401: 41, 399: 40}
    for timestamp, offset in expected.items():
        found = first_at_or_after([segment], timestamp, start_offset=40)
        assert (found and found.offset) == offset
    assert segment.max_timestamp.timestamp == 490
    found = youngest([segment])
    assert found is not None
    assert found.offset == 49


@pytest.mark.conformance("SG-12")
def test_a_segment_ends_after_its_last_batch() -> None:
    segment = new_segment()
    assert segment.end_offset == 40
    put(segment, 50, 3)
    assert segment.end_offset == 53


@pytest.mark.conformance("SG-20")
def test_truncation_to_a_gap_drops_what_lies_behind_it() -> None:
    segment = new_segment()
    first = put(segment, 40)
    put(segment, 43)
    segment.truncate_to(41)
    assert get(segment, 40) == first
    assert get(segment, 43) is None


@pytest.mark.conformance("SG-22")
@pytest.mark.conformance("UL-128")
def test_the_timestamp_of_the_first_batch() -> None:
    segment = new_segment()
    assert segment.first_batch_timestamp is None
    put(segment, 40, timestamp=7)
    put(segment, 41, timestamp=5)
    assert segment.first_batch_timestamp == 7


@pytest.mark.conformance("SG-23")
def test_a_segment_whose_files_are_missing_is_deleted_all_the_same() -> None:
    system = new_disk()
    segment = Segment.create(system, "/", 40, max_index_bytes=1000, index_interval_bytes=10)
    put(segment, 40, 3)
    assert not system.exists(segment.path(TRANSACTION_INDEX_SUFFIX))
    live = [segment.path(suffix) for suffix in SEGMENT_SUFFIXES]
    doomed = [path + DELETED_SUFFIX for path in live]
    assert segment.delete() == doomed
    assert segment.delete() == doomed
    assert [path for path in doomed if system.exists(path)] == doomed[:1]


def test_an_index_that_is_made_after_the_deletion_has_the_name_of_a_deleted_file() -> None:
    """A segment of the same base offset may live by then (LogSegment.changeFileSuffixes)."""
    system = new_disk()
    segment = new_segment(system=system)
    put(segment, 40, 3)
    index = segment.transaction_index
    assert not index.exists
    doomed = segment.delete()
    new_segment(system=system)
    live = system.list_directory("/d")
    segment.offset_index.resize(0)
    segment.time_index.resize(0)
    segment.transaction_index.append(AbortedTransaction(1, 40, 42, 43))
    made = set(system.list_directory("/d")) - set(live)
    assert {f"/d/{name}" for name in made} == set(doomed) - {segment.path(LOG_SUFFIX)}


def test_an_idle_segment_has_no_index_files() -> None:
    system = new_disk()
    segment = new_segment(system=system)
    put(segment, 40)
    assert system.list_directory("/d") == [f"{40:020d}.log"]
    assert not segment.indexes_full


def test_locating_against_a_naive_walk() -> None:
    chance = random.Random(5)
    segment = new_segment(0, interval=100)
    batches = []
    offset = 0
    for _ in range(100):
        offset += chance.randrange(4)
        count = chance.randrange(1, 5)
        batches.append((offset + count - 1, put(segment, offset, count)))
        offset += count
    for wanted in range(offset + 2):
        naive = next((records for last, records in batches if last >= wanted), None)
        assert get(segment, wanted, 1) == naive


# Preallocation.

ROOM = 1 << 20


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=30),
    st.lists(st.integers(1, 8), max_size=10),
    st.integers(0, 300),
    st.integers(24, 400),
)
def test_batches_that_come_together_are_indexed_as_those_that_come_alone(
    shapes: list[tuple[int, int]], together: list[int], interval: int, room: int
) -> None:
    """Full indexes too, which take no entry within an append."""
    alone, grouped = (
        Segment.create(new_disk(), "/d", 40, max_index_bytes=room, index_interval_bytes=interval)
        for _ in range(2)
    )
    at, batches = 40, []
    for count, timestamp in shapes:
        batches.append(bytes(batch(count, at=at, epoch=0, timestamp=timestamp)))
        at += count
    while batches:
        size = together.pop() if together else len(batches)
        taken, batches = batches[:size], batches[size:]
        records = b"".join(taken)
        grouped.append(records, list(walk(records)))
        # One by one, a full index would have had the log roll; within an append it does not.
        for each in taken:
            position = alone.size
            alone.pins.file.write(position, each)
            alone.size += len(each)
            alone.reindex(position, read_header(each))
    assert list(grouped.offset_index.entries()) == list(alone.offset_index.entries())
    assert list(grouped.time_index.entries()) == list(alone.time_index.entries())
    assert grouped.max_timestamp == alone.max_timestamp


def test_a_file_that_somebody_else_has_cut_ends_the_walk_with_an_error() -> None:
    system = new_disk()
    segment = new_segment(interval=10_000, system=system)
    for offset in range(40, 43):
        put(segment, offset)
    system.disk.file(segment.path(LOG_SUFFIX)).content.clear()
    with pytest.raises(CorruptRecordError, match="was cut to 0 bytes"):
        list(segment.headers())


def preallocated(system: FaultyFileSystem) -> Segment:
    return Segment.create(
        system, "/d", 40, max_index_bytes=1000, index_interval_bytes=10, preallocate_bytes=ROOM
    )


@pytest.mark.conformance("SG-19")
def test_a_preallocated_segment_shows_only_what_was_written() -> None:
    system = new_disk()
    segment = preallocated(system)
    assert segment.pins.file.size() == ROOM
    first, second = put(segment, 50, 2), put(segment, 60, 2)
    assert (segment.size, segment.end_offset) == (len(first) + len(second), 62)
    assert get(segment, 55) == second
    assert get(segment, 62) is None
    assert segment.pins.file.size() == ROOM


@pytest.mark.conformance("SG-19b")
def test_a_preallocated_segment_is_trimmed_when_it_is_done_with() -> None:
    system = new_disk()
    segment = preallocated(system)
    written = put(segment, 50, 2) + put(segment, 60, 2)
    segment.become_inactive()
    segment.close()
    again = Segment.load(system, "/d", 40, max_index_bytes=1000, index_interval_bytes=10)
    assert again.size == again.pins.file.size() == len(written)
    assert get(again, 40) == written
    appended = put(again, 70)
    assert get(again, 62) == appended


def test_preallocate_takes_a_whole_segment_and_gives_back_what_it_did_not_need() -> None:
    system = new_disk()
    log = open_log(system, small_config(preallocate=True))
    fill(log, 3)
    first = f"/d/t-0/{0:020d}.log"
    assert system.open(first).size() == log.config.segment_bytes
    log.roll()
    assert system.open(first).size() == log.segments[0].size
    assert log.segments.active.pins.file.size() == log.config.segment_bytes
    fill(log, 2)
    before = contents(log)
    log.close()
    assert system.open(f"/d/t-0/{3:020d}.log").size() == log.segments[1].size
    assert contents(open_log(system, log.config, clean=True, recovery_point=5)) == before


@pytest.mark.parametrize("seed", range(20))
def test_the_room_that_a_crash_leaves_behind_is_cut_off(seed: int) -> None:
    system = new_disk(seed)
    log = open_log(system, small_config(preallocate=True))
    fill(log, 8)
    log.flush()
    synced, end = contents(log), log.log_end_offset
    fill(log, 3)
    system.crash()
    log = open_log(system.reopen(), log.config, recovery_point=end)
    assert contents(log).startswith(synced)
    assert log.segments.active.pins.file.size() == log.segments.active.size
    start = log.log_end_offset
    fill(log, 2)
    assert log.log_end_offset == start + 2


def test_a_disk_without_room_for_a_segment_says_so_before_anything_is_written() -> None:
    system = new_disk()
    log = open_log(system, small_config(preallocate=True))
    fill(log, 1)
    system.disk.capacity = system.disk.used() + 100
    with pytest.raises(KafkaStorageError, match="space"):
        log.roll()


def test_a_segment_waits_from_the_first_known_time() -> None:
    segment = new_segment()
    put(segment, 40, timestamp=-1)
    segment.created_ms = None
    assert segment.waited_for_roll_ms(wall_ms=None, max_timestamp=-1) == 0
    assert segment.waited_for_roll_ms(wall_ms=1000, max_timestamp=-1) == 0
    assert segment.waited_for_roll_ms(wall_ms=1500, max_timestamp=-1) == 500
    assert segment.waited_for_roll_ms(wall_ms=None, max_timestamp=-1) == 0
