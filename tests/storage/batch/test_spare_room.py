"""The zeroes of a preallocated segment, as those see them who read it while it is written."""

from collections.abc import Callable

import pytest

from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.checkpoint import write_clean_shutdown
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.log.segment_file import open_segment
from storage.testing import FaultyFileSystem
from storage.tools.dump import dump, is_damage
from storage.tools.dump.entries import BatchEntry, Damage, InvalidBytes, SpareRoom
from storage.tools.dump.text import TextOptions, line
from tests.storage.logs import fill, new_disk, open_log, small_config

DIRECTORY = "/d/t-0"


def live_log(disk: FaultyFileSystem) -> Log:
    """Its last segment is half full of records, and zeroes from there on."""
    log = open_log(disk, small_config(preallocate=True))
    fill(log, 15)
    assert len(log.segments) >= 2
    assert log.segments.active.pins.file.size() > log.segments.active.size > 0
    return log


def last_file(log: Log) -> str:
    return log.segments.active.path(".log")


def as_a_stream(disk: FileSystem, _path: str) -> int:
    stream, count = BatchStream(disk, DIRECTORY), 0
    while (header := stream.head()) is not None:
        stream.skip(header.size)
        stream.passed(header)
        count += 1
    assert stream.available == 0
    stream.close()
    return count


def as_a_file(disk: FileSystem, path: str) -> int:
    with open_segment(path, disk) as segment:
        return len(list(segment.batches()))


def as_a_table(disk: FileSystem, path: str) -> int:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    with open_segment(path, disk) as segment:
        return len(segment.to_arrow())


@pytest.mark.parametrize("count", [as_a_stream, as_a_file, as_a_table])
def test_it_ends_where_its_batches_do(count: Callable[[FileSystem, str], int]) -> None:
    disk = new_disk()
    log = live_log(disk)
    path = last_file(log)
    found = count(disk, path)
    assert found == (15 if count is as_a_stream else 15 - log.segments.active.base_offset)
    write_clean_shutdown(disk, "/d", 1)
    with pytest.raises(DamagedLogError) as caught:
        count(disk, path)
    assert (caught.value.path, caught.value.position) == (path, log.segments.active.size)


def test_a_dump_says_so_once_and_finds_nothing_wrong() -> None:
    disk = new_disk()
    log = live_log(disk)
    path, size = last_file(log), log.segments.active.size
    entries = list(dump(disk, [DIRECTORY]))
    room = disk.disk.file(path).content[size:]
    found = [each for each in entries if isinstance(each, SpareRoom)]
    assert found == [SpareRoom(path, size, len(room))]
    assert not [each for each in entries if is_damage(each)]
    name = path.rpartition("/")[2]
    said = f"{len(room)} bytes of spare room at the end of {name}"
    assert [line(each, TextOptions()) for each in entries].count(said) == 1
    log.close()
    entries = list(dump(disk, [DIRECTORY]))
    assert not [each for each in entries if isinstance(each, SpareRoom) or is_damage(each)]


def test_a_dump_as_arrow_has_no_row_for_it() -> None:
    pytest.importorskip("pyarrow", reason="the Arrow extra is not installed: understudy[arrow]")
    from storage.tools.dump.arrow import arrow_batches

    disk = new_disk()
    path = last_file(live_log(disk))
    (rows,) = arrow_batches(disk, [path])
    assert not isinstance(rows, Damage | InvalidBytes)
    assert rows.num_rows == as_a_file(disk, path) > 0


@pytest.mark.parametrize("behind", ["a later segment", "a clean shutdown", "a byte that is none"])
def test_zeroes_elsewhere_stay_damage(behind: str) -> None:
    disk = new_disk()
    log = live_log(disk)
    path = last_file(log)
    match behind:
        case "a later segment":
            disk.open(f"{DIRECTORY}/{log.log_end_offset:020d}.log", create=True).close()
        case "a clean shutdown":
            write_clean_shutdown(disk, "/d", 1)
        case _:
            disk.disk.file(path).content[-1] = 1
    entries = list(dump(disk, [path]))
    assert isinstance(entries[-1], InvalidBytes)
    assert len([each for each in entries if isinstance(each, BatchEntry)]) > 0
    with pytest.raises(DamagedLogError):
        as_a_stream(disk, path)


def test_a_zero_more_than_the_log_may_have_for_a_header_is_room_as_well() -> None:
    disk = new_disk()
    log = live_log(disk)
    disk.open(last_file(log)).truncate(log.segments.active.size + 10)
    assert as_a_stream(disk, "") == 15
    assert not [each for each in dump(disk, [DIRECTORY]) if is_damage(each)]
