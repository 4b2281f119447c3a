"""DescribeLogDirs: what a broker says of its log directories."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from replication.errors import ErrorCode
from replication.wire.describe_log_dirs import (
    NO_OFFSET_LAG,
    UNKNOWN_SPACE,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from scenarios.world.world import World
from storage.testing import Fault
from storage.types import TopicPartition
from tests.replication.broker.stage import Stage, name_of, played_in, staged

DIRECTORIES = ["/a", "/b"]


@contextlib.asynccontextmanager
async def with_records(world: World) -> AsyncIterator[Stage]:
    """One broker with two directories; of topic t, partition 1 lies beside the metadata."""
    async with staged(world, brokers=1, log_dirs=",".join(DIRECTORIES)) as stage:
        await stage.client.create_topic(stage.address(1), "t", partitions=2, replicas=1)
        await stage.leader("t")
        for index in (0, 1):
            answered = await stage.client.produce(stage.address(1), "t", b"value", partition=index)
            assert answered.error_code == ErrorCode.NONE
        yield stage


async def described(
    stage: Stage, *topics: DescribableLogDirTopic, version: int = 5
) -> dict[str, DescribeLogDirsResult]:
    request = DescribeLogDirsRequest(topics=list(topics) or None)
    response = await stage.client.ask(stage.address(1), request, version=version)
    assert response.error_code == ErrorCode.NONE
    return {each.log_dir: each for each in response.results}


def partitions(result: DescribeLogDirsResult) -> dict[tuple[str, int], DescribeLogDirsPartition]:
    return {
        (topic.name, each.partition_index): each
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.conformance("RM-92")
@played_in(with_records)
async def test_every_live_directory_is_described_with_what_lies_there(
    stage: Stage, world: World
) -> None:
    answers = await described(stage)
    assert list(answers) == DIRECTORIES
    disk = world.node(name_of(1)).file_system.space("/a")
    found: dict[tuple[str, int], DescribeLogDirsPartition] = {}
    for result in answers.values():
        assert result.error_code == ErrorCode.NONE
        assert result.total_bytes == disk.total_bytes > 0
        assert 0 <= result.usable_bytes <= result.total_bytes
        assert all(topic.partitions for topic in result.topics)
        found |= partitions(result)
    assert list(found) == [("t", 1), ("t", 0)]
    logs = stage.cluster.brokers[1].logs
    for (topic, index), partition in found.items():
        log = logs.get(TopicPartition(topic, index))
        assert log is not None
        assert partition.partition_size == log.size > 0
        assert (partition.offset_lag, partition.is_future_key) == (0, False)


@played_in(with_records)
async def test_only_what_is_asked_for_is_described_whatever_the_version(stage: Stage) -> None:
    asked = DescribableLogDirTopic(topic="t", partitions=[0, 7])
    for version in range(1, 6):
        answers = await described(stage, asked, version=version)
        assert [list(partitions(each)) for each in answers.values()] == [[], [("t", 0)]]
        known = version >= 4
        assert all((each.total_bytes > 0) == known for each in answers.values())


@pytest.mark.conformance("RM-93")
@played_in(with_records)
async def test_of_a_topic_that_nobody_knows_the_directories_are_described(stage: Stage) -> None:
    unknown = DescribableLogDirTopic(topic="none", partitions=[0])
    answers = await described(stage, unknown)
    assert list(answers) == DIRECTORIES
    for result in answers.values():
        assert (result.error_code, result.topics) == (ErrorCode.NONE, [])
        assert result.total_bytes > 0 <= result.usable_bytes


@played_in(with_records)
async def test_an_offline_directory_is_named_and_one_that_cannot_be_measured_too(
    stage: Stage, world: World
) -> None:
    disk = world.disk(name_of(1))
    disk.faults.append(Fault(operation="space", names="a", times=1))
    assert (await described(stage))["/a"].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    disk.faults.append(Fault(operation="write", names="*.log"))
    refused = await stage.client.produce(stage.address(1), "t", b"refused")
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    answers = await described(stage)
    assert answers["/a"].error_code == ErrorCode.NONE
    assert answers["/b"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (answers["/b"].topics, answers["/b"].total_bytes) == ([], UNKNOWN_SPACE)


@played_in(with_records)
async def test_a_log_without_a_replica_on_it_has_no_lag(stage: Stage) -> None:
    broker = stage.cluster.brokers[1]
    broker.logs.get_or_create(TopicPartition("alone", 0))
    found: dict[tuple[str, int], DescribeLogDirsPartition] = {}
    for result in (await described(stage)).values():
        found |= partitions(result)
    assert found["alone", 0].offset_lag == NO_OFFSET_LAG
