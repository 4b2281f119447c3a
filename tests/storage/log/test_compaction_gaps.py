"""Gaps between segments that compaction has left, and those that tell of a loss."""

import pytest

from storage.checkpoint import COMPACTION_GAP_CHECKPOINT, OffsetCheckpoint, read_file
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX, file_name
from storage.testing import FaultyFileSystem
from storage.tools.dump import dump
from storage.tools.dump.entries import CheckpointEntry
from storage.types import Offset
from tests.storage.cleaning import clean, compacted, pairs, put, roll
from tests.storage.logs import TP, bases, new_disk, open_log

A, B = b"a", b"b"
CONFIG = compacted(segment_bytes=200)
PATH = f"/d/t-0/{COMPACTION_GAP_CHECKPOINT}"


def compacted_log(disk: FaultyFileSystem) -> Log:
    """Return [0: b][1: ][2: ][3: ][4: a]│[5: ], of which 0 and 4 were left."""
    log = open_log(disk, CONFIG)
    put(log, (B, bytes(100)))
    for _ in range(4):
        put(log, (A, bytes(100)))
    roll(log)
    clean(log)
    assert (list(pairs(log)), bases(log)) == ([0, 4], [0, 1, 2, 3, 4, 5])
    return log


def reopened(disk: FaultyFileSystem, *, clean: bool = False, recovery_point: Offset = 0) -> Log:
    return open_log(disk, CONFIG, clean=clean, recovery_point=recovery_point)


def on_the_disk(disk: FaultyFileSystem) -> Offset:
    return OffsetCheckpoint(disk, PATH).read()[TP]


@pytest.mark.parametrize("clean", [True, False])
def test_a_gap_that_compaction_left_is_no_loss_wherever_the_recovery_point_is(clean: bool) -> None:
    """Most checkpoints are a minute old, and a round's own is written when it is over."""
    disk = new_disk()
    log = compacted_log(disk)
    assert on_the_disk(disk) == log.local.compaction_gaps.below == 5
    log.close() if clean else log.close_uncleanly()
    again = reopened(disk, clean=clean, recovery_point=5 if clean else 0)
    assert not again.recovery.repairs
    assert again.recovery.clean is clean
    assert (list(pairs(again)), bases(again)) == ([0, 4], [0, 1, 2, 3, 4, 5])


def test_a_gap_above_is_a_loss_and_nothing_stays_behind_it() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    for _ in range(3):
        put(log, (A, bytes(100)))
    log.close_uncleanly()
    assert bases(log) == [0, 1, 2, 3, 4, 5, 6, 7]
    disk.remove(f"/d/t-0/{file_name(6, LOG_SUFFIX)}")
    again = reopened(disk)
    assert (list(pairs(again)), again.log_end_offset) == ([0, 4, 5], 6)
    assert "does not join" in str(again.recovery.repairs)


def test_a_truncation_lowers_the_gap_checkpoint_first() -> None:
    """What comes after a cut has not been compacted: a gap in it is a loss."""
    disk = new_disk()
    log = compacted_log(disk)
    log.truncate_to(2)
    assert on_the_disk(disk) == log.local.compaction_gaps.below == 2
    for _ in range(3):
        put(log, (A, bytes(100)))
    log.close_uncleanly()
    assert bases(log) == [0, 1, 2, 3, 4]
    disk.remove(f"/d/t-0/{file_name(3, LOG_SUFFIX)}")
    again = reopened(disk)
    assert (list(pairs(again)), again.log_end_offset) == ([0, 2], 3)


def test_a_crash_amid_a_truncation_leaves_a_lowered_gap_checkpoint() -> None:
    changes, died = 0, True
    while died:
        log = compacted_log(disk := new_disk())
        disk.die_after(changes)
        try:
            log.truncate_to(2)
            died = False
        except Exception:  # noqa: BLE001 - whatever dying looks like from here
            pass
        log.close_uncleanly()
        disk = disk.reopen()
        left = [int(name[:20]) for name in disk.list_directory("/d/t-0") if name.endswith(".log")]
        assert on_the_disk(disk) == 2 or max(left) == 5
        changes += 1
    assert changes > 4


def test_a_log_that_begins_anew_allows_no_gap_above_its_end() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    log.truncate_fully_and_start_at(3)
    assert on_the_disk(disk) == 3
    log.truncate_fully_and_start_at(100)
    assert on_the_disk(disk) == 3


def test_a_log_that_is_opened_shorter_allows_no_gap_above_its_end() -> None:
    disk = new_disk()
    compacted_log(disk).close_uncleanly()
    for base in (4, 5):
        disk.remove(f"/d/t-0/{file_name(base, LOG_SUFFIX)}")
    again = reopened(disk)
    assert again.log_end_offset == on_the_disk(disk) == 3


def test_a_gap_checkpoint_that_does_not_parse_is_put_aside_and_reported() -> None:
    disk = new_disk()
    compacted_log(disk).close_uncleanly()
    file = disk.open(PATH)
    file.write(0, b"garbage")
    file.close()
    again = reopened(disk, clean=True, recovery_point=5)
    first = again.recovery.repairs[0]
    assert (first.path, first.kept) == (PATH, f"/d/t-0/corrupt.{COMPACTION_GAP_CHECKPOINT}")
    assert "gaps between segments count as losses" in first.cause
    assert read_file(disk, first.kept) is not None
    # Under a clean marker each is named, and what follows stays.
    assert sum("nothing holds the offsets" in str(each) for each in again.recovery.repairs) == 3
    assert list(pairs(again)) == [0, 4]


def test_a_dump_shows_the_gap_checkpoint() -> None:
    disk = new_disk()
    compacted_log(disk)
    assert CheckpointEntry(TP, 5) in list(dump(disk, [PATH]))


def test_a_log_that_was_never_compacted_has_no_such_file() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    put(log, (A, b"1"))
    log.truncate_to(0)
    log.close()
    assert not disk.exists(PATH)
