"""Which segments go: the plan against a naive twin, and the log that carries it out."""

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given, strategies as st

from storage.config import LogConfig
from storage.errors import KafkaStorageError, OffsetOutOfRangeError
from storage.log.log import Log
from storage.log.retention import DeletionCause, plan
from storage.testing import Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import (
    WALL_MS,
    bases,
    contents,
    fill,
    lead,
    new_disk,
    offsets,
    open_log,
    small_config,
    started,
    unlink_due,
)

BOTH = frozenset({"compact", "delete"})
COMPACT = frozenset({"compact"})


@attrs.frozen
class Part:
    base_offset: int
    end_offset: int
    size: int
    newest: int

    def newest_ms(self) -> int:
        return self.newest


# The plan.


def twin(
    parts: list[Part], config: LogConfig, *, start: int, high_watermark: int, wall_ms: int
) -> tuple[int, int, bool]:
    """Return how many parts go, where the log then starts, and whether it begins anew."""
    left = list(parts)
    begun_anew = False

    def go(breaches: Callable[[Part, Part | None], bool]) -> None:
        nonlocal start, begun_anew
        going = 0
        for index, part in enumerate(left):
            after = left[index + 1] if index + 1 < len(left) else None
            if part.end_offset > high_watermark or (after is None and part.size == 0):
                break
            if not breaches(part, after):
                break
            going += 1
        if going == len(left):
            end = left[-1].end_offset
            left.append(Part(end, end, 0, wall_ms))
            begun_anew = True
        del left[:going]
        if going:
            start = max(start, left[0].base_offset)

    go(lambda _, after: after is not None and after.base_offset <= start)
    if "delete" in config.cleanup_policy:
        if config.retention_bytes >= 0:
            over = sum(part.size for part in left) - config.retention_bytes

            def too_much(part: Part, _after: Part | None) -> bool:
                nonlocal over
                if over - part.size < 0:
                    return False
                over -= part.size
                return True

            go(too_much)
        if config.retention_ms >= 0:
            go(lambda part, _: wall_ms - part.newest > config.retention_ms)
    return len(parts) + begun_anew - len(left), start, begun_anew


@st.composite
def logs(draw: st.DrawFn) -> list[Part]:
    base, parts = draw(st.integers(0, 5)), []
    for last in [False] * draw(st.integers(0, 5)) + [True]:
        records = draw(st.integers(0 if last else 1, 4))
        size = records * draw(st.integers(1, 5))
        parts.append(Part(base, base + records, size, draw(st.integers(0, 60))))
        base += records
    return parts


@given(
    parts=logs(),
    start_share=st.floats(0, 1),
    share=st.floats(0, 1),
    retention_bytes=st.integers(-1, 40),
    retention_ms=st.integers(-1, 40),
    policy=st.sampled_from([frozenset({"delete"}), COMPACT, BOTH]),
)
def test_the_plan_is_what_a_cause_at_a_time_comes_to(
    *,
    parts: list[Part],
    start_share: float,
    share: float,
    retention_bytes: int,
    retention_ms: int,
    policy: frozenset[str],
) -> None:
    low, end = parts[0].base_offset, parts[-1].end_offset
    high_watermark = low + round((end - low) * share)
    start = low + round((high_watermark - low) * start_share)
    config = LogConfig(
        retention_bytes=retention_bytes, retention_ms=retention_ms, cleanup_policy=policy
    )
    going = plan(
        parts,
        config,
        log_start_offset=start,
        high_watermark=high_watermark,
        log_end_offset=end,
        wall_ms=50,
    )
    count, new_start, anew = twin(
        parts, config, start=start, high_watermark=high_watermark, wall_ms=50
    )
    assert (going.count, going.rolls_first) == (count, anew)
    assert new_start <= high_watermark
    if going.count < len(parts):
        assert new_start >= parts[going.count].base_offset


def test_a_retention_plan_names_its_causes() -> None:
    parts = [Part(base, base + 10, 100, base) for base in range(0, 50, 10)]
    config = LogConfig(retention_bytes=300, retention_ms=975)
    going = plan(
        parts, config, log_start_offset=12, high_watermark=50, log_end_offset=50, wall_ms=1000
    )
    assert going.counts == {
        DeletionCause.LOG_START: 1,
        DeletionCause.SIZE: 1,
        DeletionCause.TIME: 1,
    }


@pytest.mark.conformance("UL-119")
@pytest.mark.conformance("UL-120")
def test_retention_takes_a_first_part_without_an_empty_last_segment() -> None:
    parts = [Part(base, base + 1, 1, 0 if base <= 5 else 100) for base in range(9)]
    at_once = LogConfig(retention_ms=50)

    def count(parts: list[Part], wall_ms: int) -> int:
        end = parts[-1].end_offset
        return plan(
            parts,
            at_once,
            log_start_offset=0,
            high_watermark=end,
            log_end_offset=end,
            wall_ms=wall_ms,
        ).count

    assert count([*parts, Part(9, 9, 0, 0)], 99) == 6
    assert count([*parts, Part(9, 9, 0, 0)], 1000) == 9
    assert count([*parts, Part(9, 10, 1, 0)], 1000) == 10


# The log.


def log_of(
    records: int = 15, *, per_segment: int = 5, wall_ms: int = WALL_MS, **changes: object
) -> Log:
    """Records at the wall time, so many to a segment, all of them committed."""
    log = open_log(new_disk(), small_config(**changes))
    for index in range(records):
        if index and index % per_segment == 0:
            log.roll()
        lead(log, timestamp=wall_ms)
    log.update_high_watermark(records)
    return log


@pytest.mark.conformance("UL-76")
def test_the_oldest_go_while_the_log_is_larger_than_it_may_be() -> None:
    log = log_of()
    log.config = small_config(retention_bytes=log.size * 10 // 15)
    assert log.delete_old_segments(WALL_MS) == 1
    assert (len(log.segments), log.log_start_offset) == (2, 5)


@pytest.mark.conformance("UL-77")
def test_a_log_smaller_than_it_may_be_loses_nothing() -> None:
    log = log_of(retention_bytes=1 << 20)
    assert log.delete_old_segments(WALL_MS) == 0


@pytest.mark.conformance("UL-78")
def test_all_segments_that_are_too_old_go_and_an_empty_one_is_left() -> None:
    log = log_of(retention_ms=10_000)
    assert log.delete_old_segments(WALL_MS + 10_001) == 3
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([15], 15, 15)
    assert contents(log) == b""
    assert lead(log) == 15


@pytest.mark.conformance("UL-79")
def test_segments_that_are_not_too_old_stay() -> None:
    log = log_of(retention_ms=10_000)
    assert log.delete_old_segments(WALL_MS + 10_000) == 0


def test_records_from_the_future_stay_until_then() -> None:
    log = log_of(retention_ms=10_000, wall_ms=WALL_MS + 50_000)
    assert log.delete_old_segments(WALL_MS) == 0
    assert log.delete_old_segments(WALL_MS + 60_001) == 3


def test_records_without_a_time_are_as_old_as_their_file() -> None:
    system = new_disk()
    system.disk.wall_ms = lambda: WALL_MS
    log = open_log(system, small_config(retention_ms=10_000))
    fill(log, 3, timestamp=-1)
    log.update_high_watermark(3)
    assert log.delete_old_segments(WALL_MS + 10_000) == 0
    assert log.delete_old_segments(WALL_MS + 10_001) == 1


@pytest.mark.conformance("UL-80")
def test_a_compacted_log_loses_only_what_is_below_its_start() -> None:
    log = log_of(retention_ms=10_000, retention_bytes=0, cleanup_policy=COMPACT)
    assert log.delete_old_segments(WALL_MS + 10_001) == 0
    log.increment_log_start_offset(7)
    assert log.delete_old_segments(WALL_MS + 10_001) == 1
    assert (bases(log), log.log_start_offset) == ([5, 10], 7)


@pytest.mark.conformance("UL-81")
def test_a_log_that_is_compacted_and_deleted_loses_old_segments() -> None:
    log = log_of(retention_ms=10_000, cleanup_policy=BOTH)
    assert log.delete_old_segments(WALL_MS + 10_001) == 3


@pytest.mark.conformance("UL-27")
def test_a_segment_below_the_start_does_not_keep_the_ones_behind_it() -> None:
    """It is young; the next one is old, and would have to wait for it."""
    log = open_log(new_disk(), small_config(retention_ms=10_000))
    for young in (True, False, True):
        lead(log, timestamp=WALL_MS + 20_000 * young)
        log.roll()
    log.update_high_watermark(3)
    assert log.delete_old_segments(WALL_MS + 20_000) == 0
    log.increment_log_start_offset(1)
    assert log.delete_old_segments(WALL_MS + 20_000) == 2
    assert log.delete_old_segments(WALL_MS + 20_000) == 0
    assert log.log_start_offset == 2


@pytest.mark.conformance("UL-45")
@pytest.mark.parametrize("records", [0, 1, 25])
def test_deletion_does_not_move_the_end(records: int) -> None:
    log = log_of(records, retention_ms=0)
    log.delete_old_segments(WALL_MS + 1)
    assert log.log_end_offset == records
    assert len(log.segments) == 1
    assert log.delete_old_segments(WALL_MS + 1) == 0
    assert lead(log) == records


@pytest.mark.conformance("UL-104")
def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    for high_watermark in range(0, 100, 3):
        log = log_of(100, per_segment=10, retention_ms=0)
        log.update_high_watermark(0)
        log.update_high_watermark(high_watermark)
        log.delete_old_segments(WALL_MS + 1)
        first, *others = bases(log)
        assert log.log_start_offset <= high_watermark
        assert first <= high_watermark
        assert all(base > high_watermark for base in others)
    log = log_of(100, per_segment=10, retention_ms=0)
    log.delete_old_segments(WALL_MS + 1)
    assert (log.log_start_offset, bases(log), log.size) == (100, [100], 0)


@pytest.mark.conformance("UL-105")
def test_the_start_does_not_pass_the_high_watermark() -> None:
    log = log_of(25, retention_ms=0)
    log.update_high_watermark(22)
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(23)
    log.delete_old_segments(WALL_MS + 1)
    assert log.log_start_offset == 20


@pytest.mark.conformance("UL-26")
@pytest.mark.parametrize("empty_active", [False, True])
def test_snapshots_go_with_their_segments(empty_active: bool) -> None:
    log = open_log(new_disk(), small_config(retention_ms=10_000))
    for index in range(3):
        lead(log, producer_id=7, producer_epoch=0, base_sequence=index)
        log.roll()
    lead(log, producer_id=7, producer_epoch=0, base_sequence=3, timestamp=WALL_MS + 20_000)
    if empty_active:
        log.roll()
    log.update_high_watermark(log.log_end_offset)
    assert log.delete_old_segments(WALL_MS + 20_000) == 3
    assert log.log_start_offset == 3
    assert log.producers.snapshots == ([3, 4] if empty_active else [3])
    assert log.producers.producers[7].last_sequence == 3


@pytest.mark.conformance("UL-57")
def test_files_are_renamed_first_and_unlinked_later() -> None:
    system = new_disk()
    logs = started(system, config=small_config(retention_ms=10_000))
    log = logs.get_or_create(TopicPartition("t", 0))
    fill(log, 30)
    log.update_high_watermark(30)
    data = log.read(0, 1, max_offset_exclusive=30, min_one=True)
    count = log.delete_old_segments(WALL_MS + 10_001)
    doomed = [name for name in system.list_directory("/d/t-0") if name.endswith(".deleted")]
    assert len([name for name in doomed if ".log." in name]) == count
    assert unlink_due(logs, 0) == 0
    assert unlink_due(logs, 59_999) == 0
    assert set(doomed) <= set(system.list_directory("/d/t-0"))
    assert unlink_due(logs, 60_000) >= len(doomed)
    names = system.list_directory("/d/t-0")
    assert not [name for name in names if name.endswith(".deleted")]
    assert data.records is not None
    assert offsets(data.records.read()) == [0]


def test_a_start_in_the_middle_of_a_segment_lasts_once_it_is_checkpointed() -> None:
    system = new_disk()

    logs = started(system)
    log = logs.get_or_create(TopicPartition("t", 0))
    fill(log, 30)
    log.flush()
    log.update_high_watermark(30)
    log.increment_log_start_offset(22)
    log.delete_old_segments(WALL_MS)
    first = bases(log)[0]
    assert 0 < first < 22
    logs.checkpoint_log_start_offsets()
    system.detach()
    logs = started(system.reopen())
    again = logs.get_or_create(TopicPartition("t", 0))
    assert (again.log_start_offset, bases(again)[0]) == (22, first)


def test_a_disk_that_fails_closes_the_log() -> None:
    log = log_of(retention_ms=0)
    assert isinstance(log.local.file_system, FaultyFileSystem)
    log.local.file_system.inject(Fault(operation="rename", names="*.log"))
    with pytest.raises(KafkaStorageError):
        log.delete_old_segments(WALL_MS + 1)
    assert log.failed


@given(after=st.integers(0, 40), seed=st.integers(0, 1000), power=st.booleans())
def test_a_crash_in_the_middle_leaves_a_last_part_of_the_log(
    after: int, seed: int, power: bool
) -> None:
    system = new_disk(seed)
    log = open_log(system, small_config(retention_ms=0))
    fill(log, 30)
    log.flush()
    whole = contents(log)
    log.update_high_watermark(30)
    system.die_after(after)
    try:
        log.delete_old_segments(WALL_MS + 1)
        count_left = 0
    except KafkaStorageError:
        count_left = 30
    log.close_uncleanly()
    if power:
        system.crash()
    else:
        system.detach()
    again = open_log(system.reopen(), recovery_point=30)
    assert again.log_end_offset == 30
    assert whole.endswith(contents(again))
    assert 30 - again.log_start_offset <= (30 if power else count_left)
    assert lead(again) == 30
