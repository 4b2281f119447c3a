"""A broker's log directories: whose they are, how they were left, what is in them.

The file is long because each state of a directory at a start has its cases here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage.errors import (
    InconsistentMetadataError,
    InconsistentTopicIdError,
    KafkaStorageError,
    LogDirectoryError,
    LogDirectoryLockedError,
)
from storage.filesystem import FileSystem, OsFileSystem
from storage.log.log import Log
from storage.manager.log_directory import DELETE_SUFFIX, STRAY_SUFFIX, aside_name, partition_of
from storage.manager.log_manager import LogManager
from storage.testing import DetachedError, Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import (
    batch,
    contents,
    fill,
    headers,
    lead,
    new_disk,
    small_config,
    unlink_due,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = bytes(range(16))
DELAY_MS = 60_000  # file.delete.delay.ms


def manager(system: FileSystem, *paths: str, **options: Any) -> LogManager:
    options = {"node_id": 1, "cluster_id": "c", "config": small_config(), **options}
    made = LogManager(system, paths or ("/d",), **options)
    made.startup()
    return made


def text(system: FileSystem, path: str) -> str:
    file = system.open_for_reading(path)
    return file.read(0, file.size()).decode()


def test_a_partition_is_made_found_and_kept_over_a_clean_restart() -> None:
    system = new_disk()
    logs = manager(system, new_directory_id=lambda: ID)
    log = logs.get_or_create(T0, ID, small_config())
    assert logs.get(T0) is log
    assert logs.get_or_create(T0, ID) is log
    assert logs.get(T1) is None
    fill(log, 30)
    before = contents(log)
    logs.shutdown(7)
    assert text(system, "/d/meta.properties") == (
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
    )
    assert json.loads(text(system, "/d/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 7}
    assert text(system, "/d/recovery-point-offset-checkpoint") == "0\n1\nt 0 30\n"
    logs = manager(system)
    assert logs.previous_broker_epoch == 7
    assert logs.clean
    assert not system.exists("/d/.kafka_cleanshutdown")
    log = logs.logs()[0]
    assert log.recovery.clean
    assert log.recovery.segments_recovered == 0
    assert (log.topic_id, log.recovery_point, contents(log)) == (ID, 30, before)


@pytest.mark.conformance("LL-1")
def test_the_clean_shutdown_marker_counts_once() -> None:
    system = new_disk()
    logs = manager(system)
    fill(logs.get_or_create(T0), 3)
    logs.shutdown(1)
    assert manager(system).clean
    system.detach()
    logs = manager(system.reopen())
    assert not logs.clean
    assert logs.previous_broker_epoch == -1


def test_a_killed_broker_leaves_no_marker_and_loses_nothing() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 30)
    before = contents(log)
    system.detach()
    with pytest.raises(KafkaStorageError):
        lead(log)
    logs.close_uncleanly()
    logs = manager(system.reopen())
    [log] = logs.logs()
    assert not log.recovery.clean
    assert contents(log) == before


def test_shutting_down_after_a_kill_writes_nothing() -> None:
    system = new_disk()
    logs = manager(system)
    fill(logs.get_or_create(T0, ID), 3)
    system.detach()
    logs.shutdown(3)
    with pytest.raises(DetachedError):
        system.exists("/d/.kafka_cleanshutdown")
    assert not system.reopen().exists("/d/.kafka_cleanshutdown")


def test_a_marker_over_data_that_the_disk_has_lost_is_not_believed() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 20)
    logs.shutdown(3)
    path = log.segments.active.path(".log")
    file = system.open(path)
    file.truncate(file.size() - 100)
    logs = manager(system)
    assert not logs.clean
    assert logs.previous_broker_epoch == -1
    [log] = logs.logs()
    assert log.log_end_offset < 20
    assert len(headers(log)) == log.log_end_offset


def test_a_second_manager_on_the_same_directory_is_refused() -> None:
    system = new_disk()
    manager(system)
    with pytest.raises(LogDirectoryLockedError, match="another process is using /d"):
        manager(system.reopen())


def test_a_second_process_is_refused_before_it_writes_anything(tmp_path: Path) -> None:
    logs = manager(OsFileSystem(), str(tmp_path))
    before = sorted(os.listdir(tmp_path))
    code = (
        "import sys\n"
        "from storage.filesystem import OsFileSystem\n"
        "from storage.manager.log_manager import LogManager\n"
        "from storage.errors import LogDirectoryLockedError\n"
        "try: LogManager(OsFileSystem(), [sys.argv[1]], node_id=2, cluster_id='x').startup()\n"
        "except LogDirectoryLockedError as error: sys.exit(str(error))\n"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert second.returncode == 1
    [line] = second.stderr.splitlines()
    assert str(tmp_path) in line
    assert sorted(os.listdir(tmp_path)) == before
    logs.shutdown()


@pytest.mark.parametrize(
    ("options", "names"),
    [({"cluster_id": "other"}, ("cluster c", "other")), ({"node_id": 2}, ("node 1", "node 2"))],
)
def test_a_directory_of_another_node_or_cluster_is_refused_naming_both(
    options: dict[str, Any], names: tuple[str, str]
) -> None:
    system = new_disk()
    manager(system).shutdown(5)
    before = text(system, "/d/meta.properties")
    with pytest.raises(InconsistentMetadataError) as refused:
        manager(system, **options)
    assert all(name in str(refused.value) for name in names)
    assert text(system, "/d/meta.properties") == before
    # Refused, it was not touched: the marker is still there for its owner.
    assert manager(system).previous_broker_epoch == 5


def test_the_cluster_id_may_be_learned_from_the_directory() -> None:
    system = new_disk()
    manager(system).shutdown()
    assert manager(system, cluster_id=None).cluster_id == "c"


def test_a_directory_that_is_no_partition_is_refused_by_name() -> None:
    system = new_disk()
    system.make_directory("/d/holiday")
    with pytest.raises(LogDirectoryError, match="/d/holiday is not the directory of a partition"):
        manager(system)
    system.remove_tree("/d/holiday")
    manager(system)  # the refused one has let go of the lock


def test_the_metadata_of_an_older_release_is_refused_by_name() -> None:
    system = new_disk()
    system.make_directory("/d/__understudy_metadata-0")
    with pytest.raises(LogDirectoryError, match="/d/__understudy_metadata-0 is the metadata log"):
        manager(system)


def test_stray_and_future_directories_are_left_alone() -> None:
    system = new_disk()
    for name in (f"t-1.{'0' * 32}-stray", f"t-2.{'0' * 32}-future"):
        system.make_directory(f"/d/{name}")
    assert manager(system).logs() == []


def test_a_stray_partition_is_put_aside_and_stays() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 3)
    logs.put_aside(log)
    name = aside_name(T0, int.from_bytes(ID, "big"), STRAY_SUFFIX)
    assert logs.get(T0) is None
    assert [warning for warning in logs.warnings if name in warning]
    unlink_due(logs, DELAY_MS)
    assert system.exists(f"/d/{name}/00000000000000000000.log")


@pytest.mark.conformance("UL-64")
@pytest.mark.conformance("UL-65")
def test_a_directory_that_is_renamed_keeps_its_epochs_and_its_topic_id() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 1, epoch=5)
    logs.put_aside(log)
    aside = "/d/" + aside_name(T0, int.from_bytes(ID, "big"), STRAY_SUFFIX)
    assert not system.exists("/d/t-0")
    again = Log.open(system, aside, T0)
    assert (again.topic_id, again.latest_epoch) == (ID, 5)
    fill(again, 2, epoch=10)
    again.flush()
    assert Log.open(system, aside, T0).latest_epoch == 10
    assert not system.exists("/d/t-0")


@pytest.mark.conformance("UL-66")
def test_a_topic_id_that_was_only_remembered_is_written_before_the_rename() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    assert not system.exists("/d/t-0/partition.metadata")  # there is no record yet
    logs.put_aside(log)
    aside = "/d/" + aside_name(T0, int.from_bytes(ID, "big"), STRAY_SUFFIX)
    assert Log.open(system, aside, T0).topic_id == ID


@pytest.mark.conformance("UL-74")
def test_a_closed_log_is_deleted_with_its_directory() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 3, epoch=7)
    log.close()
    logs.async_delete(T0)
    unlink_due(logs, 0)
    assert unlink_due(logs, DELAY_MS) == 1
    assert [name for name in system.list_directory("/d") if name.startswith("t-0")] == []
    again = logs.get_or_create(T0, ID)
    assert (again.size, again.log_end_offset, again.latest_epoch) == (0, 0, None)


@pytest.mark.conformance("UL-130")
def test_a_deletion_that_fails_takes_its_directory_offline() -> None:
    system = new_disk()
    failed: list[str] = []
    logs = manager(system, "/d", "/e", on_directory_failed=lambda path, _error: failed.append(path))
    log = logs.get_or_create(T0, ID)
    other = logs.get_or_create(T1, ID)
    home = os.path.dirname(log.directory)
    logs.async_delete(T0)
    system.inject(Fault(operation="remove_tree"))
    unlink_due(logs, 0)
    assert unlink_due(logs, DELAY_MS) == 0
    assert failed == [home]
    assert other.failed == (os.path.dirname(other.directory) == home)
    assert len(logs.doomed) == 0


def test_a_deleted_partition_is_renamed_and_later_gone() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0, ID)
    fill(log, 3)
    data = log.read(0, 1000, max_offset_exclusive=3, min_one=True)
    logs.async_delete(T0)
    assert logs.get(T0) is None
    name = aside_name(T0, int.from_bytes(ID, "big"), DELETE_SUFFIX)
    assert name == f"t-0.{ID.hex()}-delete"
    assert system.exists(f"/d/{name}")
    assert data.records is not None
    assert len(data.records.read()) == data.records.size
    # Made again, deleted again: both wait under names of their own.
    fill(logs.get_or_create(T0, ID), 1)
    logs.async_delete(T0)
    assert unlink_due(logs, 0) == 0
    assert unlink_due(logs, DELAY_MS - 1) == 0
    assert unlink_due(logs, DELAY_MS) == 2
    assert not any(name.endswith("-delete") for name in system.list_directory("/d"))


def test_a_deletion_that_a_crash_interrupted_is_finished() -> None:
    system = new_disk()
    logs = manager(system)
    fill(logs.get_or_create(T0, ID), 3)
    logs.async_delete(T0)
    system.detach()
    logs = manager(system.reopen())
    assert logs.logs() == []
    assert unlink_due(logs, 7) == 0
    assert unlink_due(logs, DELAY_MS + 7) == 1


def test_each_file_waits_the_delay_of_its_own_topic() -> None:
    system = new_disk()
    logs = manager(system)
    for topic_partition, delay_ms in ((T0, 10), (T1, 500)):
        log = logs.get_or_create(
            topic_partition, config=small_config(file_delete_delay_ms=delay_ms)
        )
        fill(log, 30)
        log.truncate_to(0)

    def doomed(directory: str) -> bool:
        return any(name.endswith(".deleted") for name in system.list_directory(directory))

    assert unlink_due(logs, 1000) == 0
    assert unlink_due(logs, 1009) == 0
    assert unlink_due(logs, 1010) > 0
    assert (doomed("/d/t-0"), doomed("/d/t-1")) == (False, True)
    unlink_due(logs, 1500)
    assert not doomed("/d/t-1")
    assert len(logs.doomed) == 0


def test_another_topic_of_the_same_name_is_refused() -> None:
    logs = manager(new_disk())
    logs.get_or_create(T0, ID)
    with pytest.raises(InconsistentTopicIdError):
        logs.get_or_create(T0, bytes(15) + b"\1")


def test_a_failed_directory_takes_its_logs_with_it_and_no_others() -> None:
    system = new_disk()
    failures = []
    logs = manager(
        system, "/d/a", "/d/b", on_directory_failed=lambda path, error: failures.append(path)
    )
    tps = [TopicPartition("t", n) for n in range(4)]
    made = [logs.get_or_create(tp, ID) for tp in tps]
    assert sorted(os.path.dirname(log.directory) for log in made) == [
        "/d/a",
        "/d/a",
        "/d/b",
        "/d/b",
    ]
    for log in made:
        lead(log)
    system.inject(Fault(operation="write", names="*.log"))
    with pytest.raises(KafkaStorageError):
        lead(made[0])
    gone = os.path.dirname(made[0].directory)
    assert failures == [gone]
    for log in made:
        assert log.failed == (os.path.dirname(log.directory) == gone)
    [alive] = {os.path.dirname(log.directory) for log in made} - {gone}
    assert os.path.dirname(logs.get_or_create(TopicPartition("u", 0)).directory) == alive
    with pytest.raises(KafkaStorageError):
        logs.get_or_create(TopicPartition("u", 1), is_new=False)
    logs.shutdown(3)
    assert system.exists(f"{alive}/.kafka_cleanshutdown")
    assert not system.exists(f"{gone}/.kafka_cleanshutdown")


def test_no_directory_left_is_an_error_that_says_why() -> None:
    system = new_disk()
    system.inject(Fault(operation="open", names=".lock", times=None))
    with pytest.raises(
        KafkaStorageError, match=r"no log directory can be used: /d: .*Input/output"
    ):
        manager(system)


def test_high_watermarks_come_back_as_checkpointed() -> None:
    system = new_disk()
    logs = manager(system)
    first, second = logs.get_or_create(T0), logs.get_or_create(T1)
    logs.checkpoint_high_watermarks({first: 4, second: 9, Log.open(system, "/e/t-0", T0): 1})
    assert logs.read_high_watermarks() == {first: 4, second: 9}


def test_a_high_watermark_checkpoint_that_does_not_parse_takes_its_directory_offline() -> None:
    system = new_disk()
    logs = manager(system, "/d/a", "/d/b")
    system.open("/d/a/replication-offset-checkpoint", create=True).write(0, b"what?")
    assert logs.read_high_watermarks() == {}
    assert os.path.dirname(logs.get_or_create(T0).directory) == "/d/b"


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_other_checkpoints_that_do_not_parse_are_warned_about(name: str) -> None:
    system = new_disk()
    logs = manager(system)
    fill(logs.get_or_create(T0), 20)
    system.detach()
    system = system.reopen()
    system.open(f"/d/{name}", create=True).write(0, b"0\nmany\n")
    logs = manager(system)
    assert name in logs.warnings[0]
    assert logs.logs()[0].log_end_offset == 20


def test_a_new_log_that_has_no_records_yet_begins_at_zero_after_a_crash() -> None:
    """The checkpoint has the log start of a deleted log of that name."""
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0)
    fill(log, 20)
    log.flush()
    log.update_high_watermark(20)
    log.increment_log_start_offset(7)
    logs.checkpoint_log_start_offsets()
    logs.async_delete(T0)
    logs.get_or_create(T0)
    system.disk.root.sync()
    for name in list(system.disk.root.entries):
        system.sync_directory(f"/{name}")
    system.crash()
    log = manager(system.reopen()).get_or_create(T0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_log_starts_survive_a_crash_once_checkpointed() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0)
    fill(log, 20)
    log.flush()
    log.update_high_watermark(20)
    log.increment_log_start_offset(7)
    logs.checkpoint_log_start_offsets()
    logs.checkpoint_recovery_points()
    system.crash()
    [log] = manager(system.reopen()).logs()
    assert (log.log_start_offset, log.log_end_offset) == (7, 20)


def test_a_truncation_below_the_recovery_point_writes_it_down_first() -> None:
    system = new_disk()
    logs = manager(system)
    log = logs.get_or_create(T0)
    fill(log, 20)
    log.flush()
    logs.checkpoint_recovery_points()
    log.truncate_to(9)
    assert text(system, "/d/recovery-point-offset-checkpoint").endswith("t 0 9\n")


def test_rolled_logs_are_handed_out_once_to_be_flushed() -> None:
    logs = manager(new_disk())
    log = logs.get_or_create(T0)
    fill(log, 3)
    assert logs.take_rolled() == []
    fill(log, 20)
    assert logs.take_rolled() == [log]
    assert logs.take_rolled() == []


def test_an_io_error_while_loading_takes_the_directory_offline() -> None:
    system = new_disk()
    logs = manager(system, "/d/a", "/d/b")
    fill(logs.get_or_create(T0), 3)
    fill(logs.get_or_create(T1), 3)
    system.detach()
    system = system.reopen()
    system.inject(Fault(operation="read", names="*.log"))
    logs = manager(system, "/d/a", "/d/b")
    assert len(logs.logs()) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", TopicPartition("t", 0)),
        ("a-b.c-12", TopicPartition("a-b.c", 12)),
        ("t", None),
        ("-0", None),
        ("t-", None),
        ("t-x", None),
    ],
)
def test_the_last_hyphen_separates_topic_and_partition(
    name: str, expected: TopicPartition | None
) -> None:
    assert partition_of(name) == expected


def test_a_long_topic_is_cut_in_the_name_it_is_deleted_under() -> None:
    name = aside_name(TopicPartition("x" * 249, 10), 5, DELETE_SUFFIX)
    assert len(name) == 255
    assert name.endswith(f"-10.{5:032x}-delete")


def test_real_files_open_again(tmp_path: Path) -> None:
    logs = manager(OsFileSystem(), str(tmp_path))
    log = logs.get_or_create(T0, ID)
    fill(log, 100)
    log.append_as_follower(batch(3, at=100))
    before = contents(log)
    logs.shutdown(4)
    logs = manager(OsFileSystem(), str(tmp_path))
    assert contents(logs.logs()[0]) == before
    logs.close_uncleanly()
    logs = manager(OsFileSystem(), str(tmp_path))
    assert contents(logs.logs()[0]) == before
    logs.shutdown()


def test_a_detached_manager_cannot_start() -> None:
    system: FaultyFileSystem = new_disk()
    system.detach()
    with pytest.raises(KafkaStorageError, match="killed"):
        manager(system)
