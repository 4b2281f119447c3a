"""The batches of a directory at rest: one stream over segments, and damage with its place.

The zeroes of a preallocated segment, which is being written, are no damage.
"""

from collections.abc import Callable

import pytest

from storage.batch.batch_stream import (
    BatchStream,
    DamagedLogError,
    log_start_offsets,
    partitions_in,
)
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, write_clean_shutdown
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.log.segment_file import open_segment
from storage.testing import FaultyFileSystem
from storage.tools.dump import dump, is_damage
from storage.tools.dump.entries import BatchEntry, Damage, InvalidBytes, SpareRoom
from storage.tools.dump.text import TextOptions, line
from storage.types import TopicPartition
from tests.storage.fuzz.corpus import put
from tests.storage.logs import batch, fill, new_disk, open_log, small_config

DIRECTORY = "/d/t-0"


def three_segments() -> FaultyFileSystem:
    disk = new_disk()
    fill(log := open_log(disk), 30)
    assert len(log.segments) >= 3
    log.close()
    return disk


def base_offsets(stream: BatchStream) -> list[int]:
    """Skip each batch from the cursor on, and return their headers."""
    found = []
    while (header := stream.head()) is not None:
        found.append(header.base_offset)
        stream.skip(header.size)
        stream.passed(header)
    stream.close()
    return found


@pytest.mark.parametrize("chunk_size", [1, 61, 200, 1 << 20])
@pytest.mark.parametrize("offset", [0, 1, 10, 17, 29, 30, 99])
def test_a_stream_begins_at_the_batch_of_an_offset(chunk_size: int, offset: int) -> None:
    stream = BatchStream(three_segments(), DIRECTORY, chunk_size=chunk_size)
    assert (stream.path, stream.file_name) == (None, None)
    stream.seek(offset)
    assert base_offsets(stream) == list(range(offset, 30))


def test_a_stream_has_the_file_and_position_of_its_batch() -> None:
    stream = BatchStream(three_segments(), DIRECTORY)
    header = stream.head()
    assert header is not None
    assert (stream.file_name, stream.position) == ("00000000000000000000.log", 0)
    assert len(stream.take(header.size)) == header.size
    assert stream.position == header.size
    stream.close()


def test_an_empty_directory_has_no_batches() -> None:
    disk = new_disk()
    disk.make_directory(DIRECTORY)
    stream = BatchStream(disk, DIRECTORY)
    assert stream.available == 0
    assert stream.head() is None
    stream.close()


@pytest.mark.parametrize(
    ("bytes_after", "reason"),
    [
        (b"\0" * 10, "10 bytes after the last batch"),
        (bytes(61), "magic 0"),
        (batch(at=9).tobytes()[:-1], "where"),
        (batch(at=0).tobytes(), "offsets 0 to 0 where 1 comes next"),
    ],
)
def test_garbage_between_batches_is_damage_with_a_place(bytes_after: bytes, reason: str) -> None:
    disk, first = new_disk(), batch().tobytes()
    put(disk, f"{DIRECTORY}/00000000000000000000.log", first + bytes_after)
    write_clean_shutdown(disk, "/d", 1)
    with pytest.raises(DamagedLogError, match=reason) as caught:
        base_offsets(BatchStream(disk, DIRECTORY))
    assert caught.value.position == len(first)


def test_a_file_that_shrinks_under_the_reader_is_the_disks_doing() -> None:
    disk = new_disk()
    path = f"{DIRECTORY}/00000000000000000000.log"
    put(disk, path, batch().tobytes() + batch(at=1).tobytes())
    stream = BatchStream(disk, DIRECTORY, chunk_size=61)
    assert stream.head() is not None
    disk.open(path).truncate(61)
    with pytest.raises(OSError, match="became shorter while it was read"):
        base_offsets(stream)


def test_replicas_are_those_that_nobody_is_deleting() -> None:
    disk = new_disk()
    for name in ("a-b-0", "t-1", "t-2.0123-delete", "t", "-1"):
        disk.make_directory(f"/d/{name}")
    put(disk, "/d/f-0", b"a file")
    assert partitions_in(disk, "/d") == {
        TopicPartition("a-b", 0): "/d/a-b-0",
        TopicPartition("t", 1): "/d/t-1",
    }


def test_log_starts_are_those_of_the_checkpoint_where_it_can_be_read() -> None:
    disk = new_disk()
    path = f"/d/{LOG_START_OFFSET_CHECKPOINT}"
    OffsetCheckpoint(disk, path).write({TopicPartition("t", 0): 7})
    assert log_start_offsets(disk, "/d") == {TopicPartition("t", 0): 7}
    put(disk, path, b"rubbish")
    assert log_start_offsets(disk, "/d") == {}


def test_the_bytes_that_are_available_fall_with_each_batch_taken() -> None:
    stream = BatchStream(three_segments(), DIRECTORY, chunk_size=200)
    assert stream.head() is not None
    before = stream.available
    assert before == 200
    stream.take(61)
    assert stream.available == before - 61
    stream.take(before - 61)
    assert stream.available == 200, "the next chunk"
    stream.close()


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
def test_a_live_log_is_read_up_to_its_spare_room(count: Callable[[FileSystem, str], int]) -> None:
    disk = new_disk()
    log = live_log(disk)
    path = last_file(log)
    found = count(disk, path)
    assert found == (15 if count is as_a_stream else 15 - log.segments.active.base_offset)
    write_clean_shutdown(disk, "/d", 1)
    with pytest.raises(DamagedLogError) as caught:
        count(disk, path)
    assert (caught.value.path, caught.value.position) == (path, log.segments.active.size)


def test_a_dump_names_spare_room_once_and_finds_no_damage() -> None:
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


def test_spare_room_is_no_row_of_a_dump_as_arrow() -> None:
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
