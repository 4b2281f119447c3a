"""What is read of a log's files to answer a time: index entries, and one segment's batches."""

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from storage.batch.allowance import STEPS_PER_BATCH, STEPS_PER_OUTLINE, Allowance
from storage.batch.compression import Codec
from storage.batch.records import Record, encode_batch
from storage.config import LogConfig
from storage.log.log import Log
from storage.log.time_lookup import LongLookUpError, LongSearch, TimestampedOffset
from storage.testing import FaultyFileSystem
from storage.testing.disk import Fault
from tests.storage.logs import batch, joined, new_disk, open_log, small_config

SEGMENTS, EACH, STEP_MS = 1000, 3, 10
ONE = len(batch())
CONFIG = LogConfig(
    segment_bytes=EACH * ONE, segment_index_bytes=240, index_interval_bytes=ONE, segment_ms=2**62
)


class Watched(FaultyFileSystem):
    """Notes which `.log` files are read."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.looked_at: set[str] = set()

    def enter(self, operation: str, path: str, cost: float) -> Fault | None:
        if operation == "read" and path.endswith(".log"):
            self.looked_at.add(path)
        return super().enter(operation, path, cost)


@pytest.fixture(scope="module")
def log() -> Log:
    """As it is after a clean restart: nothing is in memory."""
    system = Watched()
    system.make_directory("/d")
    first = open_log(system, CONFIG)
    total = SEGMENTS * EACH
    for start in range(0, total, 150):
        first.append_as_follower(
            joined(
                *(batch(at=at, epoch=0, timestamp=at * STEP_MS) for at in range(start, start + 150))
            )
        )
    first.close()
    log = open_log(system, CONFIG, clean=True, recovery_point=total)
    assert len(log.segments) == SEGMENTS
    return log


@pytest.mark.parametrize("record", [0, 1, 700, 1499, 1500, 2998, 2999])
@pytest.mark.parametrize("early", [0, 3], ids=["exact", "between two"])
def test_only_the_segment_that_holds_the_answer_is_read(log: Log, record: int, early: int) -> None:
    system = log.local.file_system
    assert isinstance(system, Watched)
    system.looked_at.clear()
    found = log.offset_for_timestamp(record * STEP_MS - early)
    assert found == (record * STEP_MS, record, 0)
    assert system.looked_at == {f"/d/t-0/{record - record % EACH:020d}.log"}


def test_a_time_after_the_last_reads_no_records(log: Log) -> None:
    system = log.local.file_system
    assert isinstance(system, Watched)
    system.looked_at.clear()
    assert log.offset_for_timestamp(SEGMENTS * EACH * STEP_MS) is None
    assert system.looked_at == set()


def test_the_youngest_record_is_read_where_it_lies(log: Log) -> None:
    system = log.local.file_system
    assert isinstance(system, Watched)
    system.looked_at.clear()
    last = SEGMENTS * EACH - 1
    assert log.offset_of_max_timestamp() == (last * STEP_MS, last, 0)
    assert system.looked_at == {f"/d/t-0/{last - last % EACH:020d}.log"}


def test_a_largest_timestamp_that_only_the_index_knows_is_no_records() -> None:
    system = new_disk()
    log = open_log(system)
    for at in range(3):
        log.append_as_follower(batch(at=at, epoch=0, timestamp=1000 + at))
    log.close()
    index = system.open("/d/t-0/00000000000000000000.timeindex")
    index.write(index.size() - 12, struct.pack(">qi", 5000, 2))
    log = open_log(system, clean=True, recovery_point=3)
    assert log.recovery.clean
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(1001) == (1001, 1, 0)


# Searches that stop when their allowance is spent.


SHORT = 2 * STEPS_PER_BATCH + 3 * STEPS_PER_OUTLINE
"""The steps for one segment, three headers and one batch that is opened: the records are too many.
"""

TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def log_of(batches: list[list[int]]) -> Log:
    """A log with one record for each time; small segments, one index entry for each of them."""
    log = open_log(new_disk(), small_config(segment_bytes=400, index_interval_bytes=10_000))
    at = 0
    for times in batches:
        records = [Record(timestamp=each, key=b"k", value=b"v") for each in times]
        codec = Codec.ZSTD if at % 2 else Codec.NONE
        encoded = encode_batch(records, base_offset=at, leader_epoch=0, codec=codec)
        log.append_as_follower(memoryview(bytearray(encoded)))
        at += len(times)
    return log


def in_parts(
    look_up: Callable[..., TimestampedOffset | None],
    *asked: Any,
    meanwhile: Callable[[int], None] = lambda _: None,
) -> tuple[TimestampedOffset | None, int]:
    """Return what `look_up` comes to, and in how many parts; `meanwhile` happens after each."""
    after: LongSearch | None = None
    parts = 0
    while True:
        try:
            return look_up(*asked, allowance=Allowance(SHORT), after=after), parts
        except LongLookUpError as error:
            after = error.search
        after.run()
        parts += 1
        meanwhile(parts)


@given(st.lists(TIMES, min_size=1, max_size=30))
def test_a_search_in_parts_finds_what_one_at_once_finds(batches: list[list[int]]) -> None:
    log = log_of(batches)
    for timestamp in range(11):
        whole = log.offset_for_timestamp(timestamp)
        assert in_parts(log.offset_for_timestamp, timestamp)[0] == whole
    assert in_parts(log.offset_of_max_timestamp)[0] == log.offset_of_max_timestamp()


@given(
    st.lists(TIMES, min_size=1, max_size=30),
    st.integers(1, 4),
    st.data(),
)
def test_a_log_that_changes_amid_a_search_is_searched_as_it_is_then(
    batches: list[list[int]], when: int, data: st.DataObject
) -> None:
    log = log_of(batches)
    end = log.log_end_offset
    cut = data.draw(st.integers(0, end), label="cut")
    start = data.draw(st.integers(0, cut), label="start")

    def change(parts: int) -> None:
        if parts == when:
            log.truncate_to(cut)
            for _ in range(3):
                at = log.log_end_offset
                log.append_as_follower(batch(at=at, epoch=1, timestamp=5))
            log.update_high_watermark(log.log_end_offset)
            log.increment_log_start_offset(start)
            log.delete_segments_below_log_start()

    found, parts = in_parts(log.offset_for_timestamp, 5, meanwhile=change)
    if parts >= when:
        assert found == log.offset_for_timestamp(5)


@pytest.mark.parametrize("change", ["cut", "start"])
def test_an_answer_that_the_log_has_lost_meanwhile_is_looked_for_again(change: str) -> None:
    log = log_of([[5] * 6])
    log.update_high_watermark(log.log_end_offset)

    def lose(_: int) -> None:
        if change == "start":
            log.increment_log_start_offset(3)
        elif log.latest_epoch == 0:
            log.truncate_to(0)
            log.append_as_follower(batch(at=0, epoch=1, timestamp=9))

    found, _ = in_parts(log.offset_for_timestamp, 5, meanwhile=lose)
    assert found == ((5, 3, 0) if change == "start" else (9, 0, 1))


def test_a_batch_whose_header_promises_too_much_is_passed() -> None:
    """Its largest timestamp is not in it: compaction took that record, or nobody ever wrote it."""
    log = log_of([[1, 9, 2, 2, 2, 2], [2] * 6, [9]])
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(3)
    assert in_parts(log.offset_for_timestamp, 7) == ((9, 12, 0), 1)


def test_an_honest_allowance_takes_one_part() -> None:
    log = log_of([[each] * 6 for each in range(9)])
    assert log.offset_for_timestamp(8, allowance=Allowance()) == (8, 48, 0)
    assert log.offset_of_max_timestamp(allowance=Allowance()) == (8, 48, 0)
