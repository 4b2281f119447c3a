"""Whole directories with one mutated file in them, opened as after a crash and as after a rest.

Rule 1: after a crash a log holds what its twin believes of its files, no more and no less: a first
part of each segment, and nothing behind the first that was cut.

Rule 2: after a clean shutdown Kafka reads no batch again, and neither do we: what is read may be
damaged, and its reader checks it. But no record is passed off as another, and every error is
one of ours.
"""

import contextlib
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

from storage.errors import CorruptRecordError, StorageError, UnsupportedFormatError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.fuzz import twins
from tests.storage.fuzz.corpus import log_directory, put, real_files
from tests.storage.fuzz.mutations import Mutated, mutated
from tests.storage.logs import WALL_MS, lead, new_disk, small_config

_SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

Check = Callable[[Mutated], None]
OPENINGS: dict[str, tuple[st.SearchStrategy[Mutated], Check]] = {}


def opens(*kinds: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        OPENINGS[check.__name__] = mutated(real_files(*kinds)), check
        return check

    return register


def directory_with(case: Mutated) -> tuple[FaultyFileSystem, dict[str, bytes]]:
    """A log directory in which one file is not what it was, and what its files hold."""
    files = dict(log_directory(case.file.origin))
    files[f"{case.file.directory}/{case.file.name}".lstrip("/")] = case.data
    disk = new_disk()
    for path, data in files.items():
        put(disk, f"/d/{path}", data)
    return disk, files


def open_partition(case: Mutated, *, clean: bool) -> tuple[Log, dict[int, bytes]]:
    """The log that the mutated file is of, and the bytes of its segments."""
    disk, files = directory_with(case)
    directory = case.file.directory
    topic, _, number = directory.rpartition("-")
    segments = {
        int(path[-24:-4]): data
        for path, data in sorted(files.items())
        if path.startswith(f"{directory}/") and path.endswith(".log")
    }
    log = Log.open(
        disk,
        f"/d/{directory}",
        TopicPartition(topic, int(number)),
        config=small_config(segment_bytes=2000),
        clean=clean,
        recovery_point=0,
    )
    return log, segments


def read_all(log: Log) -> Iterator[bytes]:
    """Every batch that can be read, as a consumer would go through the log."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True)
        if found.records is None:
            return
        for _, each in twins.batches_in(found.records.read())[0]:
            yield each
            if twins.last_offset(each) < offset:
                return  # a base offset is outside the checksum
            offset = twins.last_offset(each) + 1


def believed(segments: dict[int, bytes]) -> list[bytes]:
    """Return what recovery keeps: segments that join, up to the first that had to be cut."""
    found: list[bytes] = []
    following, epoch = min(segments), -1
    for base, data in segments.items():
        if base != following:
            break
        part = twins.sound_part(data, base, epoch)
        found += part
        following = twins.last_offset(part[-1]) + 1 if part else base
        epoch = max([epoch, *map(twins.leader_epoch, part)])
        if sum(map(len, part)) < len(data):
            break
    return found


@opens(*_SEGMENT_FILES)
def after_a_crash(case: Mutated) -> None:
    try:
        log, segments = open_partition(case, clean=False)
    except UnsupportedFormatError as error:
        # The magic is outside the checksum: a sound batch of another one is another format's.
        assert f"{case.file.name}: a batch of magic" in str(error)
        assert not case.sound
        return
    expected = believed(segments)
    assert list(read_all(log)) == expected
    assert log.log_end_offset == (
        twins.last_offset(expected[-1]) + 1 if expected else log.log_start_offset
    )
    # It goes on from there, and every time and every epoch can be asked for.
    lead(log, 2, epoch=2**31 - 1)
    _look_up_times(log)
    log.close()
    assert sum(1 for _ in read_all(_again(log))) == len(expected) + 1


def _again(log: Log) -> Log:
    return Log.open(
        log.local.file_system, log.directory, log.topic_partition, config=log.config, clean=True
    )


@opens(*_SEGMENT_FILES)
def after_a_rest(case: Mutated) -> None:
    try:
        log, segments = open_partition(case, clean=True)
    except StorageError as error:
        assert "/d/" in str(error)
        return
    stored = {
        each for data in segments.values() for at in range(len(data)) for each in _first(data[at:])
    }
    with contextlib.suppress(StorageError):
        for each in read_all(log):
            assert each in stored
    _look_up_times(log)
    with contextlib.suppress(StorageError):
        log.truncate_to(log.log_end_offset // 2)


def _look_up_times(log: Log) -> None:
    """Which opens batches; one whose checksum is right may have been made to mislead."""
    for timestamp in (0, WALL_MS, WALL_MS + 300):
        with contextlib.suppress(StorageError):
            log.offset_for_timestamp(timestamp)
    with contextlib.suppress(StorageError):
        log.offset_of_max_timestamp()


def _first(data: bytes) -> Iterator[bytes]:
    for _, each in twins.batches_in(data)[0][:1]:
        yield each


@opens()
def a_whole_directory(case: Mutated) -> None:
    """`LogManager.startup` over it: opened, or refused with the reason; never half of each."""
    disk, files = directory_with(case)
    logs = LogManager(
        disk, ["/d"], node_id=1, config=small_config(segment_bytes=2000, flush_messages=1)
    )
    try:
        logs.startup()
    except StorageError as error:
        assert "/d" in str(error)
        assert not case.sound
        return
    stored = [data for path, data in files.items() if path.endswith(".log")]
    for log in logs.logs():
        with contextlib.suppress(CorruptRecordError):
            for each in read_all(log):
                assert any(each in data for data in stored)
    logs.read_high_watermarks()
    logs.shutdown(1)
