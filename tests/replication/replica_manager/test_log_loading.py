"""Every log of a broker is opened, several at a time, and repairs are reported."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio

from replication.events import Event, LogDirectoryWarned, LogRecovered, LogRepaired
from replication.replica_manager.log_loading import load_logs
from storage.errors import CheckpointError
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.storage.logs import fill, new_disk, small_config

T = TypeVar("T")
PARTITIONS = [TopicPartition("t", number) for number in range(6)]


class CountingOffload:
    """Runs `fn` when the loop comes round to it, and sees how many are on their way."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await trio.lowlevel.checkpoint()
            return fn()
        finally:
            self.running -= 1


def manager(system: FaultyFileSystem, **options: Any) -> LogManager:
    return LogManager(system, ["/d/a", "/d/b"], node_id=1, config=small_config(), **options)


def filled() -> FaultyFileSystem:
    """Three logs in each directory, shut down in good order."""
    system = new_disk()
    logs = manager(system)
    logs.startup()
    for each in PARTITIONS:
        fill(logs.get_or_create(each), 20)
    logs.shutdown(3)
    return system


async def load(
    system: FaultyFileSystem, threads: int = 2
) -> tuple[LogManager, list[Event], CountingOffload]:
    logs, events, offload = manager(system), list[Event](), CountingOffload()
    await load_logs(logs, offload, events.append, threads_per_directory=threads)
    return logs, events, offload


@pytest.mark.parametrize(("threads", "most"), [(1, 2), (2, 4), (99, 6)])
async def test_each_directory_has_so_many_workers(threads: int, most: int) -> None:
    logs, events, offload = await load(filled(), threads)
    assert offload.most == most
    assert sorted(log.topic_partition for log in logs.logs()) == PARTITIONS
    assert logs.previous_broker_epoch == 3
    assert len(events) == 6
    assert all(isinstance(each, LogRecovered) and each.clean for each in events)


async def test_repairs_and_warnings_are_reported() -> None:
    system = filled()
    path = "/d/a/t-0/00000000000000000012.log"
    data = system.open(path)
    data.truncate(data.size() - 10)
    system.open("/d/b/log-start-offset-checkpoint").write(0, b"what")
    logs, events, _ = await load(system)
    [warned] = [each for each in events if isinstance(each, LogDirectoryWarned)]
    assert warned.directory == "/d/b"
    assert "log-start-offset-checkpoint" in warned.message
    repaired = [each for each in events if isinstance(each, LogRepaired)]
    assert {each.path for each in repaired} == {path}
    assert [each.kept for each in repaired if each.bytes] == [
        f"/d/a/t-0/corrupt.00000000000000000012.log.{repaired[1].position}"
    ]
    [recovered] = [each for each in events if isinstance(each, LogRecovered) and not each.clean]
    assert (recovered.recovery_point, recovered.log_end_offset) == (20, repaired[1].offset)
    assert logs.previous_broker_epoch == -1


async def test_what_makes_a_start_impossible_is_raised_as_it_is() -> None:
    system = filled()
    system.open("/d/b/t-3/partition.metadata", create=True).write(0, b"what?")
    with pytest.raises(CheckpointError, match=r"/d/b/t-3/partition.metadata|/d/a/t-3"):
        await load(system)
