import pytest
import trio
from meters import report, roll_up

READINGS = {"north": [1, 2, 3], "south": [10, 20]}
SUMS = {"north": 6, "south": 30}


@pytest.mark.kafka(partitions=4)
async def test_meters_are_summed(kafka_cluster, kafka_topic):
    servers = kafka_cluster.bootstrap_servers
    await report(servers, kafka_topic, READINGS)
    assert await roll_up(servers, kafka_topic, 4) == SUMS


@pytest.mark.kafka(partitions=4)
async def test_meters_report_while_a_broker_is_away(kafka_cluster, kafka_topic):
    servers = kafka_cluster.bootstrap_servers
    victim = kafka_cluster.leader(kafka_topic, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(report, servers, kafka_topic, READINGS)
        await trio.to_thread.run_sync(kafka_cluster.kill_broker, victim)
    await trio.to_thread.run_sync(kafka_cluster.start_broker, victim)
    assert await roll_up(servers, kafka_topic, 4) == SUMS
