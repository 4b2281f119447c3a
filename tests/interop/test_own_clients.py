"""Our clients against Apache Kafka's broker."""

import pytest
import trio

from replication.client.admin import Admin, NewTopic
from replication.client.consumer import Consumer
from replication.client.producer import Producer
from tests.interop.kafka import Kafka

pytestmark = pytest.mark.interop


async def test_what_our_producer_sends_our_consumer_reads(kafka: Kafka) -> None:
    servers = kafka.bootstrap_servers
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(name="own", partitions=2)])
    producer: Producer[bytes, bytes] = Producer(bootstrap_servers=servers)
    async with producer:
        for number in range(100):
            await producer.send("own", b"%d" % number, partition=number % 2)
    consumer = Consumer(
        "own", bootstrap_servers=servers, group_id="own readers", auto_offset_reset="earliest"
    )
    read: list[bytes] = []
    with trio.fail_after(60):
        async with consumer:
            async for record in consumer:
                read.append(record.value)
                if len(read) == 100:
                    break
    assert sorted(read) == sorted(b"%d" % number for number in range(100))
