"""What a log knows of its producers is what its batches say, whatever became of it."""

import random

import pytest

from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import WALL_MS, batch, headers, new_disk, small_config

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
    logs = LogManager(disk, ["/d"], node_id=1, config=small_config())
    logs.startup()
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
