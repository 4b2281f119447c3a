"""Our clients for a Kafka, and what tests with them do again and again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio

from replication.client.admin import Admin, NewTopic
from replication.client.consumer import Consumer
from replication.client.consumer.records import ConsumerRecord
from replication.client.producer import Producer
from replication.errors import KafkaError
from replication.net import production_seams
from replication.verify import Same
from replication.verify.sources import PartitionSelection, VerificationPlan
from storage.types import TopicPartition
from tests.interop.kafka import Kafka

T = TypeVar("T")

SECONDS = 60.0


async def asked_until(
    ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool], *, seconds: float = SECONDS
) -> T:
    """Ask until the answer holds: brokers learn later what their controller has done."""
    with trio.fail_after(seconds):
        while True:
            with suppress(KafkaError):
                if holds(answer := await ask()):
                    return answer
            await trio.sleep(0.05)


def producer_of(kafka: Kafka, **config: Any) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers=kafka.bootstrap_servers, **config)


def consumer_of(kafka: Kafka, *topics: str, **config: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=kafka.bootstrap_servers,
        **{"auto_offset_reset": "earliest", **config},
    )


def admin_of(kafka: Kafka) -> Admin:
    return Admin(kafka.bootstrap_servers)


async def make_topic(
    kafka: Kafka, name: str, *replicas: tuple[int, ...], partitions: int = -1, **configs: str
) -> None:
    """Create a topic with these replicas, or with `partitions`; `configs` have underscores for dots."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name=name, partitions=partitions, replicas=replicas, configs=named)
    async with admin_of(kafka) as admin:
        await admin.create_topics([topic])
        await asked_until(lambda: leaders_of(admin, name), lambda leaders: min(leaders) >= 0)


async def produce(kafka: Kafka, topic: str, *numbers: int, partition: int = 0) -> None:
    """Produce with acks=all, idempotently; each number is a batch."""
    with trio.fail_after(SECONDS):
        async with producer_of(kafka, compression_type="lz4") as producer:
            for number in numbers:
                await producer.send(topic, b"%d" % number * 100, partition=partition)


async def leaders_of(admin: Admin, topic: str) -> list[int]:
    """Return the leader of each partition, or -1 for one without."""
    described = (await admin.describe_topics([topic]))[topic]
    return [each.leader for each in described.partitions]


async def read_all(
    kafka: Kafka, topic: str, count: int, *, partitions: int = 1, **config: Any
) -> list[ConsumerRecord]:
    """`count` records from the beginning, in the order in which they came; in no group."""
    read: list[ConsumerRecord] = []
    with trio.fail_after(SECONDS):
        async with consumer_of(kafka, **config) as consumer:
            consumer.assign([(topic, partition) for partition in range(partitions)])
            while len(read) < count:
                read += await consumer.poll(timeout_ms=1000)
    return read


async def wait_for_isr(admin: Admin, topic: str, *members: int, leader: int | None = None) -> None:
    """Wait until each partition of `topic` has this ISR, and this leader if one is given."""

    async def described() -> list[tuple[list[int], int]]:
        found = (await admin.describe_topics([topic]))[topic].partitions
        return [(sorted(each.isr), each.leader) for each in found]

    await asked_until(
        described,
        lambda found: all(isr == sorted(members) and leader in (None, led) for isr, led in found),
    )


async def elect_uncleanly(admin: Admin, partition: TopicPartition, broker: int) -> None:
    """Elect until the broker leads, once the controller knows that it is back, and the other gone."""

    async def elected() -> list[int]:
        with suppress(KafkaError):
            await admin.elect_leaders([partition], unclean=True)
        return await leaders_of(admin, partition.topic)

    await asked_until(elected, lambda leaders: leaders == [broker])


@asynccontextmanager
async def killed(kafka: Kafka, *nodes: int) -> AsyncIterator[None]:
    """Kill nodes, and start them again after the block."""
    for node in nodes:
        await trio.to_thread.run_sync(kafka.kill, node)
    try:
        yield
    finally:
        for node in nodes:
            await trio.to_thread.run_sync(kafka.spawn, node)
        await trio.to_thread.run_sync(kafka.wait_until_ready)


async def check_equal(kafka: Kafka, *topics: str) -> None:
    """Check that each replica has the same batches, with the same leader epochs."""
    comparison = await VerificationPlan(
        bootstrap_servers=[kafka.bootstrap_servers],
        selection=PartitionSelection(topics="|".join(topics)),
    ).run(production_seams())
    assert comparison.partitions
    for result in comparison.partitions:
        assert isinstance(result, Same), result
        assert len(result.directories) > 1
