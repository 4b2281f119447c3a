"""kafka-python, against three brokers over loopback."""

import kafka
import kafka.codec
import pytest
from kafka.admin import KafkaAdminClient

from replication.cluster.cluster import Cluster
from tests.clients.sample import (
    PARTITIONS,
    PATIENCE_SECONDS,
    TOPIC,
    cluster_for_clients,
    create_topic,
    in_thread,
    until,
)

pytestmark = pytest.mark.client


def produce(bootstrap_servers: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers)
    sent = [producer.send(TOPIC, b"x", partition=each) for each in range(PARTITIONS)]
    for future in sent:
        future.get(timeout=PATIENCE_SECONDS)
    producer.close()


def described(admin: KafkaAdminClient, **expected: object) -> None:
    """Describe the topic until partition 0 is as expected: a broker learns of changes later."""
    partitions: list[dict[str, object]] = []

    def is_so() -> bool:
        (topic,) = admin.describe_topic_partitions([TOPIC])["topics"]
        partitions[:] = topic["partitions"]
        return bool(partitions) and expected.items() <= partitions[0].items()

    until(is_so, lambda: f"{partitions} never had {expected}")


def described_log_dirs(bootstrap_servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    found = admin.describe_log_dirs()
    assert sorted(each["broker"] for each in found) == [1, 2, 3]
    for broker in found:
        (directory,) = broker["log_dirs"]
        assert directory["error_code"] == 0
        assert 0 < directory["usable_bytes"] < directory["total_bytes"]
        (topic,) = directory["topics"]
        sizes = {each["partition_index"]: each["partition_size"] for each in topic["partitions"]}
        assert topic["name"] == TOPIC
        assert sorted(sizes) == list(range(PARTITIONS))
        assert all(sizes.values())
    admin.close()


async def test_log_directories_are_described() -> None:
    async with cluster_for_clients() as cluster:
        await in_thread(create_topic, cluster.bootstrap_servers)
        await in_thread(produce, cluster.bootstrap_servers)
        await in_thread(described_log_dirs, cluster.bootstrap_servers)


def without_3(cluster: Cluster) -> str:
    """kafka-python leaves the socket open that it could not connect to a stopped broker."""
    return ",".join(cluster.bootstrap_list[:2])


def reassigned(bootstrap_servers: str) -> None:
    """Broker 3 is not there: what waits for it waits, until that is given up."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    partition = kafka.TopicPartition(TOPIC, 0)
    admin.create_topics({TOPIC: {"assignments": {0: [1, 2]}}})
    admin.alter_partition_reassignments({partition: [1, 3]})
    (moving,) = admin.list_partition_reassignments().values()
    assert (moving["adding_replicas"], moving["removing_replicas"]) == ([3], [2])
    admin.alter_partition_reassignments({partition: None})
    assert admin.list_partition_reassignments() == {}
    # What needs nobody new is done at once.
    admin.alter_partition_reassignments({partition: [2]})
    assert admin.list_partition_reassignments() == {}
    described(admin, replica_nodes=[2], isr_nodes=[2], leader_id=2)
    admin.close()


async def test_a_partition_is_reassigned_and_that_is_cancelled() -> None:
    async with cluster_for_clients() as cluster:
        await cluster.stop_broker(3)
        await in_thread(reassigned, without_3(cluster))


def created_on_1_and_3(bootstrap_servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics({TOPIC: {"assignments": {0: [1, 3]}}})
    admin.close()


def eligible(bootstrap_servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    described(admin, isr_nodes=[1], eligible_leader_replicas=[3], offline_replicas=[3])
    admin.close()


async def test_eligible_leader_replicas_are_described() -> None:
    async with cluster_for_clients(min_insync_replicas="2") as cluster:
        await in_thread(created_on_1_and_3, cluster.bootstrap_servers)
        await cluster.stop_broker(3)
        await in_thread(eligible, without_3(cluster))
