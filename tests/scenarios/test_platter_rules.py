"""The rules about the platter find what a power cut would take, and nothing in a log that is synced."""

import contextlib

import pytest

from scenarios.checkers.platter import (
    GONE,
    SYNCED,
    is_gone,
    is_on_platter,
    is_ready_for_a_power_cut,
)
from storage.checkpoint import RECOVERY_POINT_CHECKPOINT
from storage.errors import StorageError
from storage.log.log import Log
from storage.testing import FaultyFileSystem
from storage.testing.disk import DirectoryNode
from storage.types import TopicPartition
from tests.scenarios.values import rules
from tests.storage.logs import fill, lead, new_disk, open_log, started


@pytest.fixture
def disk() -> FaultyFileSystem:
    return new_disk()


@pytest.fixture
def log(disk: FaultyFileSystem) -> Log:
    """A log of two segments, of which the first is synced with its name."""
    log = started(disk).get_or_create(TopicPartition("t", 0), b"\1" * 16)
    fill(log, 3)
    log.flush()
    log.roll()
    fill(log, 3)
    return log


def found(disk: FaultyFileSystem, log: Log) -> list[str]:
    return rules(is_on_platter("t-0 on b1", disk.disk, log))


def directory(disk: FaultyFileSystem, path: str) -> DirectoryNode:
    return disk.disk.directory(path)


def test_a_log_that_says_what_is_true(disk: FaultyFileSystem, log: Log) -> None:
    assert not found(disk, log)
    log.flush()
    log.roll()
    assert not found(disk, log)
    log.truncate_to(2)
    fill(log, 2)
    log.roll()
    assert not found(disk, log)


def test_a_segment_below_the_recovery_point_has_its_name(disk: FaultyFileSystem, log: Log) -> None:
    log.flush()
    log.roll()
    del directory(disk, log.directory).durable[f"{3:020d}.log"]
    assert found(disk, log) == [SYNCED]


def test_a_log_that_is_synced_has_its_directory(disk: FaultyFileSystem, log: Log) -> None:
    parent, _, name = log.directory.rpartition("/")
    del directory(disk, parent).durable[name]
    assert found(disk, log) == [SYNCED]


def test_a_recovery_point_is_in_the_log(disk: FaultyFileSystem, log: Log) -> None:
    log.local.recovery_point = log.log_end_offset + 1
    assert found(disk, log) == [SYNCED]


def test_no_checkpoint_says_more_than_the_log(disk: FaultyFileSystem) -> None:
    logs = started(disk)
    log = logs.get_or_create(TopicPartition("t", 0), b"\1" * 16)
    fill(log, 3)
    log.flush()
    logs.checkpoint_recovery_points()
    assert not found(disk, log)
    log.local.recovery_point = 2
    assert found(disk, log) == [SYNCED]


def test_a_rotten_checkpoint_is_asked_again_once_it_is_written_anew(
    disk: FaultyFileSystem,
) -> None:
    logs = started(disk)
    log = logs.get_or_create(TopicPartition("t", 0), b"\1" * 16)
    fill(log, 3)
    log.flush()
    logs.checkpoint_recovery_points()
    parent = log.directory.rpartition("/")[0]
    rotten = [directory(disk, parent).durable[RECOVERY_POINT_CHECKPOINT]]
    log.local.recovery_point = 2
    assert found(disk, log) == [SYNCED]
    assert not list(is_on_platter("t-0 on b1", disk.disk, log, rotten=rotten))
    log.local.recovery_point = 3
    logs.checkpoint_recovery_points()
    log.local.recovery_point = 2
    assert rules(is_on_platter("t-0 on b1", disk.disk, log, rotten=rotten)) == [SYNCED]


def test_a_cut_is_synced_before_another_segment_follows(disk: FaultyFileSystem, log: Log) -> None:
    log.truncate_to(2)
    log.local.cut_unsynced = False
    log.roll()
    assert found(disk, log) == [GONE]


def test_what_was_cut_has_no_name_on_the_platter(disk: FaultyFileSystem) -> None:
    log = open_log(disk)
    for sequence in range(4):
        lead(log, producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.roll()
    log.flush()
    kept = dict(directory(disk, log.directory).durable)
    log.truncate_to(2)
    assert not list(is_gone("t-0 on b1", disk.disk, log, 2))
    directory(disk, log.directory).durable.update(kept)
    assert rules(is_gone("t-0 on b1", disk.disk, log, 2)) == [GONE, GONE]
    assert not list(is_gone("t-0 on b1", disk.disk, log, 4))


def test_a_log_is_ready_for_a_power_cut_after_each_change_of_a_cut() -> None:
    """A log of several segments is cut in its first one; another one begins anew."""
    died = []
    for changes in range(60):
        disk = new_disk()
        logs = started(disk)
        topic_partitions = [TopicPartition("t", each) for each in range(2)]
        cut, anew = (logs.get_or_create(each, b"\1" * 16) for each in topic_partitions)
        for log in (cut, anew):
            for _ in range(4):
                fill(log, 3)
                log.roll()
            log.flush()
        logs.checkpoint_recovery_points()
        disk.die_after(changes)
        with contextlib.suppress(StorageError):
            cut.truncate_to(2)
            anew.truncate_fully_and_start_at(20)
        for log in (cut, anew):
            assert not list(is_ready_for_a_power_cut("t on b1", disk.disk, log)), changes
        died.append(disk.detached)
    assert died[0]
    assert not died[-1], "the process has died before each change"


def test_no_file_is_cut_while_a_segment_may_come_back_behind_it(
    disk: FaultyFileSystem, log: Log
) -> None:
    log.flush()
    log.segments[0].cut(0)
    assert rules(is_ready_for_a_power_cut("t-0 on b1", disk.disk, log)) == [GONE]
    disk.disk.directory(log.directory).durable.pop(f"{3:020d}.log")
    assert not list(is_ready_for_a_power_cut("t-0 on b1", disk.disk, log))


def test_no_checkpoint_says_that_what_is_being_removed_is_synced(disk: FaultyFileSystem) -> None:
    logs = started(disk)
    log = logs.get_or_create(TopicPartition("t", 0), b"\1" * 16)
    fill(log, 3)
    log.roll()
    fill(log, 3)
    log.flush()
    logs.checkpoint_recovery_points()
    log.segments.active.delete()
    assert rules(is_ready_for_a_power_cut("t-0 on b1", disk.disk, log)) == [SYNCED]
    disk.sync_directory(log.directory)
    assert not list(is_ready_for_a_power_cut("t-0 on b1", disk.disk, log))
