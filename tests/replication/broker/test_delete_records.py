"""DeleteRecords in a cluster: the question on the wire, and what becomes of every replica."""

from typing import Any

import pytest

from replication.cluster.cluster import Cluster
from replication.errors import ErrorCode
from replication.events import LogDeleted, SegmentsDeleted
from replication.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from scenarios.world.world import World
from storage.log.log import Log
from storage.types import Offset, TopicPartition
from tests.replication.broker.stage import Stage, played, played_in, staged

RECORDS = 9
EAGER: dict[str, Any] = {
    "log_flush_start_offset_checkpoint_interval_ms": "1000",
    "log_initial_task_delay_ms": "0",
}

RETAINING = EAGER | {"log_retention_check_interval_ms": "5000"}


def request(
    *offsets: tuple[int, Offset], topic: str = "t", timeout_ms: int = 5_000
) -> DeleteRecordsRequest:
    """Delete of each partition what lies below its offset."""
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets
    ]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=timeout_ms
    )


def results(response: DeleteRecordsResponse) -> list[tuple[int, Offset, int]]:
    (topic,) = response.topics
    return [
        (each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions
    ]


def logs(cluster: Cluster) -> list[Log]:
    found = [broker.logs.get(TopicPartition("t", 0)) for broker in cluster.brokers.values()]
    return [log for log in found if log is not None]


async def produced(stage: Stage) -> tuple[bytes, int]:
    """A topic with RECORDS records, each in a segment of its own; its id and its leader."""
    topic_id = await stage.client.create_topic(
        stage.address(1), "t", segment_bytes="100", retention_ms="-1"
    )
    leader = await stage.leader("t")
    for index in range(RECORDS):
        value = b"a value of some length" + bytes([48 + index])
        await stage.client.produce(stage.address(leader), "t", value)
    return topic_id, leader


@pytest.mark.parametrize("version", [0, 1, 2])
@played_in(staged)
async def test_the_answer_comes_when_every_replica_begins_there(stage: Stage, version: int) -> None:
    topic_id, leader = await produced(stage)
    address = stage.address(leader)
    response = await stage.client.ask(address, request((0, 6)), version=version)
    assert results(response) == [(0, 6, ErrorCode.NONE)]
    assert [log.log_start_offset for log in logs(stage.cluster)] == [6, 6, 6]
    below = await stage.client.fetch(address, topic_id, offset=5)
    assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    first = await stage.client.fetch(address, topic_id, offset=6)
    assert (first.error_code, first.log_start_offset) == (ErrorCode.NONE, 6)


@played_in(staged, log_retention_check_interval_ms="10000")
async def test_what_lies_below_the_start_goes_with_the_retention_job_on_every_replica(
    stage: Stage, world: World
) -> None:
    _, leader = await produced(stage)
    assert [len(log.segments) for log in logs(stage.cluster)] == [RECORDS] * 3
    await stage.client.ask(stage.address(leader), request((0, 6)))
    await world.clock("b1").sleep(45)  # its initial delay is half a minute
    assert [log.segments.base_offsets for log in logs(stage.cluster)] == [[6, 7, 8]] * 3


def test_what_was_deleted_and_why_is_an_event_on_every_broker() -> None:
    async def story(world: World) -> None:
        async with staged(world, log_segment_delete_delay_ms="0", **RETAINING) as stage:
            _, leader = await produced(stage)
            await stage.client.ask(stage.address(leader), request((0, 6)))
            await world.clock("b1").sleep(6)
            deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
            await stage.client.ask(stage.address(leader), deleted)
            await world.clock("b1").sleep(5)

    world = World(seed=1)
    world.run(story)
    events = [each.event for each in world.trace.entries]
    segments = [each for each in events if isinstance(each, SegmentsDeleted)]
    assert [(each.first_offset, each.end_offset, each.cause) for each in segments] == [
        (0, 6, "log start")
    ] * 3
    assert [each.cause for each in events if isinstance(each, LogDeleted)] == ["topic deleted"] * 3


@played
async def test_a_log_start_that_was_checkpointed_outlives_a_power_cut(world: World) -> None:
    async with staged(world, **EAGER) as stage:
        _, leader = await produced(stage)
        await stage.client.ask(stage.address(leader), request((0, 4)))
        await world.clock("b1").sleep(2)
        await stage.cluster.kill_broker(leader)
        await stage.cluster.start_broker(leader)
        await stage.until_in_sync("t", 3)
        assert [log.log_start_offset for log in logs(stage.cluster)] == [4, 4, 4]


@played_in(staged)
async def test_a_broker_that_was_away_learns_it_when_it_is_back(stage: Stage) -> None:
    _, leader = await produced(stage)
    away = leader % 3 + 1
    await stage.cluster.stop_broker(away)
    response = await stage.client.ask(stage.address(leader), request((0, 6)))
    assert results(response) == [(0, 6, ErrorCode.NONE)]
    await stage.cluster.start_broker(away)
    await stage.until_in_sync("t", 3)
    await stage.cluster.until(
        lambda: [log.log_start_offset for log in logs(stage.cluster)] == [6, 6, 6],
        what="every log begins at 6",
    )


@played_in(staged, brokers=1)
async def test_each_partition_is_answered_by_itself_and_once(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", partitions=2, replicas=1)
    await stage.leader("t")
    await stage.client.produce(stage.address(1), "t", b"a")
    await stage.client.produce(stage.address(1), "t", b"b", partition=1)
    asked = request((0, 7), (1, -1), (9, 0), (0, 1))
    assert results(await stage.client.ask(stage.address(1), asked)) == [
        (0, 1, ErrorCode.NONE),
        (1, 1, ErrorCode.NONE),
        (9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    unknown = await stage.client.ask(stage.address(1), request((0, 0), topic="no"))
    assert results(unknown) == [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@played_in(staged)
async def test_only_the_leader_deletes(stage: Stage) -> None:
    _, leader = await produced(stage)
    response = await stage.client.ask(stage.address(leader % 3 + 1), request((0, 6)))
    assert results(response) == [(0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert [log.log_start_offset for log in logs(stage.cluster)] == [0, 0, 0]
