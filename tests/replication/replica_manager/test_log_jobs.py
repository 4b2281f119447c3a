"""What looks after a broker's logs in the background: when, and what comes of it."""

from typing import Any

import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.events import LogDeleted
from replication.replica_manager.gauges import manager_metric
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.log.log import Log
from storage.log.retention import DeletedSegments, DeletionCause
from storage.types import TopicPartition
from tests.replication.leader.leader_side import LOCAL, REMOTE, batch, registration
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node, OneClock
from tests.storage.logs import batch as producer_batch

ALONE = registration(isr=(LOCAL,), replicas=(LOCAL,))
DAY_MS = 86_400_000


def config(**changes: Any) -> BrokerConfig:
    return BrokerConfig(node_id=LOCAL, log_dirs=("/d",), **changes)


def log_of(node: Node, topic_partition: TopicPartition = TP) -> Log:
    log = node.logs.get(topic_partition)
    assert log is not None
    return log


def named(node: Node, ending: str, directory: str = "/d/topic-0") -> list[str]:
    return [name for name in node.file_system.list_directory(directory) if name.endswith(ending)]


# Producers.


async def write_as(node: Node, producer_id: int, to: TopicPartition = TP) -> None:
    records = producer_batch(
        timestamp=node.clock.wall_ms(), producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    await node.produce(to=to, records=records)


@pytest.mark.conformance("UL-35")
async def test_a_producer_is_forgotten_when_it_has_been_silent_for_long(
    autojump_clock: MockClock,
) -> None:
    settings = config(
        producer_id_expiration_ms=100_000, producer_id_expiration_check_interval_ms=10_000
    )
    async with Node(config=settings, clock=OneClock()).running() as node:
        await node.learn(ALONE)
        await CLOCK.sleep(5)
        await write_as(node, 1)
        await CLOCK.sleep(50)
        await write_as(node, 2)
        await CLOCK.sleep(45)  # 100 s after the start, 95 s after its last record
        assert list(log_of(node).producers.producers) == [1, 2]
        await CLOCK.sleep(10.5)
        assert list(log_of(node).producers.producers) == [2]
        await CLOCK.sleep(50)
        assert list(log_of(node).producers.producers) == []


@pytest.mark.conformance("UL-22")
async def test_nobody_looks_for_the_producers_of_a_log_that_is_deleted(
    autojump_clock: MockClock,
) -> None:
    settings = config(
        producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=1_000
    )
    async with Node(config=settings, clock=OneClock()).running() as node:
        other = TopicPartition("other", 0)
        await node.learn(ALONE)
        await node.learn(ALONE, topic="other", topic_id=b"another topic id")
        await write_as(node, 1)
        await write_as(node, 1, other)
        gone = log_of(node, other)
        await node.learn(topic="other")
        await CLOCK.sleep(10)
        assert list(log_of(node).producers.producers) == []
        assert list(gone.producers.producers) == [1]


@pytest.mark.conformance("RM-4")
async def test_producers_are_counted_over_partitions(autojump_clock: MockClock) -> None:
    settings = config(
        producer_id_expiration_ms=10_000, producer_id_expiration_check_interval_ms=1_000
    )
    async with Node(config=settings, clock=OneClock()).running() as node:
        await node.learn(ALONE, ALONE)

        def counted() -> float:
            return node.metrics.read(manager_metric("ProducerIdCount"))

        counts = [counted()]
        for producer_id, topic_partition in ((1, TP), (1, TP), (2, TP)):
            await write_as(node, producer_id, topic_partition)
            counts.append(counted())
        await CLOCK.sleep(5)
        await write_as(node, 1, SECOND)
        counts.append(counted())
        assert counts == [0, 1, 1, 2, 3]
        await CLOCK.sleep(7)
        assert counted() == 1


# Syncing and checkpoints.


async def test_a_log_is_synced_after_its_flush_ms_if_it_holds_anything_new(
    autojump_clock: MockClock,
) -> None:
    settings = config(log_flush_scheduler_interval_ms=1_000, log_initial_task_delay_ms=500)
    async with Node(config=settings).running() as node:
        await node.learn(ALONE, configs={"flush.ms": "4000"})
        await CLOCK.sleep(1)
        assert log_of(node).local.flushes == 0
        await node.produce(3)
        await CLOCK.sleep(1)
        assert (log_of(node).local.flushes, log_of(node).recovery_point) == (1, 3)
        await node.produce(3)
        await CLOCK.sleep(3)
        assert log_of(node).recovery_point == 3
        await CLOCK.sleep(2)
        assert log_of(node).recovery_point == 6
        await CLOCK.sleep(60)
        assert log_of(node).local.flushes == 2


async def test_by_default_nothing_is_synced_before_its_segment_is_closed(
    autojump_clock: MockClock,
) -> None:
    async with Node(config=config()).running() as node:
        await node.learn(ALONE, configs={"retention.ms": "-1"})
        await node.produce(3)
        await CLOCK.sleep(3600)
        assert (log_of(node).local.flushes, log_of(node).recovery_point) == (0, 0)
        log_of(node).roll()
        await CLOCK.sleep(2)
        assert log_of(node).recovery_point == 3


async def test_marks_are_checkpointed_half_a_minute_after_the_start_and_then_each_minute(
    autojump_clock: MockClock,
) -> None:
    async with Node(config=config()).running() as node:
        await node.learn(ALONE)

        def written() -> tuple[object, object]:
            directory = node.logs.directories[0]
            return directory.recovery_points.get(TP), directory.log_start_offsets.get(TP)

        async def advance(to: int) -> None:
            await node.produce(10)
            await node.manager.delete_records.delete({TP: to - 1}, timeout_ms=0)
            log_of(node).flush()

        await advance(10)
        await CLOCK.sleep(29.5)
        assert written() == (None, None)
        await CLOCK.sleep(1)
        assert written() == (10, 9)
        await advance(20)
        await CLOCK.sleep(59)
        assert written() == (10, 9)
        await CLOCK.sleep(1)
        assert written() == (20, 19)
        assert {RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT} <= set(
            named(node, "", "/d")
        )


# Deleting.


async def test_each_segment_waits_its_topics_delay_and_a_log_its_brokers(
    autojump_clock: MockClock,
) -> None:
    settings = config(log_retention_check_interval_ms=10_000)
    small = {"segment.bytes": "100", "retention.ms": "-1", "file.delete.delay.ms": "20000"}
    async with Node(config=settings).running() as node:
        await node.learn(ALONE, configs=small)
        for _ in range(4):
            await node.produce(records=batch(1, size=30))
        await node.manager.delete_records.delete({TP: 2}, timeout_ms=0)
        assert log_of(node).segments.base_offsets == [0, 1, 2, 3]
        await CLOCK.sleep(32)  # retention has been at work for two seconds
        assert log_of(node).segments.base_offsets == [2, 3]
        assert len(named(node, ".log.deleted")) == 2
        await CLOCK.sleep(17.5)
        assert len(named(node, ".log.deleted")) == 2
        await CLOCK.sleep(3)
        assert named(node, ".deleted") == []
        await node.learn()
        (directory,) = named(node, "-delete", "/d")
        await CLOCK.sleep(59.5)
        assert named(node, "-delete", "/d") == [directory]
        await CLOCK.sleep(3)
        assert named(node, "-delete", "/d") == []
        assert [each for each in node.events if isinstance(each, LogDeleted)] == [
            LogDeleted(partition=TP, path=f"/d/{directory}", cause="topic deleted")
        ]


async def test_a_replica_that_moved_away_is_deleted_for_that(autojump_clock: MockClock) -> None:
    async with Node(config=config(log_segment_delete_delay_ms=0)).running() as node:
        await node.learn(ALONE)
        await node.learn(registration(leader=REMOTE, isr=(REMOTE,), replicas=(REMOTE,)))
        await CLOCK.sleep(2)
        assert [each.cause for each in node.events if isinstance(each, LogDeleted)] == [
            "not a replica any more"
        ]


async def test_every_deletion_of_segments_reports_which_and_why(
    autojump_clock: MockClock,
) -> None:
    settings = config(log_retention_check_interval_ms=10_000, log_initial_task_delay_ms=0)
    small = {"segment.bytes": "100", "retention.ms": str(DAY_MS), "retention.bytes": "392"}
    async with Node(config=settings, clock=OneClock()).running() as node:
        await node.learn(ALONE, configs=small)
        now_ms = node.clock.wall_ms()
        for timestamp in (now_ms, now_ms, now_ms - 2 * DAY_MS, now_ms, now_ms, now_ms):
            await node.produce(records=batch(1, size=30, timestamp=timestamp))
        log = log_of(node)
        size = log.size // 6
        await node.manager.delete_records.delete({TP: 1}, timeout_ms=0)
        await CLOCK.sleep(10)
        log.truncate_to(4)

        def deleted(cause: DeletionCause, first: int, end: int) -> DeletedSegments:
            count = end - first
            return DeletedSegments(
                cause=cause, count=count, size=count * size, first_offset=first, end_offset=end
            )

        assert node.deletions == [
            (TP, deleted(DeletionCause.LOG_START, 0, 1)),
            (TP, deleted(DeletionCause.SIZE, 1, 2)),
            (TP, deleted(DeletionCause.TIME, 2, 3)),
            (TP, deleted(DeletionCause.TRUNCATION, 5, 6)),
        ]
