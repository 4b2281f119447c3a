"""A log knows of its producers what its batches say, with snapshots and without."""

import random

import pytest

from storage.errors import KafkaStorageError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.testing import Fault, FaultyFileSystem
from storage.testing.disk import Fate
from storage.types import TopicPartition
from tests.storage.logs import (
    WALL_MS,
    bases,
    batch,
    headers,
    lead,
    new_disk,
    open_log,
    started,
)

T0 = TopicPartition("t", 0)
ID = bytes(range(16))
PRODUCERS = 3


def said_by_the_batches(log: Log) -> dict[int, tuple[int, int]]:
    """Each producer's last sequence and the offset of it."""
    return {each.producer_id: (each.last_sequence, each.last_offset) for each in headers(log)}


def known(log: Log) -> dict[int, tuple[int, int]]:
    return {
        each.producer_id: (each.last_sequence, each.last_offset)
        for each in log.producers.producers.values()
    }


def start(disk: FaultyFileSystem) -> tuple[LogManager, Log]:
    logs = started(disk)
    return logs, logs.get_or_create(T0, ID)


@pytest.mark.parametrize("seed", range(100))
def test_producers_are_those_of_the_batches(seed: int) -> None:
    chance = random.Random(seed)
    disk = new_disk(seed)
    logs, log = start(disk)
    history: list[str] = []
    for _ in range(60):
        match chance.choice("aaaaaaaatrfcskp"):
            case "a":
                producer = chance.randrange(PRODUCERS)
                last, _ = said_by_the_batches(log).get(producer, (-1, -1))
                sent = batch(
                    chance.randrange(1, 4), producer_id=producer, producer_epoch=0,
                    base_sequence=last + 1, size=chance.choice((10, 200)),
                )  # fmt: skip
                info = log.append_as_leader(sent, leader_epoch=0, wall_ms=WALL_MS)
                assert not info.duplicate, history
                history.append(f"append {producer}:{last + 1} at {info.first_offset}")
            case "t":
                ends = [0, *(each.next_offset for each in headers(log))]
                log.truncate_to(end := chance.choice(ends))
                history.append(f"truncate {end}")
            case "r":
                log.roll()
                history.append("roll")
            case "f":
                log.flush()
                history.append("flush")
            case "c":
                logs.checkpoint_recovery_points()
                history.append("checkpoint")
            case "s":
                logs.shutdown(1)
                disk.detach()
                disk = disk.reopen()
                logs, log = start(disk)
                history.append("shut down")
            case death:
                disk.detach() if death == "k" else disk.crash()
                logs.close_uncleanly()
                disk = disk.reopen()
                logs, log = start(disk)
                history.append(f"death {death}, end {log.log_end_offset}")
        assert known(log) == said_by_the_batches(log), history


def test_the_snapshot_of_a_clean_shutdown_is_synced_though_the_records_were() -> None:
    disk = new_disk()
    logs, log = start(disk)
    by(log, 0)
    log.flush()
    logs.shutdown(1)
    disk.crash(Fate.NOTHING)
    disk = disk.reopen()
    assert on_disk(disk) == [1]
    _, log = start(disk)
    assert known(log) == {7: (0, 0)}


def by(log: Log, sequence: int, *, size: int = 10) -> None:
    lead(log, producer_id=7, producer_epoch=0, base_sequence=sequence, size=size)


def on_disk(system: FaultyFileSystem) -> list[int]:
    names = system.list_directory("/d/t-0")
    return [int(name[:20]) for name in names if name.endswith(".snapshot")]


@pytest.mark.conformance("UL-33b")
def test_a_roll_for_an_append_snapshots_what_was_before_it() -> None:
    log = open_log(new_disk())
    by(log, 0, size=500)
    by(log, 1, size=500)
    assert bases(log) == [0, 1]
    assert log.producers.snapshots == [1]
    assert log.producers.producers[7].last_sequence == 1
    log.truncate_to(1)
    assert log.producers.snapshots == [1]
    assert log.producers.producers[7].last_sequence == 0


def test_a_batch_that_the_log_starts_inside_of_is_read_again() -> None:
    log = open_log(new_disk())
    log.append_as_leader(
        batch(3, producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=0, wall_ms=WALL_MS
    )
    lead(log, producer_id=8, producer_epoch=0, base_sequence=0)
    lead(log, producer_id=8, producer_epoch=0, base_sequence=1)
    log.update_high_watermark(log.log_end_offset)
    assert log.increment_log_start_offset(2)
    log.truncate_to(4)
    assert known(log) == {7: (2, 2), 8: (0, 3)}


@pytest.mark.conformance("UL-118")
def test_a_snapshot_that_cannot_be_synced_holds_the_recovery_point_back() -> None:
    system = new_disk()
    log = open_log(system)
    by(log, 0)
    log.roll()
    system.inject(Fault(operation="sync", names="*.snapshot"))
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.recovery_point == 0
    assert log.failed


@pytest.mark.conformance("UL-20")
def test_snapshots_that_are_missing_are_taken_again_at_the_next_start() -> None:
    system = new_disk()
    log = open_log(system)
    for sequence in range(20):
        by(log, sequence, size=100)
    assert len(bases(log)) > 3
    end, every_base = log.log_end_offset, bases(log)
    for clean, recovery_point, expected in (
        (True, end, [*every_base[-2:], end]),
        (False, end, [*every_base[-2:], end]),
        (False, 0, [*every_base[1:], end]),
    ):
        log.close()
        for offset in on_disk(system):
            system.remove(log.producers.snapshot_path(offset))
        log = open_log(system, clean=clean, recovery_point=recovery_point)
        assert on_disk(system) == log.producers.snapshots == expected
        # A clean shutdown leaves a snapshot: without one there were no producers (LL-7).
        assert [state.last_sequence for state in log.producers.producers.values()] == (
            [] if clean else [19]
        )


@pytest.mark.conformance("LL-31")
def test_a_log_that_lost_all_below_its_start_keeps_no_snapshot_from_before() -> None:
    system = new_disk()
    log = open_log(system)
    for sequence in range(9):
        by(log, sequence)
        log.roll()
    log.close()
    assert on_disk(system) == list(range(1, 10))
    system.disk.corrupt("/d/t-0/00000000000000000000.log", 0, b"\xff" * 61)
    log = open_log(system, log_start_offset=4)
    assert (bases(log), log.log_end_offset) == ([4], 4)
    assert on_disk(system) == log.producers.snapshots == []
    assert log.producers.producers == {}
    for sequence in range(3):
        by(log, sequence)
        log.roll()
    assert on_disk(system) == log.producers.snapshots == [5, 6, 7]
    assert not [name for name in system.list_directory("/d/t-0") if name.endswith(".deleted")]
