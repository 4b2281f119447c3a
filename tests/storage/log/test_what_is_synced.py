"""What a flush has made to last is there when the power has taken all the rest.

The disk keeps what was synced and nothing else: neither the bytes of a file nor the names in a
directory. So each of the syncs that a flush consists of is missed where it is left out.
"""

import contextlib
import itertools
from collections.abc import Callable

import pytest

from storage.batch.record_batch import HEADER_SIZE
from storage.errors import StorageError
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX
from storage.producers.snapshot import snapshots_in
from storage.testing import Fate
from storage.types import TopicPartition
from tests.storage.logs import (
    batch,
    contents,
    fill,
    joined,
    lead,
    new_disk,
    open_log,
    started,
)

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("fate", [Fate.NOTHING, Fate.WHOLE])
def test_a_segment_that_was_flushed_has_its_name(fate: Fate) -> None:
    """The epoch is written with the first flush, which syncs names too; with the second it is
    the flush itself that has to.
    """
    disk = new_disk()
    log = open_log(disk)
    fill(log, 3)
    log.flush()
    log.roll()
    fill(log, 3)
    log.flush()
    synced, point = contents(log), log.recovery_point
    disk.crash(fate)
    found = open_log(disk.reopen(), recovery_point=point)
    assert contents(found) == synced
    assert found.log_end_offset == point == 6


def test_a_log_that_was_flushed_has_its_directory() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, b"\1" * 16)
    fill(log, 3)
    log.flush()
    disk.crash(Fate.NOTHING)
    again = started(disk.reopen())
    found = again.get(T0)
    assert found is not None
    assert found.log_end_offset == 3


def test_a_cut_is_synced_before_a_segment_follows_it() -> None:
    """Or what was cut comes back, as long as what was written in its place, and the next segment
    still joins it: two histories in one log.
    """
    disk = new_disk()
    log = open_log(disk)
    kept, cut, instead, behind = (
        batch(1, at=at, epoch=epoch, key=key)
        for at, epoch, key in ((0, 0, b"k"), (1, 0, b"x"), (1, 1, b"y"), (2, 1, b"z"))
    )
    log.append_as_follower(joined(kept, cut))
    log.flush()
    log.truncate_to(1)
    log.append_as_follower(memoryview(bytearray(instead)))
    log.roll()
    log.append_as_follower(memoryview(bytearray(behind)))
    point = log.recovery_point
    disk.crash(Fate.UNCUT)
    found = contents(open_log(disk.reopen(), recovery_point=point))
    assert point == 1
    assert found in (b"".join([kept, instead, behind]), b"".join([kept, cut]))


def test_a_log_that_begins_anew_knows_no_epoch_of_before() -> None:
    disk = new_disk()
    log = open_log(disk)
    for epoch in range(3):
        lead(log, epoch=epoch)
    log.flush()
    log.truncate_fully_and_start_at(50)
    assert log.leader_epoch_cache.entries == []
    assert log.latest_epoch is None
    log.append_as_follower(batch(1, at=50, epoch=7))
    log.flush()
    disk.crash(Fate.NOTHING)
    found = open_log(disk.reopen(), recovery_point=51, log_start_offset=50)
    assert [(each.epoch, each.start_offset) for each in found.leader_epoch_cache.entries] == [
        (7, 50)
    ]


@pytest.mark.parametrize(
    "cut",
    [lambda log: log.truncate_to(2), lambda log: log.truncate_fully_and_start_at(2)],
    ids=["cut", "begun anew"],
)
def test_a_cut_lowers_the_recovery_point_for_good_before_anything_is_cut(
    cut: Callable[[Log], None],
) -> None:
    """A crash would believe that what comes instead had been synced."""
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, b"\1" * 16)
    fill(log, 6)
    log.flush()
    logs.checkpoint_recovery_points()
    cut(log)
    disk.crash(Fate.NOTHING)
    again = started(disk.reopen())
    assert again.directories[0].recovery_points[T0] <= 2


def test_a_snapshot_that_a_cut_deleted_does_not_come_back() -> None:
    """The log goes on differently, and would take what it says for its own."""
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(4):
        lead(log, producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.roll()
    log.flush()
    assert [offset for offset in log.producers.snapshots if offset > 2]
    log.truncate_to(2)
    disk.crash(Fate.NOTHING)
    left = snapshots_in(disk.reopen().list_directory("/d/t-0"))
    assert [offset for offset in left if offset > 2] == []


def test_a_log_that_was_deleted_does_not_come_back() -> None:
    """A topic of the same name would be given its records."""
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, b"\1" * 16)
    fill(log, 3)
    log.flush()
    logs.async_delete(T0)
    disk.crash(Fate.NOTHING)
    again = started(disk.reopen())
    assert again.logs() == []


def test_a_checkpoint_that_was_settled_is_the_one_that_is_read() -> None:
    disk = new_disk()
    logs = started(disk)
    log = logs.get_or_create(T0, b"\1" * 16)
    fill(log, 3)
    log.flush()
    (plan,) = logs.plan_recovery_points()
    plan.prepare()
    assert plan.publish()
    plan.settle()
    disk.crash(Fate.NOTHING)
    again = started(disk.reopen())
    assert again.directories[0].recovery_points == {T0: 3}


def test_segments_that_recovery_dropped_do_not_come_back_behind_new_records() -> None:
    """What is written in place of what was cut would join them: two histories in one log."""
    disk = new_disk()
    log = open_log(disk)
    kept, damaged, follows = (batch(1, at=at) for at in range(3))
    log.append_as_follower(joined(kept, damaged))
    log.roll()
    log.append_as_follower(follows)
    log.flush()
    # Without snapshots and leader epochs nothing else has the directory synced.
    for offset in log.producers.snapshots:
        disk.remove(log.producers.snapshot_path(offset))
    disk.sync_directory(log.directory)
    disk.disk.flip_bit(log.segments[0].path(LOG_SUFFIX), len(kept) + HEADER_SIZE)
    disk.crash()
    disk = disk.reopen()
    log = open_log(disk)
    assert log.log_end_offset == 1
    instead = batch(1, at=1, key=b"other")
    log.append_as_follower(memoryview(bytearray(instead)))
    log.roll()  # which syncs the file, and not the directory
    disk.crash(Fate.NOTHING)
    assert contents(open_log(disk.reopen())) == b"".join([kept, instead])


def test_a_crash_amid_a_cut_leaves_no_hole() -> None:
    """Later segments go for good before the file that stays is cut."""
    holes = 0
    for changes, seed in itertools.product(range(20), range(6)):
        disk = new_disk(seed)
        log = open_log(disk)
        log.append_as_follower(joined(*(batch(1, at=at) for at in range(3))))
        log.roll()
        log.append_as_follower(batch(1, at=3))
        log.flush()
        for offset in log.producers.snapshots:
            log.producers.delete_snapshot(offset)  # or their removal has the directory synced
        disk.sync_directory(log.directory)
        disk.die_after(changes)
        with contextlib.suppress(StorageError):
            log.truncate_to(1)
        disk.crash()
        again = open_log(disk.reopen(), recovery_point=log.recovery_point)
        holes += any("join" in each.cause for each in again.recovery.repairs)
        assert again.log_end_offset in (1, 3, 4)
    assert holes == 0


def test_bytes_that_recovery_cut_off_are_kept_for_good() -> None:
    disk = new_disk()
    log = open_log(disk)
    kept, damaged = (batch(1, at=at) for at in range(2))
    log.append_as_follower(joined(kept, damaged))
    log.flush()
    disk.disk.flip_bit(log.segments[0].path(LOG_SUFFIX), len(kept) + HEADER_SIZE)
    disk.crash()
    disk = disk.reopen()
    log = open_log(disk, recovery_point=2)
    (repair,) = log.recovery.repairs
    log.append_as_follower(batch(1, at=1))
    log.roll()  # which syncs the file, and not the directory
    disk.crash(Fate.NOTHING)
    assert disk.reopen().exists(repair.kept)
