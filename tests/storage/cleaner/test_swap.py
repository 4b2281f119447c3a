"""Crashes while a cleaned log is put together: the old segments or the new ones, never a mixture."""

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from storage.cleaner.cleaner import Cleaning
from storage.errors import StorageError
from storage.log import swap
from storage.log.log import Log
from storage.testing import Fate, FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.cleaning import (
    Pair,
    begin,
    clean,
    compacted,
    end_transaction,
    finish,
    pairs,
    put,
    roll,
)
from tests.storage.logs import batch, contents, new_disk

TP = TopicPartition("t", 0)
CONFIG = compacted(segment_bytes=500)


def open_again(disk: FaultyFileSystem) -> Log:
    log = Log.open(disk, "/d/t-0", TP, config=CONFIG)
    log.update_high_watermark(log.log_end_offset)
    return log


def filled(seed: int) -> Log:
    """Several segments that become fewer, flushed; a transaction was aborted in them."""
    log = open_again(new_disk(seed))
    for number in range(12):
        put(log, (b"%d" % (number % 3), bytes(60)), (b"only %d" % number, b""))
    aborted: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }
    put(log, (b"0", b"aborted"), **aborted)
    end_transaction(log, 7, commit=False)
    roll(log)
    put(log, (b"active", b""))
    log.flush()
    return log


CRASHES = [
    pytest.param(False, 0, 1, id="killed", marks=pytest.mark.deep),
    # What is left after a power cut is chance's to say.
    pytest.param(True, 1, 4, id="power cut, at each fourth operation"),
    pytest.param(True, 1, 1, id="power cut", marks=pytest.mark.deep),
    pytest.param(True, 2, 1, id="power cut, seed 2", marks=pytest.mark.deep),
    pytest.param(True, 3, 1, id="power cut, seed 3", marks=pytest.mark.deep),
]


def spans(log: Log) -> Iterator[tuple[int, int]]:
    bases = [*log.segments.base_offsets, log.log_end_offset]
    yield from itertools.pairwise(bases)


def crashed_after(seed: int, changes: int, *, power: bool) -> tuple[Log, Cleaning, bool]:
    """A round that dies after so many changes to the disk; the log before, and whether it died."""
    log = filled(seed)
    cleaning = begin(log)
    disk = log.local.file_system
    assert isinstance(disk, FaultyFileSystem)
    disk.die_after(changes)
    died = True
    with contextlib.suppress(StorageError, OSError):
        finish(cleaning, budget=1 << 20)
        died = False
    if power:
        disk.crash()
    else:
        disk.detach()
    log.close_uncleanly()
    return log, cleaning, died


@pytest.mark.parametrize(("power", "seed", "step"), CRASHES)
def test_a_crash_at_any_operation_leaves_each_segment_old_or_new(
    power: bool, seed: int, step: int
) -> None:
    reference = filled(0)
    old: dict[int, Pair] = pairs(reference)
    clean(reference)
    new = pairs(reference)
    whole = contents(reference)
    changes, died = 0, True
    outcomes = []
    while died:
        log, _, died = crashed_after(seed, changes, power=power)
        disk = log.local.file_system
        assert isinstance(disk, FaultyFileSystem)
        again = open_again(disk.reopen())
        assert not again.recovery.repairs
        found = pairs(again)
        for low, high in spans(again):
            part = {offset: pair for offset, pair in found.items() if low <= offset < high}
            assert part in (within(old, low, high), within(new, low, high))
        outcomes.append(found)
        if b"aborted" in [value for _, value in found.values()]:
            assert again.segments[-2].transaction_index.entry_count == 1
        names = again.local.file_system.list_directory(again.directory)
        assert not [each for each in names if each.endswith((".swap", ".cleaned"))]
        assert again.log_end_offset == reference.log_end_offset
        # And nothing that it has left keeps the next round from coming to the same.
        clean(again)
        assert pairs(again) == new
        clean(again)
        assert len(contents(again)) <= len(whole)
        changes += step
    assert old in outcomes
    assert new in outcomes
    assert changes > 30


def within(found: dict[int, Pair], low: int, high: int) -> dict[int, Pair]:
    return {offset: pair for offset, pair in found.items() if low <= offset < high}


@pytest.mark.parametrize(("power", "seed", "step"), CRASHES)
def test_a_crash_while_loading_finishes_a_swap_changes_nothing(
    power: bool, seed: int, step: int
) -> None:
    reference = filled(0)
    old = pairs(reference)
    clean(reference)
    new = pairs(reference)
    looked_at, changes, died = 0, -1, True
    while died:
        changes += step
        log, _, died = crashed_after(seed, changes, power=power)
        disk = log.local.file_system
        assert isinstance(disk, FaultyFileSystem)
        if not any(each.endswith(".swap") for each in disk.reopen().list_directory(log.directory)):
            continue
        for again in range(12):
            loading = copy.deepcopy(disk).reopen()
            loading.die_after(again)
            with contextlib.suppress(StorageError, OSError):
                open_again(loading)
            if power:
                loading.crash()
            loaded = open_again(loading.reopen())
            found = pairs(loaded)
            for low, high in spans(loaded):
                part = within(found, low, high)
                assert part in (within(old, low, high), within(new, low, high))
            looked_at += 1
    assert looked_at > 20


def test_segments_that_loading_has_replaced_do_not_come_back_behind_new_records() -> None:
    """Loading syncs nothing; the cut syncs that the segment behind is gone, before it cuts the file.

    Apache Kafka was interrupted here: there is no checkpoint of gaps for the cut to lower.
    """
    disk = new_disk()
    log = open_again(disk)
    for number in range(2):
        put(log, (b"%d" % (2 * number), b""))
        put(log, (b"%d" % (2 * number + 1), b""))
        roll(log)
    log.flush()
    cleaning = begin(log)
    while not cleaning.ready:
        cleaning.advance(1 << 20)
    swap.prepare(disk, log.directory, 0)
    for offset in log.producers.snapshots:
        disk.remove(log.producers.snapshot_path(offset))  # or a cut syncs their removal
    disk.sync_directory(log.directory)
    disk.crash(Fate.WHOLE)
    disk = disk.reopen()
    log = open_again(disk)
    assert log.segments.base_offsets == [0, 4]
    log.truncate_to(1)
    instead = batch(1, at=1, key=b"other")
    log.append_as_follower(memoryview(bytearray(instead)))
    kept = contents(log)
    log.roll()  # which syncs the file, and not the directory
    disk.crash(Fate.NOTHING)
    assert contents(open_again(disk.reopen())) == kept


def test_a_swap_with_a_file_still_being_written_does_not_count() -> None:
    log = filled(1)
    old = contents(log)
    disk = log.local.file_system
    cleaning = begin(log)
    while not cleaning.ready:
        cleaning.advance(1 << 20)
    base = cleaning.ready[0].base_offset
    disk.rename(f"/d/t-0/{base:020d}.log.cleaned", f"/d/t-0/{base:020d}.log.swap")
    log.close_uncleanly()
    assert isinstance(disk, FaultyFileSystem)
    again = open_again(disk)
    assert contents(again) == old
    assert not [each for each in disk.list_directory("/d/t-0") if each.endswith(".swap")]


def test_an_index_that_was_not_renamed_yet_follows_its_log() -> None:
    log = filled(1)
    clean(log)
    before = contents(log)
    log.close()
    disk = log.local.file_system
    path = f"/d/t-0/{0:020d}.index"
    disk.rename(path, f"{path}.swap")
    again = Log.open(disk, "/d/t-0", TP, config=CONFIG, clean=True)
    assert again.recovery.segments_recovered == 0
    assert contents(again) == before
