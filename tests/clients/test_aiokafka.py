"""aiokafka, against three brokers over loopback. It speaks asyncio, in a thread of its own."""

import asyncio

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from storage.batch.compression import Codec
from tests.clients.sample import (
    CODECS,
    COUNT,
    PARTITIONS,
    PATIENCE_SECONDS,
    TOPIC,
    Sample,
    cluster_for_clients,
    in_thread,
    samples,
    stored_codecs,
)

pytestmark = pytest.mark.client


async def create_topic(bootstrap_servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    await admin.close()


async def produce(bootstrap_servers: str, codec: str, idempotent: bool) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
    )
    await producer.start()
    sent = [
        await producer.send(
            TOPIC,
            partition=each.partition,
            key=each.key,
            value=each.value,
            timestamp_ms=each.timestamp,
            headers=list(each.headers),
        )
        for each in samples()
    ]
    await asyncio.gather(*sent)
    await producer.stop()


async def consume(bootstrap_servers: str) -> list[Sample]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
    read: list[Sample] = []
    while len(read) < COUNT:
        fetched = await consumer.getmany(timeout_ms=1000 * PATIENCE_SECONDS)
        assert fetched, f"only {len(read)} of {COUNT}"
        for records in fetched.values():
            read += [
                Sample(
                    partition=record.partition,
                    key=record.key,
                    value=record.value,
                    timestamp=record.timestamp,
                    headers=tuple(record.headers),
                )
                for record in records
            ]
    await consumer.stop()
    return sorted(read, key=lambda each: each.timestamp)


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
async def test_what_is_produced_is_read_back_as_it_was(codec: str, idempotent: bool) -> None:
    def use(bootstrap_servers: str) -> list[Sample]:
        asyncio.run(create_topic(bootstrap_servers))
        asyncio.run(produce(bootstrap_servers, codec, idempotent))
        return asyncio.run(consume(bootstrap_servers))

    async with cluster_for_clients() as cluster:
        assert await in_thread(use, cluster.bootstrap_servers) == samples()
        assert stored_codecs(cluster) == {Codec[codec.upper()]}
