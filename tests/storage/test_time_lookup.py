"""What is read of a log's files to answer a time: index entries, and one segment's batches."""

import random
import struct

import pytest

from storage.config import LogConfig
from storage.log import Log
from storage.testing import FaultyFileSystem
from storage.testing.disk import Fault
from tests.storage.logs import batch, joined, new_disk, open_log

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
    system = log.file_system
    assert isinstance(system, Watched)
    system.looked_at.clear()
    found = log.offset_for_timestamp(record * STEP_MS - early)
    assert found == (record * STEP_MS, record, 0)
    assert system.looked_at == {f"/d/t-0/{record - record % EACH:020d}.log"}


def test_a_time_after_the_last_reads_no_records(log: Log) -> None:
    system = log.file_system
    assert isinstance(system, Watched)
    system.looked_at.clear()
    assert log.offset_for_timestamp(SEGMENTS * EACH * STEP_MS) is None
    assert system.looked_at == set()


def test_the_youngest_record_is_read_where_it_lies(log: Log) -> None:
    system = log.file_system
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
