"""A shortage of descriptors or memory is not a failed disk: what it kept from being done is done later.

Each operation is refused at each file that it opens, one run after the other, for each error that
says that something has run out; then it is asked for again, and nothing is missing.
"""

import errno
import itertools
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replication.steps import at_once
from storage.cleaner.offset_map import OffsetMap
from storage.errors import KafkaStorageError, ShortageError
from storage.filesystem import OsFileSystem
from storage.log.log import Log
from storage.log.open_segments import DEFAULT_LIMIT, limit_within
from storage.manager.log_manager import LogManager
from storage.testing import Fault
from tests.storage.logs import (
    TP,
    WALL_MS,
    batch,
    contents,
    end_transaction,
    fill,
    headers,
    joined,
    lead,
    new_disk,
    offsets,
    small_config,
    started,
)

ID = b"\1" * 16
SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR]
RECORDS = 30
by_name: dict[str, Any] = {"ids": [errno.errorcode[each] for each in SHORTAGES]}


def idle(logs: LogManager) -> Log:
    """A log of some segments with not one of its files open."""
    log = logs.get_or_create(TP, ID)
    fill(log, RECORDS)
    release(log)
    return log


def release(log: Log) -> None:
    for segment in log.segments:
        assert segment.release()


def append(logs: LogManager, log: Log) -> None:
    lead(log)


def append_to_a_full_segment(logs: LogManager, log: Log) -> None:
    lead(log, size=700)


def append_many(logs: LogManager, log: Log) -> None:
    """As a follower, in one go, so that the index gets entries of a segment that is new."""
    log.roll()
    at = log.log_end_offset
    log.append_as_follower(joined(*(batch(at=at + number, epoch=1) for number in range(5))))


def roll(logs: LogManager, log: Log) -> None:
    log.roll()


def read(logs: LogManager, log: Log) -> None:
    data = log.read(1, 1, max_offset_exclusive=log.log_end_offset, min_one=True)
    assert data.records is not None


def look_up(logs: LogManager, log: Log) -> None:
    assert log.offset_for_timestamp(WALL_MS) is not None
    assert log.offset_of_max_timestamp() is not None


def flush(logs: LogManager, log: Log) -> None:
    log.flush()
    assert log.recovery_point == log.log_end_offset


def flush_elsewhere(logs: LogManager, log: Log) -> None:
    plan = log.flush_plan()
    log.local.sync(plan)
    assert log.local.commit_flush(plan)


def checkpoint(logs: LogManager, log: Log) -> None:
    logs.checkpoint_recovery_points()
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_high_watermarks({log: log.log_end_offset})


def delete_old_segments(logs: LogManager, log: Log) -> None:
    log.update_high_watermark(log.log_end_offset)
    log.config = small_config(retention_ms=1)
    log.delete_old_segments(WALL_MS * 2)


def end_cleanly(logs: LogManager, log: Log) -> None:
    logs.shutdown()


OPERATIONS = [
    append,
    append_to_a_full_segment,
    append_many,
    roll,
    read,
    look_up,
    flush,
    flush_elsewhere,
    checkpoint,
    delete_old_segments,
]


@pytest.mark.parametrize("error", SHORTAGES, **by_name)
@pytest.mark.parametrize("act", OPERATIONS)
def test_an_operation_refused_for_a_shortage_is_done_later(
    act: Callable[[LogManager, Log], None], error: int
) -> None:
    refused = 0
    for skip in itertools.count():
        disk = new_disk()
        logs = started(disk)
        log = idle(logs)
        before, end = contents(log), log.log_end_offset
        release(log)
        fault = Fault(operation="open", error=error, skip=skip)
        disk.inject(fault)
        try:
            act(logs, log)
        except ShortageError:
            refused += 1
            assert log.log_end_offset == end
            assert contents(log)[: len(before)] == before
            act(logs, log)
        assert not log.failed
        assert not any(each.failure for each in logs.directories)
        expected = [header.last_offset for header in headers(log)]
        logs.close_uncleanly()
        after = started(disk.reopen())
        found = after.get_or_create(TP, ID)
        assert [header.last_offset for header in headers(found)] == expected
        after.close_uncleanly()
        if fault.times:
            break  # it opens no more files than that
    assert refused > 0


@pytest.mark.parametrize(
    "cut",
    [lambda log: log.truncate_to(11), lambda log: log.truncate_fully_and_start_at(11)],
    ids=["cut", "begun anew"],
)
@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_a_cut_is_refused_before_its_first_change_or_seen_through_or_fails_the_log(
    operation: str, cut: Callable[[Log], object]
) -> None:
    outcomes = set()
    for skip in itertools.count():
        disk = new_disk()
        logs = started(disk)
        log = idle(logs)
        log.flush()
        logs.checkpoint_recovery_points()
        before = contents(log)
        release(log)
        fault = disk.inject(Fault(operation=operation, error=errno.EMFILE, skip=skip))
        try:
            cut(log)
        except ShortageError:
            outcomes.add("refused")
            assert (log.log_end_offset, log.recovery_point) == (RECORDS, RECORDS)
            assert contents(log) == before
            cut(log)
        except KafkaStorageError:
            outcomes.add("failed")
            assert log.failed
        assert log.failed or log.log_end_offset == 11
        logs.close_uncleanly()
        disk.crash()
        again = started(disk.reopen())
        assert before.startswith(contents(again.get_or_create(TP, ID)))
        assert (
            again.directories[0].recovery_points[TP] <= again.get_or_create(TP, ID).log_end_offset
        )
        again.close_uncleanly()
        if fault.times:
            break
    assert "refused" in outcomes


@pytest.mark.parametrize("error", SHORTAGES, **by_name)
@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_directory"])
def test_a_checkpoint_is_retried_wherever_it_was_interrupted(operation: str, error: int) -> None:
    disk = new_disk()
    logs = started(disk)
    log = idle(logs)
    log.flush()
    names = "d" if operation == "sync_directory" else "recovery-point-*"
    disk.inject(Fault(operation=operation, names=names, error=error))
    with pytest.raises(ShortageError):
        logs.checkpoint_recovery_points()
    logs.checkpoint_recovery_points()
    logs.close_uncleanly()
    again = disk.reopen()
    again.disk.power_cut()
    (directory,) = started(again).directories
    assert directory.recovery_points == {TP: RECORDS}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_full_or_broken_disk_is_no_shortage(error: int) -> None:
    disk = new_disk()
    logs = started(disk)
    log = idle(logs)
    disk.inject(Fault(operation="open", names="recovery-point-*", error=error))
    logs.checkpoint_recovery_points()
    assert [each.failure is not None for each in logs.directories] == [True]
    with pytest.raises(KafkaStorageError):
        lead(log)


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("write", lead),
        ("sync", Log.flush),
        ("truncate", lambda log: log.truncate_to(1)),
    ],
    ids=["write", "sync", "truncate"],
)
def test_an_operation_that_stops_amid_a_file_fails_the_log(
    operation: str, act: Callable[[Log], object]
) -> None:
    """Half a batch may be there, or a page that no later sync would write."""
    disk = new_disk()
    log = idle(started(disk))
    disk.inject(Fault(operation=operation, names="*.log", error=errno.ENOMEM))
    with pytest.raises(KafkaStorageError):
        act(log)
    assert log.failed


def test_a_follower_keeps_the_first_segment_of_what_it_was_sent() -> None:
    disk = new_disk()
    log = idle(started(disk))
    end = log.log_end_offset
    sent = joined(*(batch(at=end + number, epoch=1, size=600) for number in range(3)))
    moved: list[int] = []
    log.on_moved = lambda: moved.append(log.log_end_offset)
    disk.inject(Fault(operation="open", names=f"*{end + 2}.log", error=errno.EMFILE))
    info = log.append_as_follower(sent)
    assert (info.last_offset, log.log_end_offset, moved) == (end + 1, end + 2, [end + 2])
    log.append_as_follower(memoryview(bytearray(sent[info.valid_bytes :])))
    assert log.log_end_offset == end + 3
    assert not log.failed


def test_a_marker_whose_index_cannot_be_made_is_not_half_appended() -> None:
    """The records are in the file when the index is made: nothing may be appended behind them."""
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(TP, ID)
    producer: Any = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    log.append_as_leader(batch(base_sequence=0, **producer), leader_epoch=0, wall_ms=WALL_MS)
    disk.inject(Fault(operation="open", names="*.txnindex", error=errno.EMFILE))
    with pytest.raises(KafkaStorageError):
        end_transaction(log, 5, commit=False)
    assert log.failed
    logs.close_uncleanly()
    assert offsets(contents(started(disk.reopen()).get_or_create(TP, ID))) == [0, 1]


@pytest.mark.parametrize("operation", ["open", "list", "sync_directory"])
def test_a_start_ends_where_files_cannot_be_opened_and_the_next_one_finds_all(
    operation: str,
) -> None:
    disk = new_disk()
    logs = started(disk)
    idle(logs)
    logs.shutdown()
    disk = disk.reopen()
    refused = 0
    for skip in itertools.count():
        fault = Fault(operation=operation, error=errno.EMFILE, skip=skip)
        disk.inject(fault)
        logs = LogManager(disk, ["/d"], node_id=1, config=small_config())
        try:
            logs.startup()
        except ShortageError:
            refused += 1
            assert not any(each.failure for each in logs.directories)
        else:
            disk.disk.faults.clear()
            assert len(headers(logs.get_or_create(TP, ID))) == RECORDS
            logs.shutdown()
        if fault.times:
            break
    assert refused > 0 or operation == "sync_directory"


def test_a_file_that_cannot_be_unlinked_is_unlinked_later() -> None:
    disk = new_disk()
    logs = started(disk)
    idle(logs)
    logs.async_delete(TP)
    due = logs.doomed.due_by(1 << 60) or logs.doomed.due_by(1 << 61)
    disk.inject(Fault(operation="remove_tree", error=errno.EMFILE))
    assert logs.unlink(due) == []
    assert [each.path for each in logs.unlink(due)] == [each.path for each in due]


def test_a_process_without_descriptors_gets_a_shortage(tmp_path: Path) -> None:
    system = OsFileSystem()
    path = str(tmp_path / "file")
    system.open(path, create=True).close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        for act in (
            lambda: system.open(path),
            lambda: system.open_for_reading(path),
            lambda: system.list_directory(str(tmp_path)),
            lambda: system.sync_directory(str(tmp_path)),
            lambda: system.remove_tree(str(tmp_path)),
            lambda: system.lock(path),
        ):
            with pytest.raises(ShortageError) as caught:
                act()
            assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    system.remove_tree(str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError):
        system.remove_tree(path)
    with pytest.raises(NotADirectoryError):
        system.list_directory(path)


def test_a_log_that_could_not_be_made_is_made_when_it_is_asked_for_again() -> None:
    disk = new_disk()
    logs = started(disk)
    disk.inject(Fault(operation="open", names="*.log", error=errno.EMFILE))
    with pytest.raises(ShortageError):
        logs.get_or_create(TP, ID)
    lead(logs.get_or_create(TP, ID))
    assert not any(each.failure for each in logs.directories)


def test_high_watermarks_that_could_not_be_read_end_the_start() -> None:
    disk = new_disk()
    logs = started(disk)
    log = idle(logs)
    logs.checkpoint_high_watermarks({log: RECORDS})
    disk.inject(Fault(operation="open", names="replication-*", error=errno.EMFILE))
    with pytest.raises(ShortageError):
        logs.read_high_watermarks()
    assert logs.read_high_watermarks() == {log: RECORDS}


def test_a_log_that_cannot_be_looked_at_is_cleaned_later() -> None:
    disk = new_disk()
    logs = started(disk)
    log = idle(logs)
    log.config = small_config(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    release(log)
    for segment in log.segments:
        segment._max_timestamp = segment._first_batch_timestamp = None
    fault = disk.inject(Fault(operation="open", error=errno.EMFILE, times=None))
    assert at_once(logs.cleaner.start(WALL_MS * 2, lambda: OffsetMap(1 << 16))) is None
    disk.disk.faults.remove(fault)
    assert at_once(logs.cleaner.start(WALL_MS * 2, lambda: OffsetMap(1 << 16))) is not None
    assert not log.failed


def test_how_many_segments_are_open_goes_by_what_the_process_may_open() -> None:
    assert limit_within(None) == limit_within(1 << 20) == DEFAULT_LIMIT
    assert [limit_within(each) for each in (64, 1024, 4096)] == [8, 32, 128]
    assert new_disk().descriptors() is None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert OsFileSystem().descriptors() == soft
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert OsFileSystem().descriptors() is None
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
