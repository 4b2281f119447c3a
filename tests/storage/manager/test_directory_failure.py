"""A log directory that fails takes its own logs offline, at once, and no others."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from storage.errors import (
    CheckpointError,
    InconsistentMetadataError,
    KafkaStorageError,
    LogDirectoryError,
    StorageError,
)
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.manager.log_manager import LoadJob, LogManager
from storage.testing import Fault, FaultyFile, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import contents, fill, lead, new_disk, small_config

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def manager(system: FileSystem, *paths: str, **options: Any) -> LogManager:
    options = {"node_id": 1, "cluster_id": "c", "config": small_config(), **options}
    made = LogManager(system, paths or ("/d/a", "/d/b"), **options)
    made.startup()
    return made


def two_logs(system: FileSystem, **options: Any) -> tuple[LogManager, Log, Log]:
    """One in each directory."""
    logs = manager(system, **options)
    first, second = logs.get_or_create(T0), logs.get_or_create(T1)
    assert (first.directory, second.directory) == ("/d/a/t-0", "/d/b/t-1")
    fill(first, 10)
    fill(second, 10)
    return logs, first, second


def append(_logs: LogManager, log: Log) -> None:
    lead(log)


def roll(_logs: LogManager, log: Log) -> None:
    log.roll()


def flush(_logs: LogManager, log: Log) -> None:
    log.flush()


def flush_elsewhere(_logs: LogManager, log: Log) -> None:
    """As a worker thread does it: nothing more happens on the loop than the next append."""
    log.local.sync(log.flush_plan())


def checkpoint(logs: LogManager, _log: Log) -> None:
    logs.checkpoint_recovery_points()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize(
    ("act", "fault"),
    [
        (append, {"operation": "write", "names": "*0.log", "partial": True}),
        (append, {"operation": "write", "names": "*0.log"}),
        (roll, {"operation": "open", "names": "*10.log"}),
        (roll, {"operation": "write", "names": "*.snapshot"}),
        (flush, {"operation": "sync", "names": "*0.log"}),
        (flush, {"operation": "sync_directory", "names": "t-0"}),
        (flush_elsewhere, {"operation": "sync", "names": "*0.log"}),
        (checkpoint, {"operation": "write", "names": "recovery-point-*"}),
        (checkpoint, {"operation": "rename", "names": "recovery-point-*"}),
        (checkpoint, {"operation": "sync", "names": "recovery-point-*"}),
    ],
)
def test_the_first_error_takes_one_directory_offline_before_another_append(
    act: Callable[[LogManager, Log], None], fault: dict[str, Any], error: int
) -> None:
    """KAFKA-10778: nothing is appended between the error and the offline mark."""
    system = new_disk()
    reported: list[str] = []
    logs, bad, good = two_logs(system, on_directory_failed=lambda path, _: reported.append(path))
    neighbour = logs.get_or_create(TopicPartition("u", 0))
    assert neighbour.directory.startswith("/d/a/")
    lead(neighbour)
    before = contents(bad)
    system.inject(Fault(error=error, **fault))
    try:
        act(logs, bad)
    except KafkaStorageError:
        assert act is not checkpoint, "a job is refused, and not reported"
    assert reported == ["/d/a"]
    assert (bad.failed, neighbour.failed, good.failed) == (True, True, False)
    size = system.disk.used()
    for log in (bad, neighbour):
        for refused in (lead, Log.flush, Log.roll, Log.flush_plan):
            with pytest.raises(KafkaStorageError):
                refused(log)
    logs.checkpoint_recovery_points()
    assert lead(good) == 10
    assert system.disk.used() > size, "the good one grew, and its checkpoint"
    logs.shutdown(4)
    assert system.exists("/d/b/.kafka_cleanshutdown")
    assert not system.exists("/d/a/.kafka_cleanshutdown")
    # Back again: what was there before the error is there, and nothing looks clean.
    logs = manager(system)
    assert not logs.clean
    assert logs.previous_broker_epoch == -1
    again, other = logs.get(T0), logs.get(T1)
    assert again is not None
    assert other is not None
    assert contents(again).startswith(before)
    assert other.log_end_offset == 11


def test_an_append_after_a_failed_sync_of_another_thread_is_refused() -> None:
    system = new_disk()
    logs, bad, _ = two_logs(system)
    plan = bad.flush_plan()
    system.inject(Fault(operation="sync", names="*.log"))
    with pytest.raises(KafkaStorageError):
        bad.local.sync(plan)
    with pytest.raises(KafkaStorageError, match="Input/output"):
        lead(bad)
    assert bad.log_end_offset == 10
    assert not logs.get_or_create(T1).failed


@pytest.mark.parametrize(
    "fault",
    [
        {"operation": "open", "names": ".lock"},
        {"operation": "write", "names": "meta.properties*"},
        {"operation": "read", "names": "recovery-point-*"},
        {"operation": "list", "names": "t-0"},
        {"operation": "read", "names": "*0.log"},
        {"operation": "write", "names": "*.index"},
    ],
    ids=lambda fault: " ".join(fault.values()),
)
def test_an_error_at_startup_takes_one_directory_offline(fault: dict[str, Any]) -> None:
    system = new_disk()
    two_logs(system)[0].checkpoint_recovery_points()
    system.detach()
    system = system.reopen()
    system.remove("/d/a/meta.properties")
    reported: list[str] = []
    system.inject(Fault(**fault))
    logs = manager(system, on_directory_failed=lambda path, _: reported.append(path))
    assert reported == ["/d/a"]
    good = logs.get(T1)
    assert good is not None
    assert lead(good) == 10
    # A partition that may lie in the directory that is offline is not made a second time.
    with pytest.raises(KafkaStorageError):
        logs.get_or_create(T0, is_new=False)


class OddFileSystem(FaultyFileSystem):
    """A file system that fails to list one directory, with a given error."""

    wrong: Exception | None = None

    def list_directory(self, path: str) -> list[str]:
        if self.wrong is not None and path == "/d/a/t-0":
            raise self.wrong
        return super().list_directory(path)


def storage_error(cause: OSError | None) -> KafkaStorageError:
    error = KafkaStorageError("it could not be read")
    error.__cause__ = cause
    return error


@pytest.mark.conformance("LL-2")
@pytest.mark.parametrize(
    ("wrong", "escapes"),
    [
        (RuntimeError("a bug"), True),
        (storage_error(None), True),
        (storage_error(OSError(errno.EIO, "a disk")), False),
        (OSError(errno.EIO, "a disk"), False),
    ],
    ids=["a bug", "a storage error", "a storage error for an IO error", "an IO error"],
)
def test_what_goes_wrong_while_loading(wrong: Exception, escapes: bool) -> None:
    """A directory is marked by the marker that it is being used, whatever comes of it."""
    system = new_disk()
    two_logs(system)[0].shutdown(7)
    odd = OddFileSystem(system.disk.chance, disk=system.disk)
    odd.wrong = wrong
    reported: list[str] = []
    logs = LogManager(
        odd, ("/d/a", "/d/b"), node_id=1, on_directory_failed=lambda path, _: reported.append(path)
    )
    if escapes:
        with pytest.raises(type(wrong)):
            logs.startup()
        assert reported == []
    else:
        logs.startup()
        assert reported == ["/d/a"]
        assert [log.topic_partition for log in logs.logs()] == [T1]
        logs.close_uncleanly()
    again = manager(system)
    assert not again.clean, "the marker counted once"
    assert sorted(log.topic_partition for log in again.logs()) == [T0, T1]


class InterruptedFileSystem(FaultyFileSystem):
    """Cannot list t-1, and lets another thread's work be done when t-0 is listed."""

    meanwhile: Callable[[], None] | None = None

    def list_directory(self, path: str) -> list[str]:
        meanwhile = self.meanwhile
        if meanwhile is not None and path == "/d/t-0":
            self.meanwhile = None
            meanwhile()
        if path == "/d/t-1":
            raise OSError(errno.EIO, "a disk")
        return super().list_directory(path)


def three_jobs() -> tuple[InterruptedFileSystem, LogManager, list[LoadJob]]:
    """Return the jobs that load t-0, t-1 and t-2 of one directory; t-1 cannot be read."""
    system = new_disk()
    logs = manager(system, "/d")
    for partition in range(3):
        fill(logs.get_or_create(TopicPartition("t", partition)), 10)
    logs.close_uncleanly()
    system.detach()
    odd = InterruptedFileSystem(system.disk.chance, disk=system.disk)
    logs = LogManager(odd, ("/d",), node_id=1, config=small_config())
    (jobs,) = logs.find_logs()
    return odd, logs, jobs


def test_no_more_is_loaded_from_a_directory_that_has_failed() -> None:
    _, logs, jobs = three_jobs()
    for job in jobs:
        job()
    assert [log.topic_partition for log in logs.logs()] == [T0]
    with pytest.raises(KafkaStorageError, match="no log directory can be used"):
        logs.all_loaded()


def test_a_log_whose_directory_fails_while_it_loads_has_failed_too() -> None:
    odd, logs, (first, second, _) = three_jobs()
    odd.meanwhile = second
    first()
    log = logs.get(T0)
    assert log is not None
    assert log.failed
    with pytest.raises(KafkaStorageError):
        lead(log)


# Whose directories they are, and what is missing from them.


def test_a_directory_that_is_a_copy_of_another_is_refused() -> None:
    system = new_disk()
    for path in ("/d/a", "/d/b"):
        manager(system, path, new_directory_id=lambda: b"\1" * 16).shutdown()
    with pytest.raises(
        InconsistentMetadataError, match=r"/d/a and /d/b have the same directory.id"
    ):
        manager(system)


def test_directories_of_two_clusters_are_refused() -> None:
    system = new_disk()
    manager(system, "/d/a", cluster_id="one").shutdown()
    manager(system, "/d/b", cluster_id="two").shutdown()
    with pytest.raises(InconsistentMetadataError, match="/d/b belongs to cluster two"):
        manager(system, cluster_id=None)


def test_a_partition_that_is_gone_is_missed_under_a_clean_marker() -> None:
    system = new_disk()
    logs, _, _ = two_logs(system)
    logs.shutdown(7)
    system.remove_tree("/d/a/t-0")
    logs = manager(system)
    assert not logs.clean
    assert logs.previous_broker_epoch == -1
    assert logs.warnings == ["/d/a: t-0 had been synced up to offset 10, and its directory is gone"]


def test_a_log_emptied_under_a_clean_marker_does_not_look_clean() -> None:
    system = new_disk()
    logs, first, _ = two_logs(system)
    logs.shutdown(7)
    for name in system.list_directory(first.directory):
        system.remove(f"{first.directory}/{name}")
    logs = manager(system)
    assert not logs.clean
    assert logs.previous_broker_epoch == -1
    log = logs.get(T0)
    assert log is not None
    assert log.recovery.repairs


def test_a_file_that_is_younger_than_the_marker_is_read_again() -> None:
    system = new_disk()
    clock = [1000]
    system.disk.wall_ms = lambda: clock[0]
    logs, first, _ = two_logs(system)
    clock[0] = 2000
    logs.shutdown(7)
    logs = manager(system)
    assert [log.recovery.segments_recovered for log in logs.logs()] == [0, 0]
    logs.shutdown(8)
    clock[0] = 30_000
    system.open(first.segments[0].path(".log")).write(70, b"?")
    logs = manager(system)
    [repair, cut, *_] = [each for log in logs.logs() for each in log.recovery.repairs]
    assert "written to after the clean shutdown" in repair.cause
    assert "CRC-32C" in cut.cause
    assert cut.kept
    assert not logs.clean


def test_logs_made_later_do_not_make_a_clean_start_unclean() -> None:
    system = new_disk()
    two_logs(system)[0].shutdown(7)
    logs = manager(system)
    fill(logs.get_or_create(TopicPartition("new", 0)), 3)
    assert logs.clean
    assert logs.previous_broker_epoch == 7


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\nmany\n", b"\xff\xfe\x00", b"0\n2\nt 0 5\n"])
@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_checkpoint_that_does_not_parse_is_kept_and_named(name: str, content: bytes) -> None:
    system = new_disk()
    two_logs(system)
    system.detach()
    system = system.reopen()
    file = system.open(f"/d/a/{name}", create=True)
    file.truncate(0)
    file.write(0, content)
    logs = manager(system)
    [warning] = logs.warnings
    assert warning.startswith(f"/d/a/{name}: ")
    assert warning.endswith(f"kept as /d/a/corrupt.{name}")
    kept = system.open_for_reading(f"/d/a/corrupt.{name}")
    assert kept.read(0, kept.size()) == content
    log = logs.get(T0)
    assert log is not None
    assert log.log_end_offset == 10


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/d/a/meta.properties", b"version=2\nnode.id=1\n", "version 2"),
        ("/d/a/meta.properties", b"version=1\nnode.id=one\n", "malformed"),
        ("/d/a/t-0/partition.metadata", b"version: 1\ntopic_id: x", "version 1"),
        ("/d/a/t-0/partition.metadata", b"what?", "not a version and a topic id"),
    ],
)
def test_a_file_of_a_newer_format_is_refused_by_name(path: str, content: bytes, says: str) -> None:
    system = new_disk()
    two_logs(system)[0].shutdown(7)
    file = system.open(path, create=True)
    file.truncate(0)
    file.write(0, content)
    with pytest.raises(CheckpointError) as refused:
        manager(system)
    assert path in str(refused.value)
    assert says in str(refused.value)
    file = system.open_for_reading(path)
    assert file.read(0, file.size()) == content


def test_a_partition_in_two_directories_is_refused_before_any_log_is_opened() -> None:
    system = new_disk()
    for path in ("/d/a/t-0", "/d/b/t-0"):
        Log.open(system, path, T0, topic_id=bytes(range(16))).write_topic_id()
    with pytest.raises(LogDirectoryError, match="t-0 is both in /d/a/t-0 and in /d/b/t-0"):
        manager(system)


def test_an_error_that_stops_a_start_is_a_storage_error() -> None:
    system = new_disk()
    system.make_directory("/d/a/no-partition")
    with pytest.raises(StorageError, match="/d/a/no-partition is not the directory"):
        manager(system)


def test_a_file_is_not_a_log_directory() -> None:
    system = new_disk()
    file = system.open("/d/a", create=True)
    assert isinstance(file, FaultyFile)
    logs = manager(system)
    assert [each.failure is not None for each in logs.directories] == [True, False]
