import json

import pytest
from aiokafka import AIOKafkaConsumer
from shop import Order, shop

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def invoices(kafka_cluster, kafka_topic):
    name = f"{kafka_topic}-invoices"
    kafka_cluster.create_topic(name)
    yield name
    kafka_cluster.delete_topic(name)


async def totals(servers, topic, count):
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        return [json.loads((await consumer.getone()).value)["total"] for _ in range(count)]


async def test_an_order_is_invoiced(kafka_cluster, kafka_topic, invoices):
    servers = kafka_cluster.bootstrap_servers
    async with shop(servers, kafka_topic, invoices) as service:
        await service.start()
        for number in (1, 2):
            await service.publish(Order(number=number, pieces=number), kafka_topic)
        assert await totals(servers, invoices, 2) == [7, 14]


async def test_a_bad_order_does_not_stop_the_shop(kafka_cluster, kafka_topic, invoices):
    servers = kafka_cluster.bootstrap_servers
    async with shop(servers, kafka_topic, invoices) as service:
        await service.start()
        await service.publish({"number": 1, "pieces": -1}, kafka_topic)
        await service.publish(Order(number=2, pieces=3), kafka_topic)
        assert await totals(servers, invoices, 1) == [21]
