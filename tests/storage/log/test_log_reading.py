"""Reads: by offset, by time, and as regions that are being sent."""

import random

import pytest

from storage.batch.compression import Codec
from storage.batch.records import (
    Record,
    decode_batch,
    encode_batch,
)
from storage.errors import OffsetOutOfRangeError, RegionAbortedError
from storage.log.log import Log
from storage.log.segment import LogOffsetMetadata
from tests.storage.logs import (
    WALL_MS,
    batch,
    fill,
    headers,
    lead,
    new_disk,
    offsets,
    open_log,
    read,
    small_config,
)

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
