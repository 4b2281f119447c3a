"""Reading, rolling, truncating, and the marks: log start, high watermark, log end."""

import itertools
import random

import pytest

from storage.batch.compression import Codec
from storage.batch.records import (
    Record,
    decode_batch,
    encode_batch,
)
from storage.errors import KafkaStorageError, OffsetOutOfRangeError, RegionAbortedError
from storage.log.log import Log
from storage.log.segment import LogOffsetMetadata
from storage.types import OffsetAndEpoch
from tests.storage.logs import (
    WALL_MS,
    bases,
    batch,
    contents,
    end_transaction,
    fill,
    headers,
    joined,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
)

ID = b"\7" * 16


def read(
    log: Log, offset: int, size: int = 1 << 20, *, upto: int | None = None, min_one: bool = True
) -> bytes:
    end = log.log_end_offset if upto is None else upto
    data = log.read(offset, size, max_offset_exclusive=end, min_one=min_one)
    return data.records.read() if data.records else b""


def committed(log: Log, offset: int) -> bytes:
    return read(log, offset, upto=log.last_stable_offset)


def first_unstable(log: Log) -> int | None:
    return log.producers.first_unstable_offset


# Reading.


@pytest.mark.conformance("UL-39")
@pytest.mark.conformance("UL-7")
def test_every_offset_below_the_end_reads_and_the_end_reads_nothing() -> None:
    log = open_log(new_disk())
    fill(log, 50)
    for offset in range(50):
        assert offsets(read(log, offset))[0] == offset
    assert read(log, 50) == b""


@pytest.mark.conformance("UL-39b")
@pytest.mark.conformance("SG-5")
def test_a_missing_offset_reads_from_the_next_batch() -> None:
    log = open_log(new_disk())
    for at in range(0, 300, 5):
        log.append_as_follower(batch(at=at))
    for offset in range(295):
        assert offsets(read(log, offset))[0] == -(-offset // 5) * 5


@pytest.mark.conformance("UL-42")
def test_a_read_outside_the_log_is_out_of_range() -> None:
    log = open_log(new_disk(), log_start_offset=1024)
    fill(log, 1)
    assert read(log, 1025) == b""
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError):
            read(log, offset)


@pytest.mark.conformance("UL-41")
@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_min_one_returns_the_first_batch_whole(size: int) -> None:
    log = open_log(new_disk())
    fill(log, 20, size=200)
    for offset in range(20):
        assert offsets(read(log, offset, size))[0] == offset


@pytest.mark.conformance("UL-41b")
def test_without_min_one_a_read_is_cut_at_its_limit() -> None:
    log = open_log(new_disk())
    fill(log, 5)
    assert read(log, 0, 0, min_one=False) == b""
    data = log.read(0, 1, max_offset_exclusive=5, min_one=False)
    assert data.records is not None
    assert data.records.size == 1
    assert data.first_entry_incomplete
    assert not log.read(0, 1, max_offset_exclusive=5, min_one=True).first_entry_incomplete


@pytest.mark.conformance("UL-43")
@pytest.mark.parametrize("codec", list(Codec))
def test_either_offset_of_a_batch_reads_all_of_it(codec: Codec) -> None:
    log = open_log(new_disk())
    for _ in range(2):
        lead(log, 2, codec=codec)
    for offset, first in [(0, 0), (1, 0), (2, 2), (3, 2)]:
        assert offsets(read(log, offset))[0] == first


@pytest.mark.conformance("UL-7b")
def test_a_read_never_reaches_the_high_watermark() -> None:
    log = open_log(new_disk())
    fill(log, 40)
    for high_watermark in range(0, 41, 3):
        log.update_high_watermark(high_watermark)
        for offset in range(41):
            found = offsets(read(log, offset, upto=log.high_watermark))
            assert bool(found) == (offset < high_watermark)
            assert all(each < high_watermark for each in found)


@pytest.mark.conformance("UL-1")
def test_a_bound_at_the_end_still_holds_after_a_roll() -> None:
    log = open_log(new_disk())
    fill(log, 3)
    log.update_high_watermark(3)
    log.roll()
    assert offsets(read(log, 0, upto=log.high_watermark)) == [0, 1, 2]
    lead(log)
    assert read(log, 3, upto=log.high_watermark) == b""


@pytest.mark.conformance("UL-40")
def test_a_segment_that_lost_its_data_is_read_past() -> None:
    log = open_log(new_disk())
    fill(log, 3)
    log.roll()
    fill(log, 3)
    log.segments[0].truncate_to(0)
    assert offsets(read(log, 0))[0] == 3


@pytest.mark.conformance("UL-58")
@pytest.mark.conformance("UL-62")
def test_a_null_value_and_no_timestamp_come_back() -> None:
    log = open_log(new_disk())
    sent = memoryview(bytearray(encode_batch([Record(timestamp=-1, value=None)])))
    log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
    [record] = decode_batch(read(log, 0))
    assert (record.value, record.timestamp) == (None, -1)


def test_a_read_has_its_segment_and_position() -> None:
    log = open_log(new_disk())
    fill(log, 20)
    data = log.read(13, 1, max_offset_exclusive=20, min_one=True)
    segment = log.segments.floor(13)
    assert segment is not None
    assert data.offset_metadata.segment_base_offset == segment.base_offset == 12
    assert data.offset_metadata.position == data.records.position  # type: ignore[union-attr]
    end = log.read(20, 1, max_offset_exclusive=20, min_one=True).offset_metadata
    assert end == log.local.log_end_offset_metadata
    assert end.position - log.local.offset_metadata(19).position == headers(log)[-1].size


@pytest.mark.conformance("UL-127")
def test_an_offset_outside_the_log_has_no_position() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    for offset in (7, -1):
        assert log.local.offset_metadata(offset) == LogOffsetMetadata(offset)


# Regions on their way.


def test_truncation_aborts_what_is_on_its_way_from_beyond_it() -> None:
    log = open_log(new_disk())
    fill(log, 20)
    below = log.read(0, 1, max_offset_exclusive=20, min_one=True).records
    beyond = log.read(15, 1, max_offset_exclusive=20, min_one=True).records
    other = log.read(18, 1, max_offset_exclusive=20, min_one=True).records
    assert below
    assert beyond
    assert other
    log.truncate_to(10)
    assert offsets(below.read()) == [0]
    for region in (beyond, other):
        with pytest.raises(RegionAbortedError):
            region.read()
    log.truncate_fully_and_start_at(50)
    with pytest.raises(RegionAbortedError):
        below.read()


def test_deletion_waits_for_what_is_on_its_way() -> None:
    log = open_log(new_disk())
    fill(log, 30)
    region = log.read(0, 1, max_offset_exclusive=30, min_one=True).records
    log.update_high_watermark(30)
    log.increment_log_start_offset(13)
    assert log.delete_segments_below_log_start() == 1
    assert region is not None
    assert offsets(region.read()) == [0]
    file = region.file
    region.release()
    with pytest.raises(ValueError, match="closed"):
        file.size()


# Rolling.


@pytest.mark.conformance("UL-14")
@pytest.mark.conformance("UL-3")
def test_a_full_segment_rolls_before_the_append() -> None:
    size = len(batch())
    log = open_log(new_disk(), small_config(segment_bytes=10 * size))
    assert [lead(log) for _ in range(10)] == list(range(10))
    assert list(bases(log)) == [0]
    assert lead(log) == 10
    assert list(bases(log)) == [0, 10]


@pytest.mark.conformance("UL-11")
def test_a_segment_rolls_when_its_records_span_segment_ms() -> None:
    log = open_log(new_disk(), small_config(segment_ms=1000))
    lead(log, timestamp=WALL_MS, wall_ms=WALL_MS + 90_000)  # an empty segment never rolls
    lead(log, timestamp=WALL_MS + 1000, wall_ms=WALL_MS)
    assert list(bases(log)) == [0]
    lead(log, timestamp=WALL_MS + 1001, wall_ms=WALL_MS)
    assert list(bases(log)) == [0, 2]


@pytest.mark.conformance("UL-11")
def test_without_timestamps_a_segment_rolls_on_the_wall_clock() -> None:
    log = open_log(new_disk(), small_config(segment_ms=1000), wall_ms=WALL_MS)
    lead(log, timestamp=-1, wall_ms=WALL_MS + 5000)
    assert list(bases(log)) == [0]
    lead(log, timestamp=-1, wall_ms=WALL_MS + 5001)
    assert list(bases(log)) == [0, 1]
    lead(log, timestamp=-1, wall_ms=WALL_MS + 5500)
    assert list(bases(log)) == [0, 1]


@pytest.mark.conformance("UL-13")
def test_jitter_rolls_a_segment_earlier_and_no_earlier_than_that() -> None:
    log = open_log(new_disk(), small_config(segment_ms=100_000, segment_jitter_ms=2000))
    lead(log)
    lead(log, timestamp=WALL_MS + 98_000)
    assert list(bases(log)) == [0]
    lead(log, timestamp=WALL_MS + 100_000)
    assert list(bases(log)) == [0, 2]


def test_rolling_an_empty_active_segment_keeps_one() -> None:
    log = open_log(new_disk())
    log.roll()
    assert list(bases(log)) == [0]
    fill(log, 2)
    log.roll()
    log.roll()
    assert list(bases(log)) == [0, 2]
    assert lead(log) == 2


def test_a_full_index_rolls_the_segment() -> None:
    log = open_log(
        new_disk(),
        small_config(segment_bytes=1 << 20, segment_index_bytes=48, index_interval_bytes=1),
    )
    fill(log, 20)
    assert list(bases(log)) == [0, 7, 14]
    assert offsets(contents(log)) == list(range(20))


def test_an_append_of_more_batches_than_an_index_can_hold_is_found_and_recovered() -> None:
    system = new_disk()
    config = small_config(segment_bytes=1 << 20, segment_index_bytes=48, index_interval_bytes=1)
    log = open_log(system, config)
    log.append_as_follower(joined(*(batch(at=offset) for offset in range(20))))
    fill(log, 1)
    before = contents(log)
    assert list(bases(log)) == [0, 20]
    system.detach()
    log = open_log(system.reopen(), config)
    assert contents(log) == before
    assert offsets(before) == list(range(21))


@pytest.mark.conformance("UL-56")
def test_indexes_are_trimmed_by_a_roll_and_resized_by_a_truncation() -> None:
    log = open_log(new_disk())
    fill(log, 30)
    closed = log.segments[0]
    assert closed.offset_index.length == closed.offset_index.size_in_bytes
    assert closed.time_index.length == closed.time_index.size_in_bytes
    log.truncate_to(0)
    [segment] = log.segments
    assert segment.offset_index.length == 1200
    assert segment.time_index.length == 1200
    assert (segment.offset_index.max_entries, segment.time_index.max_entries) == (150, 100)


@pytest.mark.conformance("UL-17")
def test_segments_between_two_offsets() -> None:
    log = open_log(new_disk())
    for _ in range(2):
        fill(log, 10)
        log.roll()

    def between(low: int, high: int) -> list[int]:
        return [segment.base_offset for segment in log.segments.between(low, high)]

    assert between(10, 10) == between(15, 15) == []
    assert between(0, 21) == [0, 10, 20]
    assert between(1, 5) == [0]
    assert between(13, 21) == [10, 20]
    assert between(13, 17) == [10]
    with pytest.raises(ValueError, match="backwards"):
        between(10, 0)


@pytest.mark.conformance("UL-12")
def test_an_empty_segment_that_is_rolled_onto_is_made_anew() -> None:
    log = open_log(new_disk())
    log.roll()
    assert bases(log) == [0]
    log.append_as_follower(batch(epoch=0))
    log.append_as_follower(batch(at=1, epoch=0))
    assert bases(log) == [0]
    log.roll()
    assert bases(log) == [0, 2]
    assert not log.segments.active.indexes_full  # opens the index
    log.segments.active.offset_index.resize(0)
    log.append_as_follower(batch(at=2, epoch=0))
    assert bases(log) == [0, 2]
    assert not log.segments.active.indexes_full
    assert log.segments.active.offset_index.max_entries > 1
    assert [offsets(read(log, each))[0] for each in (0, 1, 2)] == [0, 1, 2]


@pytest.mark.conformance("UL-33")
def test_each_roll_takes_a_snapshot_of_the_producers() -> None:
    log = open_log(new_disk())
    for sequence in range(3):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.roll()
    assert log.producers.snapshots == [1, 2, 3]
    log.flush()
    assert log.producers.snapshots == [1, 2, 3]


@pytest.mark.conformance("UL-16")
def test_a_flush_reaches_the_end() -> None:
    log = open_log(new_disk())
    fill(log, 100)
    log.flush()
    assert log.recovery_point == 100
    assert offsets(contents(log)) == list(range(100))


def test_a_flush_that_a_truncation_overtook_is_not_believed() -> None:
    log = open_log(new_disk())
    fill(log, 30)
    plan = log.flush_plan()
    plan.sync()
    log.truncate_to(5)
    fill(log, 10)
    assert not log.local.commit_flush(plan)
    assert log.recovery_point <= 5
    log.flush()
    assert log.recovery_point == 15


def test_a_flush_may_run_while_its_segments_are_deleted() -> None:
    log = open_log(new_disk())
    fill(log, 30)
    plan = log.flush_plan()
    log.truncate_fully_and_start_at(99)
    plan.sync()
    assert not log.local.commit_flush(plan)
    assert log.recovery_point == 99


# The marks.


@pytest.mark.conformance("UL-6")
def test_the_high_watermark_stays_inside_the_log() -> None:
    log = open_log(new_disk())
    assert log.high_watermark == 0
    lead(log, 3)
    assert log.high_watermark == 0
    assert log.update_high_watermark(1)
    assert log.update_high_watermark(5)
    assert log.high_watermark == 3
    log.append_as_follower(batch(3, at=3))
    log.update_high_watermark(6)
    assert log.high_watermark == 6
    log.truncate_to(3)
    assert log.high_watermark == 3
    lead(log)
    assert log.high_watermark == 3
    log.truncate_fully_and_start_at(4)
    assert log.high_watermark == log.log_end_offset == log.log_start_offset == 4


@pytest.mark.conformance("UL-111")
@pytest.mark.conformance("UL-112")
def test_a_listener_is_called_with_the_new_high_watermark_in_place() -> None:
    heard: list[int] = []

    log = open_log(new_disk())
    log.on_moved = lambda: heard.append(log.high_watermark)
    lead(log, 3)
    lead(log, 3)
    log.update_high_watermark(4)
    log.update_high_watermark(4)
    log.truncate_to(3)
    lead(log, 3)
    log.truncate_fully_and_start_at(4)
    assert [each for each, _ in itertools.groupby(heard)] == [0, 4, 3, 4]


@pytest.mark.conformance("UL-90")
def test_no_committed_read_sees_an_open_transaction_wherever_the_high_watermark_is() -> None:
    log = open_log(new_disk(), small_config(segment_bytes=1 << 20))
    sequence = 0
    while log.log_end_offset < 50:
        started = log.log_end_offset
        lead(log, producer_id=15, producer_epoch=0, base_sequence=sequence, transactional=True)
        sequence += 1
        for mark in range(started, log.log_end_offset + 1):
            log.update_high_watermark(mark)
            assert log.last_stable_offset <= started
            assert committed(log, started) == b""
        end_transaction(log, 15, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.conformance("UL-107")
def test_an_update_of_the_high_watermark_returns_whether_it_changed() -> None:
    log = open_log(new_disk())
    lead(log, 100, size=1)
    assert [log.update_high_watermark(each) for each in (99, 99, 100, 100, 101)] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.conformance("UL-105")
def test_the_log_start_is_not_raised_past_the_high_watermark() -> None:
    log = open_log(new_disk())
    fill(log, 20)
    log.update_high_watermark(10)
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(11)
    assert log.increment_log_start_offset(10)
    assert not log.increment_log_start_offset(9)
    with pytest.raises(OffsetOutOfRangeError):
        read(log, 9)


@pytest.mark.conformance("UL-75")
def test_segments_below_the_log_start_are_deleted() -> None:
    log = open_log(new_disk())
    for _ in range(2):
        fill(log, 5)
        log.roll()
    fill(log, 5)
    log.update_high_watermark(15)
    for start, left in [(1, 3), (6, 2), (15, 1)]:
        log.increment_log_start_offset(start)
        log.delete_segments_below_log_start()
        assert (len(log.segments), log.log_start_offset) == (left, start)


@pytest.mark.conformance("UL-85")
@pytest.mark.conformance("UL-86")
@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([(0, 0), (1, 5), (2, 10)], ["1@5", "2@10"]),
        ([(0, 0), (1, 7), (2, 10)], ["0@5", "1@7", "2@10"]),
    ],
)
def test_the_epochs_follow_the_log_start(entries: list[tuple[int, int]], left: list[str]) -> None:
    log = open_log(new_disk())
    for at in range(15):
        epoch = max(epoch for epoch, start in entries if start <= at)
        log.append_as_follower(batch(at=at, epoch=epoch))
    log.update_high_watermark(15)
    log.increment_log_start_offset(5)
    assert [str(entry) for entry in log.leader_epoch_cache.entries] == left


@pytest.mark.conformance("UL-88")
def test_without_transactions_the_log_is_stable_up_to_the_high_watermark() -> None:
    log = open_log(new_disk())
    lead(log)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_an_open_transaction_holds_the_last_stable_offset_until_its_end_is_replicated() -> None:

    log = open_log(new_disk())
    fill(log, 3)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 3
    end_transaction(log, 4, commit=True)
    assert log.last_stable_offset == 3
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


# Truncating.


@pytest.mark.conformance("UL-55")
def test_truncation_and_refilling() -> None:
    log = open_log(new_disk())
    fill(log, 50)
    size = log.size
    for offset in (50, 51):
        assert not log.truncate_to(offset)
        assert (log.log_end_offset, log.size) == (50, size)
    assert log.truncate_to(25)
    assert offsets(contents(log)) == list(range(25))
    log.truncate_to(0)
    assert (log.log_end_offset, log.size) == (0, 0)
    fill(log, 50)
    assert (log.log_end_offset, log.size) == (50, size)
    log.truncate_fully_and_start_at(41)
    assert (log.log_end_offset, log.size) == (41, 0)
    fill(log, 1)
    log.truncate_to(0)
    assert (log.log_end_offset, log.size) == (0, 0)


def test_the_epoch_of_a_batch_that_is_cut_inside_stays_known_up_to_the_cut() -> None:
    file_system = new_disk()
    log = open_log(file_system)
    lead(log, 5, epoch=0)
    lead(log, 5, epoch=1)
    log.truncate_to(7)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=1)
    log.append_as_follower(batch(3, at=7, epoch=2))
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(offset=5, leader_epoch=0)
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=1)
    log.close()
    read_again = open_log(file_system, recovery_point=0)
    assert read_again.end_offset_for_epoch(1) == OffsetAndEpoch(offset=7, leader_epoch=0)


def test_truncation_below_zero_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="truncation to -1"):
        open_log(new_disk()).truncate_to(-1)


@pytest.mark.conformance("UL-19")
def test_truncation_to_the_end_drops_an_epoch_that_has_written_nothing() -> None:
    for offset in (1, 2):
        log = open_log(new_disk())
        lead(log, epoch=0)
        log.leader_epoch_cache.assign(1, 1)
        assert log.latest_epoch == 1
        assert not log.truncate_to(offset)
        assert log.latest_epoch == 0


@pytest.mark.conformance("UL-87")
def test_the_epochs_follow_a_truncation() -> None:
    log = open_log(new_disk())
    for epoch, count in [(0, 10), (1, 6), (2, 6)]:
        fill(log, count, epoch=epoch)
    for offset, left in [(20, 3), (11, 2), (10, 1), (0, 0)]:
        log.truncate_to(offset)
        assert len(log.leader_epoch_cache.entries) == left


def test_where_an_epoch_ends() -> None:
    log = open_log(new_disk())
    fill(log, 10, epoch=0)
    fill(log, 6, epoch=3)
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(offset=10, leader_epoch=0)
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(offset=10, leader_epoch=0)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(offset=16, leader_epoch=3)
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(offset=-1, leader_epoch=-1)


@pytest.mark.conformance("UL-5")
def test_full_truncation_with_a_log_start_of_its_own() -> None:
    log = open_log(new_disk())
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    log.truncate_fully_and_start_at(2, 1)
    assert (log.log_end_offset, log.log_start_offset) == (2, 1)
    assert log.producers.producers == {}
    assert log.last_stable_offset == log.high_watermark == 2


@pytest.mark.conformance("UL-4")
@pytest.mark.conformance("UL-4b")
@pytest.mark.parametrize("fully", [False, True])
def test_truncation_forgets_transactions_that_it_cut_off(fully: bool) -> None:
    system = new_disk()
    log = open_log(system)
    fill(log, 3)
    lead(log, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    assert first_unstable(log) == 3
    system.detach()
    log = open_log(system.reopen())
    assert first_unstable(log) == 3
    if fully:
        log.truncate_fully_and_start_at(0)
    else:
        log.truncate_to(0)
    assert first_unstable(log) is None
    assert log.producers.producers == {}


@pytest.mark.conformance("UL-25")
def test_producers_follow_a_truncation() -> None:
    log = open_log(new_disk())
    for sequence in range(3):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.roll()
    for offset in (2, 1, 0):
        log.truncate_to(offset)
        assert log.producers.map_end_offset == offset
        assert (4 in log.producers.producers) == (offset > 0)
        if offset:
            assert log.producers.producers[4].last_sequence == offset - 1
        assert all(snapshot <= offset for snapshot in log.producers.snapshots)


@pytest.mark.conformance("UL-31")
def test_full_truncation_removes_the_snapshots() -> None:
    log = open_log(new_disk())
    for sequence in range(3):
        lead(log, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.roll()
    log.truncate_fully_and_start_at(29)
    assert (log.producers.snapshots, len(log.segments), log.producers.map_end_offset) == ([], 1, 29)


# Time.


def timed(log: Log, timestamps: list[int], *, epoch: int = 0) -> None:
    for timestamp in timestamps:
        lead(log, timestamp=timestamp, epoch=epoch)


@pytest.mark.conformance("UL-50")
def test_a_time_is_answered_with_the_epoch_of_its_batch() -> None:
    log = open_log(new_disk())
    assert (log.offset_for_timestamp(0), log.earliest_epoch) == (None, None)
    assert log.offset_of_max_timestamp() is None
    lead(log, timestamp=100, epoch=0)
    lead(log, timestamp=200, epoch=1)
    assert log.offset_for_timestamp(100) == (100, 0, 0)
    assert log.offset_for_timestamp(200) == (200, 1, 1)
    assert log.earliest_epoch == log.leader_epoch_cache.epoch_for_offset(0) == 0
    assert (log.log_end_offset, log.latest_epoch) == (2, 1)
    log.leader_epoch_cache.assign(2, 2)
    assert (log.log_end_offset, log.latest_epoch) == (2, 2)


@pytest.mark.conformance("LO-4")
@pytest.mark.conformance("UL-51")
def test_the_largest_timestamp_need_not_be_the_last() -> None:
    log = open_log(new_disk())
    timed(log, [0, 1, 2, 3, 4, 6, 5])
    assert log.offset_of_max_timestamp() == (6, 5, 0)


@pytest.mark.conformance("LO-3")
def test_the_largest_timestamp_of_a_log_that_was_truncated() -> None:
    log = open_log(new_disk())
    timed(log, list(range(20)))
    assert log.offset_of_max_timestamp() == (19, 19, 0)
    log.truncate_to(10)
    assert log.offset_of_max_timestamp() == (9, 9, 0)
    log.truncate_to(0)
    assert log.offset_of_max_timestamp() is None


def test_a_time_inside_a_batch_leads_to_its_record() -> None:
    log = open_log(new_disk())
    lead(log, timestamp=5)
    records = [Record(timestamp=each, value=b"v") for each in (10, 30, 20, 30)]
    sent = memoryview(bytearray(encode_batch(records, codec=Codec.ZSTD)))
    log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
    assert [log.offset_for_timestamp(each)[1] for each in (6, 11, 21)] == [1, 2, 2]  # type: ignore[index]
    assert log.offset_of_max_timestamp() == (30, 2, 0)


def test_time_lookups_against_a_naive_one() -> None:
    chance = random.Random(3)
    log = open_log(new_disk(), small_config(index_interval_bytes=50))
    timestamps = [chance.randrange(1000) for _ in range(300)]
    timed(log, timestamps)
    log.update_high_watermark(300)
    log.increment_log_start_offset(70)
    for timestamp in range(0, 1001, 13):
        naive = next((i for i in range(70, 300) if timestamps[i] >= timestamp), None)
        found = log.offset_for_timestamp(timestamp)
        assert (found and found.offset) == naive


@pytest.mark.conformance("UL-49")
def test_every_append_but_the_first_is_indexed_where_the_interval_is_a_byte() -> None:
    log = open_log(
        new_disk(),
        small_config(segment_bytes=1 << 20, segment_index_bytes=1 << 13, index_interval_bytes=1),
    )
    for at in range(100):
        log.append_as_follower(batch(at=at, timestamp=WALL_MS + at))
    assert log.segments.active.time_index.entry_count == 99
    assert log.segments.active.time_index.last_entry.timestamp == WALL_MS + 99


# The rest.


@pytest.mark.conformance("UL-48")
@pytest.mark.conformance("UL-48c")
def test_the_topic_id_is_on_disk_before_the_first_record() -> None:
    system = new_disk()
    log = open_log(system, topic_id=ID)
    assert not system.exists("/d/t-0/partition.metadata")
    lead(log)
    assert system.exists("/d/t-0/partition.metadata")
    log.close()
    assert open_log(system, clean=True).topic_id == ID


def test_a_closed_log_refuses_everything() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    log.close()
    log.close()
    for use in (lambda: lead(log), lambda: read(log, 0), lambda: log.truncate_to(0)):
        with pytest.raises(KafkaStorageError, match="closed"):
            use()


def test_a_follower_that_was_sent_nothing_whole_appends_nothing() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    for nothing in (b"", bytes(batch(at=2))[:-1]):
        info = log.append_as_follower(memoryview(bytearray(nothing)))
        assert (info.first_offset, info.record_count) == (None, 0)
    assert log.log_end_offset == 2


def test_a_log_that_has_failed_says_so_when_it_is_closed_and_writes_nothing() -> None:
    """As UnifiedLog.close does: its caller must not take it for synced."""
    disk = new_disk()
    log = open_log(disk)
    fill(log, 2)
    log.fail(OSError("the disk is gone"))
    changes = disk.changes
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="the disk is gone"):
            log.close()
    assert log.closed
    assert disk.changes == changes


def test_a_read_without_records_has_no_aborted_transactions() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    nothing = log.read(2, 100, max_offset_exclusive=2, min_one=True)
    assert log.aborted_transactions(nothing) == []


def test_a_high_watermark_over_a_cut_that_is_not_synced_is_not_written_down() -> None:
    """Found by a swarm: the power failed, and what had been cut came back as committed."""
    disk = new_disk()
    log = open_log(disk)
    fill(log, 1)
    log.flush()
    log.truncate_to(0)
    fill(log, 2, epoch=1)
    log.update_high_watermark(2)
    assert (log.high_watermark, log.lasting_high_watermark) == (2, 0)
    log.flush()
    assert log.lasting_high_watermark == 2
