"""kafka-python, against three brokers over loopback."""

import kafka
import kafka.codec
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from replication.cluster.cluster import Cluster
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
    until,
)

pytestmark = pytest.mark.client


def create_topic(bootstrap_servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    admin.close()


def delete_records(bootstrap_servers: str, offset: int) -> int:
    """The low watermark. kafka-python asks again while a broker has yet to hear that it leads."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    partition = kafka.TopicPartition(TOPIC, 0)
    deleted = admin.delete_records({partition: offset}, timeout_ms=1000 * PATIENCE_SECONDS)
    admin.close()
    low_watermark: int = deleted[partition]["low_watermark"]
    return low_watermark


def first_offset(bootstrap_servers: str) -> int:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None)
    partition = kafka.TopicPartition(TOPIC, 0)
    offset: int = consumer.beginning_offsets([partition])[partition]
    consumer.close()
    return offset


def produce(bootstrap_servers: str, codec: str, idempotent: bool) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
    )
    sent = [
        producer.send(
            TOPIC,
            partition=each.partition,
            key=each.key,
            value=each.value,
            timestamp_ms=each.timestamp,
            headers=list(each.headers),
        )
        for each in samples()
    ]
    for future in sent:
        future.get(timeout=PATIENCE_SECONDS)
    producer.close()


def consume(bootstrap_servers: str) -> list[Sample]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
    read: list[Sample] = []
    while len(read) < COUNT:
        polled = consumer.poll(1000 * PATIENCE_SECONDS)
        assert polled, f"only {len(read)} of {COUNT}"
        for records in polled.values():
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
    consumer.close()
    return sorted(read, key=lambda each: each.timestamp)


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
async def test_what_is_produced_is_read_back_as_it_was(codec: str, idempotent: bool) -> None:
    if codec != "none" and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python has no library for {codec} here")
    async with cluster_for_clients() as cluster:
        await in_thread(create_topic, cluster.bootstrap_servers)
        await in_thread(produce, cluster.bootstrap_servers, codec, idempotent)
        assert await in_thread(consume, cluster.bootstrap_servers) == samples()
        assert stored_codecs(cluster) == {Codec[codec.upper()]}


async def test_records_are_deleted_up_to_an_offset() -> None:
    async with cluster_for_clients() as cluster:
        await in_thread(create_topic, cluster.bootstrap_servers)
        await in_thread(produce, cluster.bootstrap_servers, "none", False)
        assert await in_thread(delete_records, cluster.bootstrap_servers, 7) == 7
        assert await in_thread(first_offset, cluster.bootstrap_servers) == 7


def altered(bootstrap_servers: str, incremental: bool) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(TOPIC, 1, 3)])
    asked = ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs={"retention.ms": "1000"})
    admin.alter_configs([asked], incremental=incremental)
    question = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
    # Whoever answers may not have heard of the change, or of the topic.
    until(
        lambda: "1000" in str(admin.describe_configs([question])),
        lambda: "retention.ms never became 1000",
    )
    admin.close()


@pytest.mark.parametrize("incremental", [True, False], ids=["incremental", "legacy"])
async def test_a_topics_configuration_is_altered(incremental: bool) -> None:
    async with cluster_for_clients() as cluster:
        await in_thread(altered, cluster.bootstrap_servers, incremental)


def described(admin: KafkaAdminClient, **expected: object) -> None:
    """Asked again until the broker that is asked has heard of it."""
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
        await in_thread(produce, cluster.bootstrap_servers, "none", False)
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


async def test_who_is_eligible_as_leader_is_described() -> None:
    async with cluster_for_clients(min_insync_replicas="2") as cluster:
        await in_thread(created_on_1_and_3, cluster.bootstrap_servers)
        await cluster.stop_broker(3)
        await in_thread(eligible, without_3(cluster))
