"""Rolling: when a segment is full or old, and what a roll and a flush do to the files."""

import pytest

from tests.storage.logs import (
    WALL_MS,
    bases,
    batch,
    contents,
    fill,
    joined,
    lead,
    new_disk,
    offsets,
    open_log,
    read,
    small_config,
)


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
