"""A broker's cleaners: when they clean, and what may happen to a log meanwhile."""

import errno
import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.events import LogCleaned, LogUncleanable
from replication.metrics import MetricName, MetricsRegistry
from replication.replica_manager import compaction_metrics
from storage.batch.records import Record, encode_batch
from storage.log.log import Log
from storage.testing import Fault, FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.leader.leader_side import LOCAL, registration
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node, OneClock
from tests.storage.cleaning import pairs
from tests.storage.logs import batch as producer_batch

T = TypeVar("T")

ALONE = registration(isr=(LOCAL,), replicas=(LOCAL,))
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "400"}
BACKOFF = 15


def node(disk: FaultyFileSystem | None = None, **changes: Any) -> Node:
    return Node(
        config=BrokerConfig(node_id=LOCAL, log_dirs=("/d",), **changes),
        file_system=disk or FaultyFileSystem(random.Random(1)),
        clock=OneClock(),
    )


def slow(seconds: float) -> Any:
    """An offload whose every call takes a while, and has done its work by then."""

    async def offload(fn: Callable[[], T], /) -> T:
        result = fn()
        await CLOCK.sleep(seconds)
        return result

    return offload


def log_of(broker: Node, topic_partition: TopicPartition = TP) -> Log:
    log = broker.logs.get(topic_partition)
    assert log is not None
    return log


async def write(broker: Node, batches: int, to: TopicPartition = TP, key: bytes = b"k") -> None:
    for _ in range(batches):
        records = producer_batch(key=key, size=150, timestamp=broker.clock.wall_ms())
        assert (await broker.produce(to=to, records=records)).error is ErrorCode.NONE


def events_of(broker: Node, kind: type[T]) -> list[T]:
    return [each for each in broker.events if isinstance(each, kind)]


def leftovers(broker: Node) -> list[str]:
    return [
        each
        for each in broker.file_system.list_directory("/d/topic-0")
        if each.endswith((".cleaned", ".swap"))
    ]


async def test_a_compacted_topic_is_compacted_and_reads_on(autojump_clock: MockClock) -> None:
    async with node().running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        await CLOCK.sleep(BACKOFF + 1)
        assert list(pairs(log_of(broker))) == [5, 6]  # the active segment is left alone
        (event,) = events_of(broker, LogCleaned)
        assert (event.partition, event.first_dirty_offset, event.end_offset) == (TP, 0, 6)
        assert event.bytes_written < event.bytes_read
        await write(broker, 4)
        await CLOCK.sleep(BACKOFF + 1)
        assert list(pairs(log_of(broker))) == [9, 10]
        assert broker.state().log_start_offset == 0
        assert broker.state().log_end_offset == 11


async def test_a_compacted_topic_takes_no_record_without_a_key(autojump_clock: MockClock) -> None:
    async with node().running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        result = await broker.produce(records=producer_batch(key=None))
        assert result.error is ErrorCode.INVALID_RECORD
        assert broker.state().log_end_offset == 0


@pytest.mark.parametrize(
    "changes", [{"log_cleaner_enable": False}, {"log_cleaner_threads": 0}], ids=["off", "nobody"]
)
async def test_without_cleaners_nothing_is_compacted(
    changes: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with node(**changes).running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        await CLOCK.sleep(100)
        assert len(pairs(log_of(broker))) == 7


async def test_cleaners_come_and_go_while_the_broker_runs(autojump_clock: MockClock) -> None:
    async with node(log_cleaner_backoff_ms=1000).running() as broker:
        compaction = broker.manager.compaction
        await CLOCK.sleep(1)
        assert list(compaction.threads) == [0]
        broker.manager.config.update({None: {"log.cleaner.threads": "2"}})
        await CLOCK.sleep(3)
        assert list(compaction.threads) == [0, 1]
        broker.manager.config.update({None: {"log.cleaner.threads": "1"}})
        await CLOCK.sleep(3)
        assert list(compaction.threads) == [0]


async def test_a_log_that_is_cut_meanwhile_is_left_as_it_is(autojump_clock: MockClock) -> None:
    broker = node()
    broker.offload = slow(2)
    async with broker.running():
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        await CLOCK.sleep(BACKOFF - 1.5)
        assert TP in broker.logs.cleaner.in_progress
        assert leftovers(broker)
        log_of(broker).truncate_to(3)
        await CLOCK.sleep(10)
        # The round came to nothing, and the next goes by what is there now.
        assert [each.end_offset for each in events_of(broker, LogCleaned)] == [3]
        assert list(pairs(log_of(broker))) == [2]
        assert leftovers(broker) == []
        await write(broker, 4)
        await CLOCK.sleep(4 * BACKOFF)
        assert list(pairs(log_of(broker)))[-1] == 6
        assert len(pairs(log_of(broker))) < 4
        assert not broker.manager.hosted.offline


async def test_a_topic_that_is_deleted_meanwhile_is_gone(autojump_clock: MockClock) -> None:
    broker = node()
    broker.offload = slow(2)
    async with broker.running():
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        await CLOCK.sleep(BACKOFF + 0.5)
        assert TP in broker.logs.cleaner.in_progress
        await broker.learn()
        await CLOCK.sleep(70)
        assert broker.logs.get(TP) is None
        assert TP not in broker.logs.cleaner.in_progress
        assert not broker.file_system.exists("/d/topic-0")
        assert broker.logs.directories[0].failure is None


async def test_a_broker_stopped_in_the_middle_starts_again(autojump_clock: MockClock) -> None:
    disk = FaultyFileSystem(random.Random(1))
    broker = node(disk)
    broker.offload = slow(2)
    async with broker.running():
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        await CLOCK.sleep(BACKOFF + 0.5)  # its files are written, and not yet in place
        assert TP in broker.logs.cleaner.in_progress
        assert leftovers(broker)
    disk.detach()
    again = node(disk.reopen())
    async with again.running():
        await again.learn(ALONE, configs=COMPACTED)
        await CLOCK.sleep(BACKOFF + 1)
        assert list(pairs(log_of(again))) == [5, 6]
        assert leftovers(again) == []


async def test_the_disk_is_given_its_rest(autojump_clock: MockClock) -> None:
    settings: dict[str, Any] = {
        "log_cleaner_io_max_bytes_per_second": 100.0,
        "log_cleaner_backoff_ms": 1000,
    }
    async with node(**settings).running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        began = CLOCK.now()
        while not events_of(broker, LogCleaned):
            await CLOCK.sleep(1)
        (event,) = events_of(broker, LogCleaned)
        # Each byte is read twice: for the map, and to be copied.
        assert CLOCK.now() - began >= 2 * event.bytes_read / 100 - 1


async def test_a_log_that_cannot_be_cleaned_is_reported_counted_and_served(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with node(disk).running() as broker:
        metrics = MetricsRegistry(CLOCK.now)
        compaction_metrics.register(metrics, broker.manager.compaction)
        await broker.learn(ALONE, ALONE, configs=COMPACTED)
        await write(broker, 7)
        await write(broker, 7, to=SECOND)
        disk.disk.corrupt(f"/d/topic-0/{0:020d}.log", 80, b"\x55")
        await CLOCK.sleep(2 * BACKOFF)
        assert [each.partition for each in events_of(broker, LogUncleanable)] == [TP]
        assert [each.partition for each in events_of(broker, LogCleaned)] == [SECOND]
        assert not broker.manager.hosted.offline
        found = {(name.type, name.name): value for name, value in metrics.snapshot()}
        assert found["LogCleanerManager", "uncleanable-partitions-count"] == 1
        assert 0 < found["LogCleaner", "cleaner-recopy-percent"] < 100
        assert found["LogCleaner", "DeadThreadCount"] == 0
        assert found["LogCleaner", "max-buffer-utilization-percent"] == 0
        assert ("LogCleaner", "max-clean-time-secs") in found
        assert ("LogCleaner", "max-compaction-delay-secs") in found


@pytest.mark.parametrize("operation", ["write", "rename", "sync"])
async def test_a_disk_that_fails_while_it_is_cleaned_goes_offline(
    operation: str, autojump_clock: MockClock
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    async with node(disk).running() as broker:
        await broker.learn(ALONE, configs=COMPACTED)
        await write(broker, 7)
        disk.inject(Fault(operation=operation, names="*.cleaned", error=errno.EIO))
        await CLOCK.sleep(BACKOFF + 1)
        assert sorted(broker.manager.hosted.offline) == [TP]
        assert broker.manager.compaction.dead_thread_count == 0


async def test_a_cleaner_that_dies_of_a_bug_is_counted(autojump_clock: MockClock) -> None:
    broker = node()

    async def broken(fn: Callable[[], T], /) -> T:
        if log_of(broker).size:
            raise RuntimeError("a bug")
        return fn()

    async with broker.running():
        await broker.learn(ALONE, configs=COMPACTED)
        metrics = MetricsRegistry(CLOCK.now)
        compaction_metrics.register(metrics, broker.manager.compaction)
        dead = MetricName("kafka.log", "LogCleaner", "DeadThreadCount")
        dirtiest = MetricName("kafka.log", "LogCleanerManager", "max-dirty-percent")
        await write(broker, 7)
        compaction = broker.manager.compaction
        compaction.offload = broken
        await CLOCK.sleep(3 * BACKOFF)
        assert metrics.read(dead) == 1
        assert metrics.read(dirtiest) == 100
        assert [str(each) for each in broker.bugs] == ["a bug"]
        broker.bugs.clear()


async def test_what_has_waited_too_long_is_compacted_however_little_it_is(
    autojump_clock: MockClock,
) -> None:
    configs = {**COMPACTED, "min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": "60000"}
    async with node().running() as broker:
        await broker.learn(ALONE, configs={**configs, "segment.bytes": "100000"})
        await CLOCK.sleep(100)
        await write(broker, 4)
        await CLOCK.sleep(50)
        await write(broker, 1)
        assert len(log_of(broker).segments) == 1
        await CLOCK.sleep(20)
        # An append finds the segment too old for compaction to reach its records in time.
        await write(broker, 1)
        assert log_of(broker).segments.base_offsets == [0, 5]
        await CLOCK.sleep(BACKOFF + 1)
        assert list(pairs(log_of(broker))) == [4, 5]


async def test_a_tombstone_goes_in_its_time(autojump_clock: MockClock) -> None:
    configs = {**COMPACTED, "delete.retention.ms": "60000", "min.cleanable.dirty.ratio": "0"}
    async with node().running() as broker:
        await broker.learn(ALONE, configs=configs)
        await write(broker, 2, key=b"gone")
        grave = encode_batch([Record(timestamp=broker.clock.wall_ms(), key=b"gone")])
        await broker.produce(records=memoryview(bytearray(grave)))
        await write(broker, 3)
        await CLOCK.sleep(BACKOFF + 1)
        assert pairs(log_of(broker))[2] == (b"gone", None)
        await CLOCK.sleep(60)
        await write(broker, 3)
        await CLOCK.sleep(BACKOFF + 1)
        assert b"gone" not in [key for key, _ in pairs(log_of(broker)).values()]
