import asyncio

from alarms import alarms


async def until(predicate):
    async with asyncio.timeout(60):
        while not predicate():
            await asyncio.sleep(0.02)


def test_only_what_is_too_hot_is_reported(kafka_cluster, kafka_topic):
    raised = []

    async def scenario():
        async with alarms(kafka_cluster.bootstrap_servers, kafka_topic, raised.append) as service:
            await service.start()
            await service.publish({"cellar": 12, "oven": 91}, kafka_topic)
            await service.publish({"attic": 99}, kafka_topic)
            await until(lambda: len(raised) == 2)

    asyncio.run(scenario())
    assert raised == ["oven", "attic"]


def test_alarms_are_heard_though_a_broker_is_frozen(kafka_cluster, kafka_topic):
    raised = []
    leader = kafka_cluster.leader(kafka_topic)
    follower = next(each for each in kafka_cluster.brokers if each != leader)

    async def scenario():
        async with alarms(kafka_cluster.bootstrap_servers, kafka_topic, raised.append) as service:
            await service.start()
            await service.publish({"oven": 95}, kafka_topic)
            await until(lambda: raised == ["oven"])
            kafka_cluster.freeze_broker(follower)
            await service.publish({"stove": 97}, kafka_topic)
            await until(lambda: raised == ["oven", "stove"])

    asyncio.run(scenario())
