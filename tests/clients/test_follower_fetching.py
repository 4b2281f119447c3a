"""A consumer that reads from the replica in its own rack (KIP-392), by librdkafka."""

import attrs
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from replication.cluster.cluster import Cluster
from storage.types import TopicPartition
from tests.clients.sample import PATIENCE_SECONDS, cluster_for_clients, in_thread

pytestmark = pytest.mark.client

TP = TopicPartition("near", 0)
LEADER, FOLLOWER = 1, 2
RACKS = {LEADER: "east", FOLLOWER: "west"}
COUNT = 20


async def move_into_racks(cluster: Cluster) -> None:
    for broker_id, rack in RACKS.items():
        await cluster.stop_broker(broker_id)
        cluster.configs[broker_id] = attrs.evolve(cluster.configs[broker_id], broker_rack=rack)
        await cluster.start_broker(broker_id)
    await cluster.until(cluster.is_complete, what="every broker knows every other")


def create_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(TP.topic, num_partitions=1, replica_assignment=[[LEADER, FOLLOWER]])
    admin.create_topics([topic])[TP.topic].result(PATIENCE_SECONDS)


def produce(bootstrap_servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for number in range(COUNT):
        producer.produce(TP.topic, str(number))
    assert producer.flush(PATIENCE_SECONDS) == 0


def consume(bootstrap_servers: str, rack: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "client.rack": rack,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TP.topic, 0, 0)])
    read: list[bytes | None] = []
    while len(read) < COUNT:
        messages = consumer.consume(COUNT - len(read), timeout=PATIENCE_SECONDS)
        assert messages, f"only {len(read)} of {COUNT}"
        for message in messages:
            assert message.error() is None, message.error()
            read.append(message.value())
    consumer.close()
    return read


def consumer_fetches(cluster: Cluster, broker_id: int) -> int:
    counts = cluster.brokers[broker_id].request_metrics.counts.get("FetchConsumer")
    return 0 if counts is None else counts.bytes.count


async def test_a_consumer_reads_from_the_follower_in_its_rack() -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with cluster_for_clients(replica_selector_class=selector) as cluster:
        await move_into_racks(cluster)
        await in_thread(create_topic, cluster.bootstrap_servers)
        await cluster.until(lambda: cluster.leader(*TP) == LEADER, what="the topic has a leader")
        await in_thread(produce, cluster.bootstrap_servers)
        wanted = [str(number).encode() for number in range(COUNT)]
        assert await in_thread(consume, cluster.bootstrap_servers, "east") == wanted
        assert consumer_fetches(cluster, FOLLOWER) == 0
        assert await in_thread(consume, cluster.bootstrap_servers, "west") == wanted
        assert consumer_fetches(cluster, FOLLOWER) > 0
