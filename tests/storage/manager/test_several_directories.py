"""A node with several log directories: whose they are, and one that fails while others go on."""

import itertools

import pytest

from storage.checkpoint import read_meta_properties
from storage.errors import InconsistentMetadataError, KafkaStorageError
from storage.manager.log_manager import LogManager
from storage.testing import Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import contents, fill, lead, new_disk, offsets, small_config

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, FORMER_ID = b"\1" * 16, b"\2" * 16
DIRECTORIES = ("/d/a", "/d/b")


def started(disk: FaultyFileSystem, *, cluster_id: str | None = None) -> LogManager:
    ids = itertools.count(1 << 64)  # lower ones are reserved
    logs = LogManager(
        disk,
        DIRECTORIES,
        node_id=1,
        cluster_id=cluster_id,
        config=small_config(),
        new_directory_id=lambda: next(ids).to_bytes(16, "big"),
    )
    logs.startup()
    return logs


def test_a_node_that_joins_a_cluster_writes_it_down_everywhere() -> None:
    disk = new_disk()
    logs = started(disk)
    logs.join_cluster("c")
    logs.shutdown()
    for path in DIRECTORIES:
        properties = read_meta_properties(disk, path)
        assert properties is not None
        assert properties.cluster_id == "c"
    with pytest.raises(InconsistentMetadataError, match="belongs to cluster c"):
        started(disk, cluster_id="another")


def test_a_log_is_made_in_the_directory_that_it_was_assigned_to() -> None:
    logs = started(new_disk())
    second = logs.directories[1].directory_id
    assert second is not None
    for key in (T0, T1):
        logs.get_or_create(key, ID, directory_id=second)
        assert logs.directory_id_of(key) == second
    assert logs.directory_id_of(TopicPartition("nowhere", 0)) is None
    logs.directories[0].failure = OSError()
    with pytest.raises(KafkaStorageError, match="offline"):
        logs.get_or_create(TopicPartition("u", 0), ID, directory_id=b"\7" * 16)


def test_a_log_that_cannot_be_made_takes_its_directory_offline() -> None:
    disk = new_disk()
    logs = started(disk)
    disk.inject(Fault(operation="make_directory", names="t-0"))
    with pytest.raises(KafkaStorageError, match="/d/a is offline"):
        logs.get_or_create(T0, ID)
    assert logs.get(T0) is None
    assert logs.get_or_create(T0, ID).directory == "/d/b/t-0"


@pytest.mark.parametrize("stray", [False, True])
def test_a_log_on_a_disk_that_is_gone_is_forgotten_and_left_where_it_is(*, stray: bool) -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, ID)
    disk.inject(Fault(operation="write", names="*.log"))
    with pytest.raises(KafkaStorageError):
        lead(log)
    if stray:
        logs.put_aside(log)
    else:
        logs.async_delete(T0)
    assert logs.get(T0) is None
    assert disk.exists("/d/a/t-0")
    assert not logs.warnings


def test_a_rename_that_fails_takes_the_directory_offline() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, ID)
    disk.inject(Fault(operation="rename", names="t-0"))
    with pytest.raises(KafkaStorageError, match="/d/a is offline"):
        logs.put_aside(log)
    assert disk.exists("/d/a/t-0")


def test_high_watermarks_that_cannot_be_read_take_their_directory_offline() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T1, ID, directory_id=logs.directories[1].directory_id)
    fill(log, 3)
    log.update_high_watermark(2)
    logs.checkpoint_high_watermarks({log: 2})
    disk.inject(Fault(operation="open", names="replication-offset-checkpoint"))
    assert logs.read_high_watermarks() == {log: 2}
    assert [each.failure is not None for each in logs.directories] == [True, False]


def with_copies(disk: FaultyFileSystem, *topic_ids: bytes | None) -> LogManager:
    """Return what starts with a log of T0 in each directory; the n-th has n records."""
    for number, (path, topic_id) in enumerate(zip(DIRECTORIES, topic_ids, strict=True), 1):
        logs = LogManager(disk, [path], node_id=1, config=small_config())
        logs.startup()
        log = logs.get_or_create(T0, topic_id)
        fill(log, number)
        logs.checkpoint_high_watermarks({log: number})
        logs.shutdown()
    return started(disk)


@pytest.mark.parametrize("present", [1, 2])
@pytest.mark.parametrize("former", [FORMER_ID, None], ids=["another id", "no id"])
def test_of_two_logs_of_one_name_that_of_the_present_topic_stays(
    present: int, former: bytes | None
) -> None:
    disk = new_disk()
    logs = with_copies(disk, *((ID, former) if present == 1 else (former, ID)))
    marks = logs.read_high_watermarks()
    [stray] = logs.strays({T0: ID}.get)
    logs.put_aside(stray)
    [log] = logs.logs()
    assert (log, log.topic_id, log.log_end_offset) == (logs.get(T0), ID, present)
    assert marks[log] == present
    names = disk.list_directory(DIRECTORIES[2 - present])
    assert [name.endswith("-stray") for name in names if name.startswith("t-0")] == [True]
    logs.shutdown()
    assert len(started(disk).logs()) == 1


def test_two_logs_of_one_name_are_both_stray_where_the_topic_is_a_third_one() -> None:
    logs = with_copies(new_disk(), ID, FORMER_ID)
    assert logs.strays({T0: b"\3" * 16}.get) == logs.logs()


def test_a_log_of_no_partition_is_stray_and_one_without_an_id_is_not() -> None:
    logs = started(new_disk())
    logs.get_or_create(T0)
    assert logs.strays({T0: ID, T1: ID}.get) == []
    assert logs.strays({T1: ID}.get) == logs.logs()


def test_a_directory_that_does_not_say_whose_its_copy_is_goes_offline() -> None:
    disk = new_disk()
    with_copies(disk, ID, FORMER_ID).shutdown()
    disk.inject(Fault(operation="open", names="partition.metadata"))
    logs = started(disk)
    assert [each.failure is not None for each in logs.directories] == [False, True]
    assert [log.topic_id for log in logs.logs()] == [ID]


def test_a_log_that_fails_to_close_leaves_no_marker_and_the_others_are_not_tried() -> None:
    disk = new_disk()
    logs = started(disk)
    first = logs.directories[0].directory_id
    made = [logs.get_or_create(key, ID, directory_id=first) for key in (T0, T1)]
    for log in made:
        fill(log, 3)
    disk.inject(Fault(operation="sync", names="*.log"))
    logs.shutdown(5)
    assert all(log.failed for log in made)
    assert [disk.exists(f"{path}/.kafka_cleanshutdown") for path in DIRECTORIES] == [False, True]
    again = started(disk)
    assert again.previous_broker_epoch == -1
    log = again.get_or_create(T0, ID)
    assert offsets(contents(log)) == [0, 1, 2]


def test_a_log_start_on_the_disk_falls_back_before_the_log_does() -> None:
    """Or a crash would take the records below it for deleted."""
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, ID)
    fill(log, 30)
    log.update_high_watermark(30)
    log.increment_log_start_offset(20)
    logs.checkpoint_log_start_offsets()
    assert logs.directories[0].log_start_offsets == {T0: 20}
    log.truncate_to(10)
    assert log.log_start_offset == 10
    assert logs.directories[0].log_start_offsets.get(T0, 0) <= 10
    lead(log)
    disk.detach()
    again = started(disk.reopen())
    log = again.get_or_create(T0, ID)
    assert (log.log_start_offset, log.log_end_offset) == (10, 11)


def test_checkpoints_are_planned_written_elsewhere_and_then_believed() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, ID)
    fill(log, 30)
    log.flush()
    log.update_high_watermark(30)
    log.increment_log_start_offset(1)
    for plan in (*logs.plan_recovery_points(), *logs.plan_log_start_offsets()):
        plan.prepare()
        assert plan.publish()
        plan.settle()
    assert logs.directories[0].recovery_points == {T0: 30}
    assert logs.directories[0].log_start_offsets == {T0: 1}
    # One that a truncation has overtaken would claim more than there is.
    stale = logs.plan_recovery_points()[0]
    stale.prepare()
    log.truncate_to(10)
    assert not stale.publish()
    assert logs.directories[0].recovery_points == {T0: 10}


def test_a_plan_that_could_not_be_carried_out_takes_its_directory_offline() -> None:
    logs = started(new_disk())
    log = logs.get_or_create(T0, ID)
    with pytest.raises(KafkaStorageError, match="/d/a is offline"):
        raise logs.fail(logs.directories[0], OSError("full"))
    assert log.failed


def test_producers_expire_as_configured_last() -> None:
    logs = started(new_disk())
    log = logs.get_or_create(T0, ID)
    logs.expire_producers_after(5)
    later = logs.get_or_create(T1, ID)
    assert {log.producers.expiration_ms, later.producers.expiration_ms} == {5}
