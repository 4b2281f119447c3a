"""Our clients for a Kafka, and what the tests of them do first."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from replication.client.admin import Admin, NewTopic
from replication.client.consumer import Consumer
from replication.client.consumer.records import ConsumerRecord
from replication.client.producer import Producer
from replication.errors import KafkaError
from tests.interop.kafka import Kafka

T = TypeVar("T")

SECONDS = 60.0


async def asked_until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Ask until the answer holds: brokers learn later what their controller has done."""
    with trio.fail_after(SECONDS):
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


async def make_topic(kafka: Kafka, name: str, *, partitions: int = 1, **configs: str) -> None:
    """`configs` with underscores for dots."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    async with admin_of(kafka) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=partitions, configs=named)])
        await asked_until(lambda: leaders_of(admin, name), lambda leaders: min(leaders) >= 0)


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
