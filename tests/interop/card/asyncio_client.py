"""aiokafka."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.interop.card.features import CODECS, LONG_AGO, SECONDS, SENT
from tests.interop.card.secured import STAY_SECONDS, Entrance
from tests.interop.card.waiting import heard

VERSION = f"aiokafka {aiokafka.__version__}"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def producer_of(servers: str, **config: Any) -> aiokafka.AIOKafkaProducer:
    return aiokafka.AIOKafkaProducer(bootstrap_servers=servers, **{"acks": "all", **config})


def consumer_of(servers: str, *topics: str, **config: Any) -> aiokafka.AIOKafkaConsumer:
    reading = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return aiokafka.AIOKafkaConsumer(*topics, bootstrap_servers=servers, **{**reading, **config})


async def send(servers: str, topic: str, *values: bytes, **config: Any) -> None:
    async with producer_of(servers, **config) as producer:
        await asyncio.gather(*[await producer.send(topic, each, partition=0) for each in values])


async def take(consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[Any]:
    return await asyncio.wait_for(_take(consumer, count), SECONDS)


async def _take(consumer: aiokafka.AIOKafkaConsumer, count: int) -> list[Any]:
    return [await consumer.getone() for _ in range(count)]


async def read_all(servers: str, topic: str, count: int, **config: Any) -> list[Any]:
    async with consumer_of(servers, **config) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in range(2)])
        return await take(consumer, count)


def values(records: list[Any]) -> list[bytes | None]:
    return [each.value for each in records]


async def _sent_and_read(servers: str, topic: str, **config: Any) -> None:
    await send(servers, topic, *SENT, **config)
    assert values(await read_all(servers, topic, len(SENT))) == SENT


def produce_and_consume(servers: str, topic: str) -> None:
    run(_sent_and_read(servers, topic))


def idempotence(servers: str, topic: str) -> None:
    run(_sent_and_read(servers, topic, enable_idempotence=True))


async def _compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        await send(servers, topic, *SENT * 10, compression_type=codec, linger_ms=50)
    assert values(await read_all(servers, topic, len(SENT) * 40)) == SENT * 40


def compression(servers: str, topic: str) -> None:
    run(_compression(servers, topic))


async def _headers_and_nulls(servers: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"")]
    async with producer_of(servers) as producer:
        await producer.send_and_wait(topic, None, b"key", headers=headers)
        await producer.send_and_wait(topic, b"value", None)
    read = {each.key: each for each in await read_all(servers, topic, 2)}
    assert read[b"key"].value is None
    assert list(read[b"key"].headers) == headers
    assert read[None].value == b"value"


def headers_and_nulls(servers: str, topic: str) -> None:
    run(_headers_and_nulls(servers, topic))


async def _offsets_by_time(servers: str, topic: str) -> None:
    async with producer_of(servers) as producer:
        for number in range(10):
            at = LONG_AGO + number
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=at)
    partition = aiokafka.TopicPartition(topic, 0)
    async with consumer_of(servers) as consumer:
        found = await consumer.offsets_for_times({partition: LONG_AGO + 4})
    assert found[partition].offset == 4


def offsets_by_time(servers: str, topic: str) -> None:
    run(_offsets_by_time(servers, topic))


async def _group_goes_on(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    for part in (SENT[:5], SENT[5:]):
        async with consumer_of(servers, topic, group_id=topic) as consumer:
            assert values(await take(consumer, 5)) == part
            await consumer.commit()


def group_goes_on(servers: str, topic: str) -> None:
    run(_group_goes_on(servers, topic))


async def _shares(servers: str, topic: str) -> None:
    quick = {"group_id": topic, "heartbeat_interval_ms": 300, "session_timeout_ms": 6000}
    async with consumer_of(servers, topic, **quick) as one:
        async with consumer_of(servers, topic, **quick) as two:
            await _until_sizes(one, two, sizes=[1, 1])
        await _until_sizes(one, sizes=[2])


async def _until_sizes(*consumers: aiokafka.AIOKafkaConsumer, sizes: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := [len(each.assignment()) for each in consumers]) != sizes:
        assert time.monotonic() < deadline, f"still {found} after {SECONDS:.0f} s"
        await asyncio.sleep(0.1)


def group_shares(servers: str, topic: str) -> None:
    run(_shares(servers, topic))


async def _static_member(servers: str, topic: str) -> None:
    """Close the member without leaving, and have it come back under its name without a rebalance."""
    generations = set()
    config = {"group_id": topic, "group_instance_id": "one"}
    for _ in range(2):
        async with consumer_of(servers, topic, **config) as consumer:
            await _until_sizes(consumer, sizes=[2])
            generations.add(consumer._coordinator.generation)
    assert len(generations) == 1


def static_member(servers: str, topic: str) -> None:
    run(_static_member(servers, topic))


async def _transactions(servers: str, topic: str) -> None:
    async with producer_of(servers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed", partition=0)
    read = await read_all(servers, topic, 1, isolation_level="read_committed")
    assert values(read) == [b"committed"]


def transactions(servers: str, topic: str) -> None:
    run(_transactions(servers, topic))


async def _offsets_in_transaction(servers: str, topic: str) -> None:
    partition = aiokafka.TopicPartition(topic, 0)
    async with producer_of(servers, transactional_id=topic) as producer, producer.transaction():
        await producer.send_offsets_to_transaction({partition: 5}, topic)
    async with consumer_of(servers, group_id=topic) as consumer:
        # It does not wait for the transaction's marker, which comes after the answer.
        await _until(lambda: consumer.committed(partition), lambda found: found == 5)


def offsets_in_transaction(servers: str, topic: str) -> None:
    run(_offsets_in_transaction(servers, topic))


# Admin.


@asynccontextmanager
async def admin_of(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _until(ask: Any, holds: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds(found := await ask()):
        assert time.monotonic() < deadline, f"still {found} after {SECONDS:.0f} s"
        await asyncio.sleep(0.1)


async def _topics(servers: str, topic: str) -> None:
    name = f"{topic}-made"
    async with admin_of(servers) as admin:

        async def partitions() -> int:
            (found,) = await admin.describe_topics([name])
            return len(found["partitions"])

        await admin.create_topics([NewTopic(name, 1, 3)])
        await _until(partitions, lambda found: found == 1)
        await admin.create_partitions({name: NewPartitions(3)})
        await _until(partitions, lambda found: found == 3)
        await admin.delete_topics([name])
        await _until(admin.list_topics, lambda found: name not in found)


def topics(servers: str, topic: str) -> None:
    run(_topics(servers, topic))


async def _configs(servers: str, topic: str) -> None:
    async with admin_of(servers) as admin:
        setting = {"retention.ms": "5000"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, setting)])

        async def described() -> str:
            return str(
                await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            )

        await _until(described, lambda found: "5000" in found)


def configs(servers: str, topic: str) -> None:
    run(_configs(servers, topic))


async def _delete_records(servers: str, topic: str) -> None:
    await send(servers, topic, *SENT)
    partition = aiokafka.TopicPartition(topic, 0)
    async with admin_of(servers) as admin:
        deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=4)})
    assert deleted[partition] == 4


def delete_records(servers: str, topic: str) -> None:
    run(_delete_records(servers, topic))


async def _groups(servers: str, topic: str) -> None:
    """Describe a group and list its offsets; aiokafka neither moves nor deletes groups."""
    await _group_goes_on(servers, topic)
    async with admin_of(servers) as admin:
        assert "Empty" in str(await admin.describe_consumer_groups([topic]))
        described = await admin.list_consumer_group_offsets(topic)
        assert described[aiokafka.TopicPartition(topic, 0)].offset == 10
        assert topic in str(await admin.list_consumer_groups())


def groups(servers: str, topic: str) -> None:
    run(_groups(servers, topic))


# Ways in.


def words_for(way: Entrance) -> dict[str, Any]:
    """Return the arguments of aiokafka, which takes a TLS context where others take files."""
    words: dict[str, Any] = way.as_kafka_python()
    context = ssl.create_default_context(cafile=words.pop("ssl_cafile"))
    if own := words.pop("ssl_certfile", None):
        context.load_cert_chain(own)
    return {**words, "ssl_context": context}


def producer_by(way: Entrance) -> aiokafka.AIOKafkaProducer:
    return aiokafka.AIOKafkaProducer(**words_for(way), acks="all")


def reader_by(way: Entrance, topic: str) -> aiokafka.AIOKafkaConsumer:
    words = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return aiokafka.AIOKafkaConsumer(topic, group_id=topic, **words_for(way), **words)


async def _enter(way: Entrance, topic: str) -> None:
    async with producer_by(way) as producer:
        for each in SENT:
            await producer.send_and_wait(topic, each, partition=0)
    async with reader_by(way, topic) as consumer:
        assert values(await take(consumer, len(SENT))) == SENT


def enter(way: Entrance, topic: str) -> None:
    run(_enter(way, topic))


async def _turned_away(way: Entrance) -> None:
    """Fail to log in: aiokafka logs the reason, and raises that it found no broker."""
    producer = producer_by(way)
    with heard("aiokafka") as said, pytest.raises(aiokafka.errors.KafkaConnectionError):
        await producer.start()
    await producer.stop()
    assert any("SaslAuthenticationFailed" in each for each in said)


def turned_away(way: Entrance, topic: str) -> None:
    run(_turned_away(way))


async def _refused(way: Entrance, topic: str) -> None:
    async with producer_by(way) as producer:
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, b"x", partition=0)
    with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
        async with reader_by(way, topic) as consumer:
            await take(consumer, 1)


def refused(way: Entrance, topic: str) -> None:
    run(_refused(way, topic))


async def _stay(way: Entrance, topic: str) -> None:
    deadline = time.monotonic() + STAY_SECONDS
    async with producer_by(way) as producer:
        while time.monotonic() < deadline:
            await producer.send_and_wait(topic, b"x", partition=0)
            await asyncio.sleep(0.3)


def stay(way: Entrance, topic: str) -> None:
    run(_stay(way, topic))
