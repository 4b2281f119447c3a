"""The bound on open files: which segments let go, and which files regions keep open."""

import gc
import random
from pathlib import Path

import pytest

from storage.errors import RegionAbortedError
from storage.filesystem import OsFile, OsFileSystem
from storage.log.file_region import Pins
from storage.log.log import Log
from storage.log.open_segments import LOOKS, OpenSegments
from storage.manager.log_manager import LogManager
from storage.testing import Fault, FaultyFileSystem
from storage.testing.file_system import FaultyFile
from storage.types import TopicPartition
from tests.storage.logs import (
    batch,
    contents,
    fill,
    lead,
    new_disk,
    open_log,
    small_config,
    started,
)

DESCRIPTORS = Path("/proc/self/fd")


class Counting(FaultyFileSystem):
    """Knows how many files are open."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.opened: list[FaultyFile] = []

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        file = super().open(path, create=create)
        self.opened = [each for each in self.opened if not each.closed] + [file]
        return file

    @property
    def held(self) -> int:
        return sum(not each.closed for each in self.opened)


def counting() -> Counting:
    system = Counting()
    system.make_directory("/d")
    return system


def region_at(log: Log, offset: int) -> object:
    return log.read(offset, 1, max_offset_exclusive=log.log_end_offset, min_one=True).records


def test_a_log_that_was_just_opened_holds_no_file() -> None:
    system = counting()
    log = open_log(system)
    fill(log, 50)
    log.close()
    assert system.held == 0
    for clean in (True, False):
        log = open_log(system, clean=clean, recovery_point=50)
        assert log.log_end_offset == 50
        assert system.held == 0
        log.close_uncleanly()


def test_an_unwritten_log_is_closed_without_a_write_or_a_sync() -> None:
    system = counting()
    log = open_log(system)
    fill(log, 50)
    log.close()
    log = open_log(system, clean=True, recovery_point=50)
    assert contents(log)
    assert log.offset_for_timestamp(0) is not None
    for operation in ("write", "truncate", "sync", "sync_directory", "rename", "remove"):
        system.inject(Fault(operation=operation, times=None))
    log.close()
    assert not log.failed
    assert log.recovery_point == 50


def test_however_many_logs_are_used_no_more_stay_open_than_the_limit() -> None:
    system = counting()
    logs = started(system, open_segments=OpenSegments(limit=5))
    used = [logs.get_or_create(TopicPartition("t", number)) for number in range(40)]
    most = 0
    for log in used * 3:
        lead(log)
        assert contents(log)
        most = max(most, system.held)
    # Each segment that is noted has its `.log` and perhaps its indexes; one more is in use.
    assert len(logs.open_segments) <= 6
    assert most <= 4 * 6
    before = [contents(log) for log in used]
    logs.shutdown()
    assert system.held == 0
    logs = started(system)
    assert logs.clean
    assert sorted(contents(log) for log in logs.logs()) == sorted(before)


def test_a_segment_that_is_being_sent_stays_open_and_can_be_aborted() -> None:
    system = counting()
    log = open_log(system, small_config(segment_bytes=1 << 20))
    fill(log, 10)
    region = log.read(9, 1, max_offset_exclusive=10, min_one=True).records
    assert region is not None
    log.local.open_segments.trim()
    assert not region.file.closed  # type: ignore[attr-defined]  # a FaultyFile
    log.truncate_to(5)
    with pytest.raises(RegionAbortedError):
        region.read()
    region.release()
    log.local.open_segments.trim()
    assert system.held == 0
    assert lead(log) == 5


def test_a_disk_that_fails_is_no_matter_of_the_log_that_needed_room() -> None:
    system = counting()
    segments = OpenSegments(limit=0)
    first = open_log(system, small_config(segment_bytes=1 << 20), open_segments=segments)
    fill(first, 10)  # its indexes have room that is to be trimmed
    other = Log.open(system, "/d/u-0", TopicPartition("u", 0), open_segments=segments)
    system.inject(Fault(operation="truncate", times=None, names=f"{0:020d}.index"))
    system.inject(Fault(operation="truncate", times=None, names=f"{0:020d}.timeindex"))
    assert lead(other) == 0
    assert not first.failed
    system.disk.faults.clear()
    assert lead(other) == 1
    assert lead(first) == 10
    indexed = [each.offset for each in first.segments.active.offset_index.entries()]
    assert indexed == sorted(set(indexed))


def test_the_oldest_go_first_and_the_pinned_are_passed_over() -> None:
    segments = OpenSegments(limit=2)
    log = open_log(new_disk(), small_config(segment_bytes=len(batch())), open_segments=segments)
    fill(log, 5)
    held = region_at(log, 0)
    for offset in (1, 2, 3):
        assert region_at(log, offset) is not None
    segments.trim()
    assert len(segments) == 2
    assert log.segments[0]._pins is not None
    assert log.segments[1]._pins is None
    del held
    assert region_at(log, 4) is not None
    segments.trim()
    assert log.segments[0]._pins is None


class Pinned:
    """A segment that is being sent, until `pinned` is cleared; it counts how often it was asked."""

    def __init__(self) -> None:
        self.pinned, self.asked = True, 0

    def release(self) -> bool:
        self.asked += 1
        return not self.pinned


def test_however_many_are_pinned_only_a_few_are_looked_at_each_time() -> None:
    """In a fetch of 9,999 partitions each read would look at thousands."""
    segments = [Pinned() for _ in range(100)]
    kept = OpenSegments(limit=10)
    for number, segment in enumerate(segments, start=1):
        kept.note(segment)
        kept.trim()
        assert sum(each.asked for each in segments) <= number * LOOKS
    assert len(kept) == 100
    for segment in segments:
        segment.pinned = False
    for _ in range(100):
        kept.trim()
    assert len(kept) == 10


def test_indexes_that_were_let_go_in_the_middle_are_whole_when_they_come_back() -> None:
    kept = open_log(new_disk(), open_segments=OpenSegments())
    released = open_log(new_disk())
    for _ in range(60):
        for log in (kept, released):
            lead(log, timestamp=log.log_end_offset)
    for one, other in zip(kept.segments, released.segments, strict=True):
        assert list(one.offset_index.entries()) == list(other.offset_index.entries())
        assert list(one.time_index.entries()) == list(other.time_index.entries())


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs /proc")
def test_the_kernel_agrees(tmp_path: Path) -> None:
    before = len(list(DESCRIPTORS.iterdir()))
    limit = 10
    logs = LogManager(
        OsFileSystem(), [str(tmp_path)], node_id=1, open_segments=OpenSegments(limit=limit)
    )
    logs.startup()
    for number in range(100):
        lead(logs.get_or_create(TopicPartition("t", number)))
    assert len(list(DESCRIPTORS.iterdir())) - before <= 4 * (limit + 1)
    logs.shutdown()
    assert len(list(DESCRIPTORS.iterdir())) <= before  # what others have dropped may go meanwhile


@pytest.fixture
def file(tmp_path: Path) -> OsFile:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.write(0, b"0123456789")
    return file


def is_open(file: OsFile) -> bool:
    try:
        file.size()
    except ValueError:
        return False
    return True


def test_a_region_reads_its_stretch(file: OsFile) -> None:
    region = Pins(file).pin(2, 5)
    assert region.read() == b"23456"
    buffer = bytearray(10)
    assert region.read_into(memoryview(buffer), skip=3) == 2
    assert buffer[:2] == b"56"


def test_a_file_stays_open_until_its_last_region_is_released(file: OsFile) -> None:
    pins = Pins(file)
    first, second = pins.pin(0, 5), pins.pin(5, 5)
    pins.close()
    first.release()
    first.release()
    assert is_open(file)
    assert second.read() == b"56789"
    second.release()
    assert not is_open(file)


def test_a_region_that_was_dropped_lets_go(file: OsFile) -> None:
    pins = Pins(file)
    region = pins.pin(0, 5)
    pins.close()
    assert is_open(file)
    del region
    gc.collect()
    assert not is_open(file)


def test_truncation_aborts_the_regions_that_reach_past_it(file: OsFile) -> None:
    pins = Pins(file)
    below, above = pins.pin(0, 5), pins.pin(4, 2)
    pins.abort_beyond(5)
    file.truncate(5)
    assert below.read() == b"01234"
    with pytest.raises(RegionAbortedError, match="truncated below 6"):
        above.read()
    with pytest.raises(RegionAbortedError):
        above.read_into(memoryview(bytearray(2)))
