"""Our own clients, for trio."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio

from replication.client import Admin, Consumer, Producer
from replication.client.admin import NewTopic
from replication.client.consumer.records import ConsumerRecord
from replication.client.errors import GroupAuthorizationFailedError
from replication.client.offsets import OffsetAndMetadata
from replication.errors import AuthenticationError, KafkaError
from storage.types import TopicPartition
from tests.interop.card.features import CODECS, LONG_AGO, SECONDS, SENT
from tests.interop.card.secured import STAY_SECONDS, Entrance
from tests.interop.own_clients import asked_until

VERSION = "understudy"
S = TypeVar("S", str, Entrance)
"""Where the brokers are, and how to come in where that matters."""


def probe(work: Callable[[S, str], Awaitable[None]]) -> Callable[[S, str], None]:
    async def bounded(servers: S, topic: str) -> None:
        with trio.fail_after(SECONDS):
            await work(servers, topic)

    return lambda servers, topic: trio.run(bounded, servers, topic)


def consumer_of(servers: str, *topics: str, **config: Any) -> Consumer:
    reading = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return Consumer(*topics, bootstrap_servers=servers, **{**reading, **config})


async def send(servers: str, topic: str, *values: bytes, **config: Any) -> None:
    producer: Producer[bytes, bytes] = Producer(servers, **config)
    async with producer:
        await (await producer.send_many(topic, values, partition=0)).wait()


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    return [await consumer.getone() for _ in range(count)]


async def read_all(servers: str, topic: str, count: int, **config: Any) -> list[ConsumerRecord]:
    async with consumer_of(servers, **config) as consumer:
        consumer.assign([(topic, partition) for partition in range(2)])
        return await take(consumer, count)


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [each.value for each in records]


@probe
async def produce_and_consume(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    assert values(await read_all(servers, topic, len(SENT))) == SENT


@probe
async def compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        await send(servers, topic, *SENT * 10, compression_type=codec)
    assert values(await read_all(servers, topic, len(SENT) * 40)) == SENT * 40


@probe
async def idempotence(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT, enable_idempotence=True)
    assert values(await read_all(servers, topic, len(SENT))) == SENT


@probe
async def headers_and_nulls(servers: str, topic: str) -> None:
    headers = (("a", b"1"), ("a", None))
    producer: Producer[bytes, bytes] = Producer(servers)
    async with producer:
        await producer.send(topic, None, b"key", headers=headers)
        await producer.send(topic, b"value", None)
    read = {each.key: each for each in await read_all(servers, topic, 2)}
    assert (read[b"key"].value, read[b"key"].headers) == (None, headers)
    assert read[None].value == b"value"


@probe
async def offsets_by_time(servers: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer: Producer[bytes, bytes] = Producer(servers)
    async with producer, consumer_of(servers) as consumer:
        for number in range(10):
            await producer.send(topic, b"x", partition=0, timestamp_ms=LONG_AGO + number)
        found = (await consumer.offsets_for_times({partition: LONG_AGO + 4}))[partition]
    assert found is not None
    assert found.offset == 4


async def go_on(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    for part in (SENT[:5], SENT[5:]):
        async with consumer_of(servers, topic, group_id=topic) as consumer:
            assert values(await take(consumer, 5)) == part
            await consumer.commit()


group_goes_on = probe(go_on)


async def share(servers: str, topic: str, **config: Any) -> None:
    quick = {"group_id": topic, "heartbeat_interval_ms": 300, **config}

    async def poll(*consumers: Consumer) -> list[int]:
        for each in consumers:
            await each.poll(timeout_ms=100)
        return [len(each.assignment()) for each in consumers]

    async with consumer_of(servers, topic, **quick) as one:
        async with consumer_of(servers, topic, **quick) as two:
            await asked_until(lambda: poll(one, two), lambda sizes: sizes == [1, 1])
        await asked_until(lambda: poll(one), lambda sizes: sizes == [2])


@probe
async def group_shares(servers: str, topic: str) -> None:
    await share(servers, topic)


@probe
async def cooperative(servers: str, topic: str) -> None:
    await share(servers, topic, partition_assignment_strategy="cooperative-sticky")


@probe
async def new_group_protocol(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    config = {"group_id": topic, "group_protocol": "consumer"}
    async with consumer_of(servers, topic, **config) as consumer:
        assert values(await take(consumer, len(SENT))) == SENT
        await consumer.commit()


@probe
async def static_member(servers: str, topic: str) -> None:
    generations = set()
    for _ in range(2):
        config = {"group_id": topic, "group_instance_id": "one"}
        async with consumer_of(servers, topic, **config) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout_ms=100)
            generations.add(consumer.group_metadata().generation_id)
    assert len(generations) == 1


@probe
async def transactions(servers: str, topic: str) -> None:
    producer: Producer[bytes, bytes] = Producer(servers, transactional_id=topic)
    async with producer:
        producer.begin_transaction()
        await producer.send(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"committed", partition=0)
    read = await read_all(servers, topic, 1, isolation_level="read_committed")
    assert values(read) == [b"committed"]


@probe
async def offsets_in_transaction(servers: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    producer: Producer[bytes, bytes] = Producer(servers, transactional_id=topic)
    async with producer, consumer_of(servers, group_id=topic) as consumer:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({partition: 5}, topic)
        assert await consumer.committed(partition) == OffsetAndMetadata(5)


# Admin.


@probe
async def topics(servers: str, topic: str) -> None:
    name = f"{topic}-made"
    async with Admin(servers) as admin:

        async def partitions() -> int:
            found = await admin.describe_topics([topic])
            return len(found[topic].partitions)

        await admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=3)])
        await admin.create_partitions({topic: 3})
        await asked_until(partitions, lambda found: found == 3)
        await admin.delete_topics([name])
        await asked_until(admin.list_topics, lambda found: name not in found)


@probe
async def configs(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:

        async def retention() -> str | None:
            return (await admin.describe_topic_configs([topic]))[topic]["retention.ms"].value

        await admin.alter_topic_configs({topic: {"retention.ms": "5000"}})
        await asked_until(retention, lambda found: found == "5000")


@probe
async def delete_records(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    partition = TopicPartition(topic, 0)
    async with Admin(servers) as admin:
        assert await admin.delete_records({partition: 4}) == {partition: 4}


@probe
async def groups(servers: str, topic: str) -> None:
    await go_on(servers, topic)
    put = {TopicPartition(topic, 0): OffsetAndMetadata(3)}
    async with Admin(servers) as admin:
        assert (await admin.describe_groups([topic]))[topic].state == "Empty"
        await admin.alter_group_offsets(topic, put)
        assert (await admin.list_group_offsets(topic))[TopicPartition(topic, 0)].offset == 3
        await admin.delete_groups([topic])


@probe
async def elections(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        await admin.elect_leaders([TopicPartition(topic, 0)])


@probe
async def reassignments(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:

        async def replicas() -> tuple[int, ...]:
            return (await admin.describe_topics([topic]))[topic].partitions[0].replicas

        await admin.alter_partition_reassignments({TopicPartition(topic, 0): [2, 3]})
        await asked_until(replicas, lambda found: found == (2, 3))
        assert await admin.list_partition_reassignments() == {}


# Ways in.


def producer_by(way: Entrance) -> Producer[bytes, bytes]:
    return Producer(**way.as_kafka_python())


def reader_by(way: Entrance, topic: str) -> Consumer:
    words = way.as_kafka_python() | {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return Consumer(topic, group_id=topic, **words)


@probe
async def enter(way: Entrance, topic: str) -> None:
    async with producer_by(way) as producer:
        await (await producer.send_many(topic, SENT, partition=0)).wait()
    async with reader_by(way, topic) as consumer:
        assert values(await take(consumer, len(SENT))) == SENT


@probe
async def turned_away(way: Entrance, topic: str) -> None:
    async with Admin(**way.as_kafka_python()) as admin:
        with pytest.raises(AuthenticationError):
            await admin.list_topics()


@probe
async def refused(way: Entrance, topic: str) -> None:
    async with producer_by(way) as producer:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.send(topic, b"x")
    async with reader_by(way, topic) as consumer:
        with pytest.raises(GroupAuthorizationFailedError):
            await consumer.getone()


@probe
async def stay(way: Entrance, topic: str) -> None:
    async with producer_by(way) as producer:
        with trio.move_on_after(STAY_SECONDS):
            while True:
                await producer.send(topic, b"x")
                await trio.sleep(0.3)
