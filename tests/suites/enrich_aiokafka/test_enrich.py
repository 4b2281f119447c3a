import json

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from enrich import enrich

pytestmark = pytest.mark.anyio
NAMES = {1: "Ada", 2: "Grace"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def target(kafka_cluster):
    kafka_cluster.create_topic("enriched", partitions=1)
    yield "enriched"
    kafka_cluster.delete_topic("enriched")


async def click(servers, topic, *users):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for user in users:
            await producer.send_and_wait(topic, json.dumps({"user": user}).encode())


async def names(servers, topic, count):
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return [json.loads((await consumer.getone()).value)["name"] for _ in range(count)]


async def test_clicks_are_given_names(kafka_cluster, kafka_topic, target):
    servers = kafka_cluster.bootstrap_servers
    await click(servers, kafka_topic, 1, 2)
    await enrich(servers, kafka_topic, target, NAMES, clicks=2)
    assert await names(servers, target, 2) == ["Ada", "Grace"]


async def test_it_goes_on_after_a_rolling_restart(kafka_cluster, kafka_topic, target):
    servers = kafka_cluster.bootstrap_servers
    await click(servers, kafka_topic, 1)
    await enrich(servers, kafka_topic, target, NAMES, clicks=1)
    for broker in kafka_cluster.brokers:
        kafka_cluster.stop_broker(broker)
        kafka_cluster.start_broker(broker)
    await click(servers, kafka_topic, 2)
    await enrich(servers, kafka_topic, target, NAMES, clicks=1)
    assert await names(servers, target, 2) == ["Ada", "Grace"]
