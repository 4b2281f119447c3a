"""Brokers of both kinds with two log directories each, at a controller of either kind (KIP-858).

A directory fails as a disk that goes away: its place is taken by a file, and the next checkpoint of
high watermarks cannot be written. The broker tells its controller, which lets other brokers lead.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replication.client.admin import Admin
from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop.kafka import CONTROLLER_ALONE, Kafka
from tests.interop.own_clients import (
    admin_of,
    asked_until,
    check_equal,
    leaders_of,
    make_topic,
    produce,
    read_all,
    wait_for_isr,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

THEIRS, OURS = BROKERS = (1, 2)
PARTITIONS = range(4)
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({OURS, CONTROLLER_ALONE}, id="our controller"),
        pytest.param({OURS}, id="Kafka's controller"),
    ],
)
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    directory = tmp_path_factory.mktemp("log-dirs")
    with Kafka(
        data_dir=directory,
        brokers=len(BROKERS),
        ours=request.param,
        properties={"replica.high.watermark.checkpoint.interval.ms": "500"},
        node_properties={
            broker: {"log.dirs": ",".join(map(str, log_dirs(directory, broker)))}
            for broker in BROKERS
        },
    ) as kafka:
        yield kafka


def log_dirs(data_dir: Path, broker: int) -> tuple[Path, Path]:
    """Return the directory with the metadata, without which no broker goes on, and the other."""
    first, second = (data_dir / f"node-{broker}" / name for name in ("log", "second"))
    return first, second


def held(directory: Path, topic: str) -> set[int]:
    """Return the partitions of `topic` in a log directory."""
    return {each for each in PARTITIONS if (directory / f"{topic}-{each}").is_dir()}


async def isrs(admin: Admin, topic: str) -> list[list[int]]:
    return [sorted(each.isr) for each in (await admin.describe_topics([topic]))[topic].partitions]


@asynccontextmanager
async def failed(kafka: Kafka, broker: int) -> AsyncIterator[None]:
    """Let the second directory of a broker fail, and start the broker with it again after the block."""
    _, second = log_dirs(kafka.data_dir, broker)
    away = second.rename(second.with_name("away"))
    second.touch()
    yield
    await in_thread(kafka.stop, broker)
    second.unlink()
    away.rename(second)
    await in_thread(kafka.start, broker)


@pytest.mark.parametrize("broker", BROKERS, ids=["of Kafka's broker", "of ours"])
async def test_a_directory_that_fails_takes_its_replicas_alone(mixed: Kafka, broker: int) -> None:
    other = sum(BROKERS) - broker
    topic = f"fails-{broker}"
    first, second = log_dirs(mixed.data_dir, broker)
    await make_topic(mixed, topic, *[(broker, other)] * len(PARTITIONS))
    async with admin_of(mixed) as admin:
        await wait_for_isr(admin, topic, *BROKERS, leader=broker)
        for partition in PARTITIONS:
            await produce(mixed, topic, *range(5), partition=partition)
        lost = held(second, topic)
        assert lost, "new replicas go where the fewest are"
        assert held(first, topic) == set(PARTITIONS) - lost != set()
        without_lost = [[other] if each in lost else [*BROKERS] for each in PARTITIONS]
        async with failed(mixed, broker):
            await asked_until(
                lambda: leaders_of(admin, topic),
                lambda found: found == [other if each in lost else broker for each in PARTITIONS],
            )
            assert await isrs(admin, topic) == without_lost
            described = await admin.describe_log_dirs([broker])
            errors = {Path(each.path): each.error for each in described[broker]}
            assert errors == {first: "", second: "KAFKA_STORAGE_ERROR"}
            for partition in PARTITIONS:
                await produce(mixed, topic, *range(5, 10), partition=partition)
            await in_thread(mixed.stop, broker)
            await in_thread(mixed.start, broker)
            await asked_until(lambda: isrs(admin, topic), lambda found: found == without_lost)
        await wait_for_isr(admin, topic, *BROKERS)
        await admin.elect_leaders([TopicPartition(topic, each) for each in PARTITIONS])
        await wait_for_isr(admin, topic, *BROKERS, leader=broker)
    assert len(await read_all(mixed, topic, 40, partitions=len(PARTITIONS))) == 40
    await check_equal(mixed, topic)


async def test_a_replica_of_kafkas_moves_to_its_other_directory(mixed: Kafka) -> None:
    """The controller learns of it: when the other directory fails, the moved replica is lost too."""
    topic = "moves-inside"
    first, second = log_dirs(mixed.data_dir, THEIRS)
    both = {0, 1}
    await make_topic(mixed, topic, *[(THEIRS, OURS)] * len(both))
    for partition in both:
        await produce(mixed, topic, *range(20), partition=partition)
    wanted = {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": partition,
                "replicas": [THEIRS, OURS],
                "log_dirs": [str(second), "any"],
            }
            for partition in both
        ],
    }
    file = mixed.data_dir / "wanted.json"
    file.write_text(json.dumps(wanted))
    assert held(first, topic), "one of them is to move"
    await in_thread(mixed.run_tool, REASSIGN, "--execute", "--reassignment-json-file", str(file))

    async def places() -> tuple[set[int], set[int]]:
        return held(first, topic), held(second, topic)

    async with admin_of(mixed) as admin:
        await asked_until(places, lambda found: found == (set(), both))
        await wait_for_isr(admin, topic, *BROKERS, leader=THEIRS)
        async with failed(mixed, THEIRS):
            await wait_for_isr(admin, topic, OURS, leader=OURS)
            for partition in both:
                await produce(mixed, topic, *range(20, 25), partition=partition)
        await wait_for_isr(admin, topic, *BROKERS)
    assert len(await read_all(mixed, topic, 50, partitions=len(both))) == 50
    await check_equal(mixed, topic)
