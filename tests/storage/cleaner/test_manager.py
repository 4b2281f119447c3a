"""Which log is cleaned when, and what its checkpoint says through cuts, deletions and restarts."""

import contextlib
import errno
from typing import Any

import pytest

from replication.steps import at_once
from storage.checkpoint import CLEANER_CHECKPOINT, OffsetCheckpoint
from storage.cleaner.cleaner import Cleaning
from storage.cleaner.offset_map import OffsetMap
from storage.errors import CleaningAbortedError, CorruptRecordError, KafkaStorageError, StorageError
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.testing import Fate, Fault, FaultyFileSystem
from storage.types import Offset, TopicPartition
from tests.storage.cleaning import compacted, finish, pairs, put, roll
from tests.storage.logs import WALL_MS, batch, new_disk, small_config, started

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A = b"a"


def manager(disk: FileSystem, **config: Any) -> LogManager:
    return started(disk, config=compacted(**config))


def dirty(log: Log, segments: int) -> Log:
    """So many segments, of which compaction leaves a record."""
    for number in range(segments):
        put(log, (A, b"%100d" % number))
        roll(log)
    return log


def start(logs: LogManager, wall_ms: int = WALL_MS) -> Cleaning | None:
    return at_once(logs.cleaner.start(wall_ms, lambda: OffsetMap(1 << 12)))


def clean(logs: LogManager) -> Log | None:
    """The round that is due, if one is: whose log it was."""
    cleaning = start(logs)
    if cleaning is None:
        return None
    finish(cleaning)
    logs.cleaner.finish(cleaning)
    return cleaning.log


def checkpoint(logs: LogManager) -> dict[TopicPartition, Offset]:
    """As it stands on the disk."""
    directory = logs.directories[0]
    in_memory = dict(directory.cleaner_offsets)
    directory.read_checkpoints()
    assert directory.cleaner_offsets == in_memory
    return in_memory


def test_the_dirtiest_log_goes_first_and_each_once() -> None:
    logs = manager(new_disk())
    dirty(logs.get_or_create(T0), 2)
    dirty(logs.get_or_create(T1), 2)
    assert clean(logs) is logs.get(T0)
    dirty(logs.get_or_create(T0), 2)
    assert clean(logs) is logs.get(T1)
    assert clean(logs) is logs.get(T0)
    assert clean(logs) is None
    assert checkpoint(logs) == {T0: 4, T1: 2}


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    logs = manager(new_disk())
    dirty(logs.get_or_create(T0, config=small_config()), 2)
    assert clean(logs) is None
    assert logs.cleaner.dirtiest_ratio == 0


def test_two_cleaners_never_meet_at_one_log() -> None:
    logs = manager(new_disk())
    dirty(logs.get_or_create(T0), 2)
    first = start(logs)
    assert first is not None
    assert T0 in logs.cleaner.in_progress
    assert start(logs) is None
    finish(first)
    logs.cleaner.finish(first)
    assert T0 not in logs.cleaner.in_progress


def test_the_checkpoint_is_read_at_the_next_start() -> None:
    disk = new_disk()
    logs = manager(disk)
    dirty(logs.get_or_create(T0), 3)
    clean(logs)
    logs.shutdown()
    logs = manager(disk)
    log = logs.get_or_create(T0)
    log.update_high_watermark(log.log_end_offset)
    assert checkpoint(logs) == {T0: 3}
    assert clean(logs) is None
    dirty(log, 2)
    assert clean(logs) is log
    assert list(pairs(log)) == [4]


def test_segments_that_the_checkpoint_calls_clean_do_not_come_back() -> None:
    """A tombstone would go before the record that it deletes, which has come back as clean."""
    disk = new_disk()
    logs = manager(disk)
    log = dirty(logs.get_or_create(T0), 3)
    clean(logs)
    left = pairs(log)
    disk.crash(Fate.NOTHING)
    logs = manager(disk.reopen())
    found = logs.get(T0)
    assert found is not None
    assert checkpoint(logs) == {T0: 3}
    assert pairs(found) == left


def test_a_checkpoint_below_the_log_start_is_written_anew() -> None:
    logs = manager(new_disk())
    log = dirty(logs.get_or_create(T0), 3)
    clean(logs)
    dirty(log, 2)
    log.increment_log_start_offset(4)
    log.delete_segments_below_log_start()
    cleaning = start(logs)
    assert checkpoint(logs) == {T0: 4}
    assert cleaning is not None
    assert cleaning.plan.dirty.first_dirty_offset == 4


def test_a_truncation_ends_the_round_and_pulls_the_checkpoint_back() -> None:
    logs = manager(new_disk())
    log = dirty(logs.get_or_create(T0), 4)
    clean(logs)
    assert checkpoint(logs) == {T0: 4}
    dirty(log, 2)
    cleaning = start(logs)
    assert cleaning is not None
    cleaning.advance(1)
    log.truncate_to(2)
    # What was one segment is cut in the middle, and begins at 0.
    assert checkpoint(logs) == {T0: 0}
    with pytest.raises(CleaningAbortedError) as error:
        cleaning.advance(1)
    logs.cleaner.finish(cleaning, error.value)
    assert checkpoint(logs) == {T0: 0}
    assert T0 not in logs.cleaner.in_progress
    # It is not left alone for good.
    dirty(log, 2)
    assert clean(logs) is log
    assert list(pairs(log)) == [3]


def test_a_truncation_above_what_is_clean_leaves_the_checkpoint() -> None:
    logs = manager(new_disk())
    log = dirty(logs.get_or_create(T0), 3)
    clean(logs)
    dirty(log, 2)
    log.truncate_to(4)
    assert checkpoint(logs) == {T0: 3}


def test_a_log_emptied_to_start_elsewhere_is_clean_from_there() -> None:
    logs = manager(new_disk())
    log = dirty(logs.get_or_create(T0), 3)
    clean(logs)
    log.truncate_fully_and_start_at(2)
    assert checkpoint(logs) == {T0: 2}


def test_a_power_cut_in_a_truncation_leaves_no_checkpoint_past_the_end() -> None:
    for changes in range(12):
        disk = new_disk(changes)
        logs = manager(disk)
        log = dirty(logs.get_or_create(T0), 4)
        clean(logs)
        log.flush()
        disk.die_after(changes)
        with contextlib.suppress(KafkaStorageError):
            log.truncate_to(1)
        disk.crash()
        logs.close_uncleanly()
        logs = manager(disk.reopen())
        log = logs.get_or_create(T0)
        kept = checkpoint(logs).get(T0, 0)
        put(log, (A, b""))
        assert checkpoint(logs).get(T0, 0) <= log.log_end_offset
        assert kept in (0, 4)
        logs.close_uncleanly()


def test_a_deletion_ends_the_round() -> None:
    logs = manager(new_disk())
    log = dirty(logs.get_or_create(T0), 2)
    cleaning = start(logs)
    assert cleaning is not None
    cleaning.advance(1)
    logs.async_delete(T0)
    with pytest.raises(CleaningAbortedError):
        cleaning.advance(1)
    logs.cleaner.finish(cleaning, CleaningAbortedError())
    assert not log.failed
    assert logs.directories[0].failure is None
    assert checkpoint(logs) == {}


def test_a_new_topic_of_an_old_name_is_not_taken_for_clean() -> None:
    logs = manager(new_disk())
    dirty(logs.get_or_create(T0), 3)
    clean(logs)
    logs.async_delete(T0)
    log = logs.get_or_create(T0)
    put(log, (A, b""))
    assert checkpoint(logs) == {T0: 0}
    dirty(log, 4)
    cleaning = start(logs)
    assert cleaning is not None
    assert cleaning.plan.dirty.first_dirty_offset == 0


def test_uncleanable_logs_are_counted_and_left_alone() -> None:
    disk = new_disk()
    logs = manager(disk)
    log = dirty(logs.get_or_create(T0), 2)
    dirty(logs.get_or_create(T1), 2)
    disk.disk.corrupt(f"{log.directory}/{0:020d}.log", 80, b"\x55")
    cleaning = start(logs)
    assert cleaning is not None
    with pytest.raises(CorruptRecordError) as error:
        finish(cleaning)
    logs.cleaner.finish(cleaning, error.value)
    assert logs.cleaner.uncleanable_partitions("/d") == 1
    assert clean(logs) is logs.get(T1)
    assert clean(logs) is None
    assert not log.failed
    logs.async_delete(T0)
    assert logs.cleaner.uncleanable_partitions("/d") == 0


@pytest.mark.parametrize("operation", ["write", "sync", "open"])
def test_a_disk_that_fails_takes_its_directory_offline(operation: str) -> None:
    disk = new_disk()
    logs = manager(disk)
    log = dirty(logs.get_or_create(T0), 2)
    cleaning = start(logs)
    assert cleaning is not None
    disk.inject(Fault(operation=operation, names="*.cleaned", error=errno.EIO))
    with pytest.raises(OSError, match="error") as error:
        finish(cleaning)
    with pytest.raises(StorageError):
        raise log.fail(error.value)
    logs.cleaner.finish(cleaning, error.value)
    assert logs.directories[0].failure is error.value
    assert start(logs) is None
    assert isinstance(disk, FaultyFileSystem)


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_gap_that_another_cleaner_has_left_is_no_loss(checkpointed: bool) -> None:
    """Apache Kafka keeps no batch at the end of each segment; its checkpoint says how far."""
    disk = new_disk()
    disk.make_directory("/d/t-0")
    for base in (0, 50):
        file = disk.open(f"/d/t-0/{base:020d}.log", create=True)
        file.write(0, batch(1, at=base, epoch=0))
        file.close()
    if checkpointed:
        OffsetCheckpoint(disk, f"/d/{CLEANER_CHECKPOINT}").write({T0: 51})
    log = manager(disk).get_or_create(T0)
    assert list(pairs(log)) == ([0, 50] if checkpointed else [0])


@pytest.mark.parametrize("damaged", [True, False])
def test_a_log_whose_age_cannot_be_read_is_passed_over(damaged: bool) -> None:
    """How long it has waited is asked of the first batch of a dirty segment."""
    disk = new_disk()
    logs = manager(disk, min_compaction_lag_ms=1)
    log = dirty(logs.get_or_create(T0), 2)
    logs.shutdown()
    logs = started(disk, config=compacted(min_compaction_lag_ms=1))
    reopened = logs.get(T0)
    assert reopened is not None
    reopened.update_high_watermark(reopened.log_end_offset)
    if damaged:
        disk.disk.corrupt(f"{log.directory}/{0:020d}.log", 16, b"\7")
    else:
        disk.inject(Fault(operation="read", names="*.log", error=errno.EIO, times=None))
    assert start(logs, WALL_MS + 10**6) is None
    assert logs.cleaner.uncleanable_partitions("/d") == damaged
    assert reopened.failed == (not damaged)
