"""ListOffsets 0: what it says of segments, also while they change, and over the wire."""

import random
from collections.abc import Callable

import pytest

from replication.broker.handlers.legacy_offsets import legacy_offsets
from replication.errors import ErrorCode
from replication.steps import at_once
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from scenarios.world.world import World
from storage.log.log import Log
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.broker.stage import Stage, played_in, staged
from tests.storage.logs import WALL_MS, batch, fill, open_log, small_config

RECORDS = 20
TWO_RECORDS = 2 * len(batch())
ALL_BASES = [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]


class Interrupted(FaultyFileSystem):
    """Somebody else comes in between while a file is looked at."""

    meanwhile: Callable[[str], None] = staticmethod(lambda _path: None)

    def modified_ms(self, path: str) -> int:
        self.meanwhile(path)
        return super().modified_ms(path)


def log_of_two_each(records: int = RECORDS) -> tuple[Interrupted, Log]:
    system = Interrupted(random.Random(1))
    system.make_directory("/d")
    log = open_log(system, small_config(segment_bytes=TWO_RECORDS))
    fill(log, records)
    log.update_high_watermark(records)
    return system, log


def ask(log: Log, timestamp: int, count: int = 15) -> list[int]:
    return at_once(legacy_offsets(log, timestamp=timestamp, count=count, wall_ms=WALL_MS))


@pytest.mark.conformance("LO-5")
@pytest.mark.conformance("LO-8")
@pytest.mark.conformance("LO-9")
def test_every_base_and_the_end_are_told_backwards() -> None:
    _, log = log_of_two_each()
    assert ask(log, LATEST) == ALL_BASES
    assert ask(log, WALL_MS + 30_000) == ALL_BASES
    assert ask(log, EARLIEST, 10) == [0]


@pytest.mark.conformance("LO-2")
def test_the_log_start_stands_in_for_the_base_that_it_lies_behind() -> None:
    _, log = log_of_two_each()
    log.increment_log_start_offset(3)
    log.delete_segments_below_log_start()
    assert ask(log, LATEST) == [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]


@pytest.mark.conformance("LO-7")
def test_an_empty_log_has_no_youngest_record() -> None:
    _, log = log_of_two_each(0)
    assert log.offset_of_max_timestamp() is None
    assert ask(log, LATEST) == [0]


@pytest.mark.conformance("LO-10")
def test_a_log_that_grows_meanwhile_is_told_as_it_was() -> None:
    system, log = log_of_two_each(3)
    system.meanwhile = lambda _path: fill(log, 1)
    assert ask(log, LATEST) == [3, 2, 0]
    assert log.log_end_offset == 5


@pytest.mark.conformance("LO-11")
def test_segments_that_go_meanwhile_are_left_out() -> None:
    system, log = log_of_two_each(7)

    def shrink(path: str) -> None:
        if path.endswith(f"{2:020d}.log"):
            log.increment_log_start_offset(4)
            log.delete_segments_below_log_start()

    system.meanwhile = shrink
    assert ask(log, LATEST) == [7, 6, 4, 0]


# Over the wire.


@pytest.mark.conformance("LO-1")
@played_in(staged, brokers=1)
async def test_a_topic_that_is_not_there_is_unknown(stage: Stage) -> None:
    answer = await asked(stage, "foo", LATEST, 10, replica_id=-1)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.old_style_offsets == []


@pytest.mark.conformance("LO-2")
@pytest.mark.conformance("LO-5")
@pytest.mark.conformance("LO-8")
@pytest.mark.conformance("LO-9")
@played_in(staged, brokers=1)
async def test_a_replica_is_told_the_same_over_the_wire(stage: Stage, world: World) -> None:
    topic_id = await stage.client.create_topic(
        stage.address(1), "t", replicas=1, segment_bytes="140", retention_ms="-1"
    )
    for _ in range(RECORDS):
        await stage.client.produce(stage.address(1), "t", b"42")
    assert await listed(stage, LATEST, 15) == ALL_BASES
    assert await listed(stage, world.clock("b1").wall_ms() + 30_000, 15) == ALL_BASES
    assert await listed(stage, EARLIEST, 10) == [0]
    at_end = FetchPartition(partition=0, fetch_offset=20, partition_max_bytes=300 * 1024)
    fetched = await stage.client.ask(
        stage.address(1),
        FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic_id=topic_id, partitions=[at_end])]),
    )
    assert not fetched.responses[0].partitions[0].records
    log = stage.cluster.brokers[1].logs.get(TopicPartition("t", 0))
    assert log is not None
    log.increment_log_start_offset(3)
    log.delete_old_segments(world.clock("b1").wall_ms())
    assert await listed(stage, LATEST, 15) == [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]


@pytest.mark.conformance("LO-6")
@played_in(staged, brokers=1)
async def test_an_empty_log_begins_at_0_however_often_it_is_asked(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1)
    await stage.leader("t")
    assert [await listed(stage, EARLIEST, 1) for _ in range(14)] == [[0]] * 14


async def asked(
    stage: Stage, topic: str, timestamp: int, count: int, *, replica_id: int
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    response = await stage.client.ask(stage.address(1), request, version=0)
    answer = response.topics[0].partitions[0]
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


async def listed(stage: Stage, timestamp: int, count: int) -> list[int]:
    answer = await asked(stage, "t", timestamp, count, replica_id=0)
    assert answer.error_code == ErrorCode.NONE
    return answer.old_style_offsets
