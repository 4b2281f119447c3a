"""In tests of plain functions, as where no plugin for asyncio is installed."""

import asyncio

from confluent_kafka.aio import AIOConsumer
from gateway import Gateway


async def read(servers, topic, count):
    consumer = AIOConsumer(
        {"bootstrap.servers": servers, "group.id": "audit", "auto.offset.reset": "earliest"}
    )
    await consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = await consumer.poll(timeout=1.0)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    await consumer.close()
    return found


def test_what_was_accepted_is_there(kafka_cluster, kafka_topic):
    async def scenario():
        gateway = Gateway(kafka_cluster.bootstrap_servers, kafka_topic)
        assert sorted(await gateway.accept("a", "b", "c")) == [0, 1, 2]
        await gateway.close()
        assert await read(kafka_cluster.bootstrap_servers, kafka_topic, 3) == ["a", "b", "c"]

    asyncio.run(scenario())


def test_it_waits_for_an_isr_that_is_large_enough(kafka_cluster):
    """Two of three replicas are gone: nothing is accepted until one is back."""
    kafka_cluster.create_topic("careful", config={"min.insync.replicas": 2})
    leader = kafka_cluster.leader("careful")
    others = [each for each in kafka_cluster.brokers if each != leader]
    for broker in others:
        kafka_cluster.kill_broker(broker)
    kafka_cluster.until(lambda: kafka_cluster.isr("careful") == [leader])

    async def scenario():
        gateway = Gateway(kafka_cluster.bootstrap_servers, "careful")
        accepting = asyncio.create_task(gateway.accept("late"))
        await asyncio.to_thread(kafka_cluster.start_broker, others[0])
        assert await accepting == [0]
        await gateway.close()

    asyncio.run(scenario())
