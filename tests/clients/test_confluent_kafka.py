"""librdkafka, the client of most languages, against three brokers over loopback."""

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.cimpl import KafkaError, KafkaException, NewPartitions, NewTopic

from replication.cluster.cluster import Cluster
from storage.batch.compression import Codec
from storage.types import TopicPartition
from tests.clients.sample import (
    COUNT,
    PARTITIONS,
    PATIENCE_SECONDS,
    TOPIC,
    Sample,
    cluster_for_clients,
    create_topic,
    in_thread,
    samples,
    stored_codecs,
    until,
)

pytestmark = pytest.mark.client


def produce(bootstrap_servers: str, codec: str, idempotent: bool) -> list[object]:
    """The errors of those that were not acked."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "acks": "all",
        }
    )
    errors: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    for each in samples():
        producer.produce(
            TOPIC,
            partition=each.partition,
            key=each.key,
            value=each.value,
            timestamp=each.timestamp,
            headers=list(each.headers),
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    return errors


def consume(bootstrap_servers: str) -> list[Sample]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
    )
    read: list[Sample] = []
    while len(read) < COUNT:
        messages = consumer.consume(COUNT - len(read), timeout=PATIENCE_SECONDS)
        assert messages, f"only {len(read)} of {COUNT}"
        for message in messages:
            assert message.error() is None, message.error()
            read.append(_sample(message))
    consumer.close()
    return sorted(read, key=lambda each: each.timestamp)


def _sample(message: confluent_kafka.Message) -> Sample:
    partition = message.partition()
    assert partition is not None
    headers = message.headers() or []
    assert isinstance(headers, list)
    return Sample(
        partition=partition,
        key=message.key(),
        value=message.value(),
        timestamp=message.timestamp()[1],
        headers=tuple((name, value) for name, value in headers if isinstance(value, bytes)),
    )


def known(admin: AdminClient, at_least: int) -> Any:
    """The metadata of a broker that has heard of as many of the topic's partitions."""
    metadata: list[Any] = []

    def is_known() -> bool:
        metadata.append(admin.list_topics(TOPIC, timeout=PATIENCE_SECONDS))
        return len(metadata[-1].topics[TOPIC].partitions) >= at_least

    until(is_known, lambda: f"{TOPIC} has no {at_least} partitions: {metadata[-1].topics}")
    return metadata[-1]


@pytest.mark.parametrize(
    ("topic", "stored"),
    [
        pytest.param({}, Codec.GZIP, id="the broker's"),
        pytest.param({"compression.type": "zstd", "compression.zstd.level": "7"}, Codec.ZSTD,
                     id="the topic's"),
        pytest.param({"compression.type": "uncompressed"}, Codec.NONE, id="none"),
    ],
)  # fmt: skip
async def test_a_topic_keeps_records_in_its_own_codec(topic: dict[str, str], stored: Codec) -> None:
    async with cluster_for_clients(compression_type="gzip", compression_gzip_level="1") as cluster:
        await in_thread(lambda: create_topic(cluster.bootstrap_servers, config=topic))
        assert await in_thread(produce, cluster.bootstrap_servers, "lz4", True) == []
        assert await in_thread(consume, cluster.bootstrap_servers) == samples()
        assert stored_codecs(cluster) == {stored}


async def test_a_topic_is_made_by_producing_to_it() -> None:
    async with cluster_for_clients(num_partitions="3") as cluster:
        assert await in_thread(produce, cluster.bootstrap_servers, "none", False) == []
        registration = cluster.partition(TOPIC, 0)
        assert registration is not None
        assert len(registration.replicas) == 3


async def test_a_cluster_is_described_with_its_brokers_leaders_and_replicas() -> None:
    def look(bootstrap_servers: str) -> None:
        create_topic(bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        metadata = known(admin, PARTITIONS)
        assert sorted(metadata.brokers) == [1, 2, 3]
        partitions = metadata.topics[TOPIC].partitions
        assert sorted(partitions) == [0, 1, 2]
        assert {partition.leader for partition in partitions.values()} == {1, 2, 3}
        assert all(sorted(partition.isrs) == [1, 2, 3] for partition in partitions.values())
        described = admin.describe_cluster().result(PATIENCE_SECONDS)
        assert described.cluster_id == "understudy"
        addresses = [f"{node.host}:{node.port}" for node in described.nodes]
        assert addresses == bootstrap_servers.split(",")

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


async def test_configurations_are_altered_while_the_brokers_run() -> None:
    def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
        return ConfigEntry(name, value, incremental_operation=operation)

    def becomes(admin: AdminClient, asked: ConfigResource, **expected: str) -> None:
        """Describe the resource until the broker has learned of the change."""

        def is_so() -> bool:
            (entries,) = described(admin, [asked])
            return all(
                entries[key.replace("_", ".")].value == each for key, each in expected.items()
            )

        until(is_so, lambda: f"{asked} never became {expected}")

    def look(bootstrap_servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        create_topic(bootstrap_servers, partitions=1)
        changes = [
            entry("retention.ms", "1000", AlterConfigOpType.SET),
            entry("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ]
        topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=changes)
        changes = [entry("num.replica.fetchers", "2", AlterConfigOpType.SET)]
        broker = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=changes)
        for future in admin.incremental_alter_configs([topic, broker]).values():
            future.result(PATIENCE_SECONDS)
        becomes(admin, topic, retention_ms="1000", cleanup_policy="delete,compact")
        becomes(admin, broker, num_replica_fetchers="2")
        (entries,) = described(admin, [broker])
        assert ConfigSource(entries["num.replica.fetchers"].source) == (
            ConfigSource.DYNAMIC_BROKER_CONFIG
        )
        assert not entries["num.replica.fetchers"].is_read_only
        assert entries["node.id"].is_read_only
        changes = [entry("retention.ms", "soon", AlterConfigOpType.SET)]
        wrong = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=changes)
        (future,) = admin.incremental_alter_configs([wrong]).values()
        with pytest.raises(KafkaException) as refused:
            future.result(PATIENCE_SECONDS)
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


async def test_records_are_deleted_and_a_consumer_below_them_is_out_of_range() -> None:
    def look(bootstrap_servers: str) -> None:
        create_topic(bootstrap_servers)
        assert produce(bootstrap_servers, "none", False) == []
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        asked = [
            confluent_kafka.TopicPartition(TOPIC, 0, 7),
            confluent_kafka.TopicPartition(TOPIC, 1, confluent_kafka.OFFSET_END),
        ]
        deleted = {
            partition.partition: future.result(timeout=PATIENCE_SECONDS).low_watermark
            for partition, future in admin.delete_records(asked).items()
        }
        assert deleted == {0: 7, 1: COUNT // PARTITIONS}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 3)])
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str()
        first, _ = consumer.get_watermark_offsets(asked[0], timeout=PATIENCE_SECONDS)
        assert first == 7
        consumer.close()

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


def described(admin: AdminClient, asked: list[ConfigResource]) -> list[dict[str, Any]]:
    """Describe the resources, again while the broker has not learned of the topic yet."""
    found: list[dict[str, Any]] = []

    def is_known() -> bool:
        try:
            futures = admin.describe_configs(asked).values()
            found.extend(each.result(PATIENCE_SECONDS) for each in futures)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    until(is_known, lambda: f"no broker has heard of {asked}")
    return found


async def test_configurations_say_where_their_values_come_from() -> None:
    def look(bootstrap_servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        create_topic(bootstrap_servers, partitions=1, config={"retention.ms": "1000"})
        asked = [
            ConfigResource(ConfigResource.Type.TOPIC, TOPIC),
            ConfigResource(ConfigResource.Type.BROKER, "2"),
        ]
        topic_entries, broker_entries = described(admin, asked)

        def known(entries: Any, key: str) -> tuple[str, ConfigSource]:
            return entries[key].value, ConfigSource(entries[key].source)

        default, static = ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
        assert known(topic_entries, "retention.ms") == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        # The controller writes it down for all brokers, as Kafka 4.1 does with KIP-966.
        for_all = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        assert known(topic_entries, "min.insync.replicas") == ("2", for_all)
        assert known(topic_entries, "cleanup.policy") == ("delete", default)
        assert known(broker_entries, "node.id") == ("2", static)
        assert known(broker_entries, "replica.lag.time.max.ms") == ("30000", default)
        synonyms = topic_entries["cleanup.policy"].synonyms
        assert {name: each.value for name, each in synonyms.items()} == {
            "log.cleanup.policy": "delete"
        }
        # Kafka's default stands at log.retention.hours, which is no synonym of a topic's key.
        synonyms = topic_entries["retention.ms"].synonyms
        assert {name: each.value for name, each in synonyms.items()} == {"retention.ms": "1000"}

    async with cluster_for_clients(min_insync_replicas="2") as cluster:
        await in_thread(look, cluster.bootstrap_servers)


def refusal(admin: AdminClient, topic: NewTopic) -> str:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([topic])[topic.topic].result(PATIENCE_SECONDS)
    return str(refused.value.args[0].name())


async def test_a_topic_that_cannot_be_made_is_refused_with_kafkas_error() -> None:
    def look(bootstrap_servers: str) -> None:
        create_topic(bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        assert refusal(admin, NewTopic(TOPIC, 1, 1)) == "TOPIC_ALREADY_EXISTS"
        assert refusal(admin, NewTopic("t", 1, 4)) == "INVALID_REPLICATION_FACTOR"
        assert refusal(admin, NewTopic("t", 0, 1)) == "INVALID_PARTITIONS"
        assert refusal(admin, NewTopic("a/b", 1, 1)) == "TOPIC_EXCEPTION"
        wrong = NewTopic("t", 1, 1, config={"no.such.key": "1"})
        assert refusal(admin, wrong) == "INVALID_CONFIG"
        asked = admin.create_topics([NewTopic("t", 1, 1), NewTopic("t", 2, 1)])
        with pytest.raises(KafkaException, match="INVALID_REQUEST"):
            asked["t"].result(PATIENCE_SECONDS)
        with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
            admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(PATIENCE_SECONDS)

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


def produced(bootstrap_servers: str, acks: str) -> tuple[str | None, int | None]:
    """The error and the offset of one record that is not tried again."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "acks": acks, "retries": 0}
    )
    known: list[tuple[str | None, int | None]] = []

    def delivered(error: Any, message: confluent_kafka.Message) -> None:
        known.append((None if error is None else error.name(), message.offset()))

    producer.produce(TOPIC, partition=0, value=acks.encode(), on_delivery=delivered)
    assert producer.flush(PATIENCE_SECONDS) == 0
    (outcome,) = known
    return outcome


async def test_acks_all_needs_min_insync_replicas_and_the_others_do_not() -> None:
    quick = {"broker_heartbeat_interval_ms": "200", "broker_session_timeout_ms": "1500"}
    async with cluster_for_clients(min_insync_replicas="2", **quick) as cluster:
        servers = cluster.bootstrap_servers
        await in_thread(create_topic, servers)
        # What is sent is not tried again: every broker has to have heard of the topic.
        await cluster.until(lambda: knowing(cluster) == 3, what="every broker has the topic")
        assert await in_thread(produced, servers, "all") == (None, 0)
        leader = cluster.leader(TOPIC, 0)
        for follower in {1, 2, 3} - {leader}:
            await cluster.kill_broker(follower)

        def alone() -> bool:
            partition = cluster.partition(TOPIC, 0)
            return partition is not None and partition.isr == (leader,)

        await cluster.until(alone, what="the leader is the only one in sync")
        error, _ = await in_thread(produced, servers, "all")
        assert error == "NOT_ENOUGH_REPLICAS"
        assert (await in_thread(produced, servers, "1")) == (None, 1)
        assert (await in_thread(produced, servers, "0"))[0] is None
        await cluster.until(lambda: ends(cluster) == [3], what="acks=0 has arrived")


def knowing(cluster: Cluster) -> int:
    """Return how many brokers have partition 0."""
    partition = TopicPartition(TOPIC, 0)
    return sum(
        partition in each.replica_manager.hosted.describe() for each in cluster.brokers.values()
    )


def ends(cluster: Cluster) -> list[int]:
    """The log end offsets of partition 0 on the brokers that run."""
    return [
        broker.replica_manager.hosted.describe()[TopicPartition(TOPIC, 0)].log_end_offset
        for broker in cluster.brokers.values()
    ]


async def test_a_big_message_goes_through_where_the_topic_allows_it_and_only_there() -> None:
    big = 5_000_000

    def look(bootstrap_servers: str) -> None:
        create_topic(bootstrap_servers, "big", 1, config={"max.message.bytes": str(2 * big)})
        create_topic(bootstrap_servers, "small", 1)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap_servers, "message.max.bytes": 2 * big, "acks": "all"}
        )
        errors: dict[str | None, str | None] = {}

        def delivered(error: Any, message: confluent_kafka.Message) -> None:
            errors[message.topic()] = None if error is None else error.name()

        for topic in ("big", "small"):
            producer.produce(topic, bytes(big), on_delivery=delivered)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert errors == {"big": None, "small": "MSG_SIZE_TOO_LARGE"}
        # Larger than replica.fetch.max.bytes and fetch.message.max.bytes: it goes alone.
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition("big", 0, 0)])
        (message,) = consumer.consume(1, timeout=PATIENCE_SECONDS)
        assert message.value() == bytes(big)
        consumer.close()

    async with cluster_for_clients() as cluster:
        await in_thread(look, cluster.bootstrap_servers)


async def test_the_preferred_leader_is_elected_on_request() -> None:
    def elect(bootstrap_servers: str, preferred: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})

        def asked() -> Any:
            partition = confluent_kafka.TopicPartition(TOPIC, 0)
            found = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [partition])
            return found.result(PATIENCE_SECONDS)[partition]

        assert asked() is None
        until(
            lambda: known(admin, 1).topics[TOPIC].partitions[0].leader == preferred,
            lambda: f"{preferred} never led",
        )
        assert asked().code() == KafkaError.ELECTION_NOT_NEEDED

    async with cluster_for_clients() as cluster:
        await in_thread(lambda: create_topic(cluster.bootstrap_servers, partitions=1))
        registration = cluster.partition(TOPIC, 0)
        assert registration is not None
        preferred = registration.replicas[0]
        await cluster.stop_broker(preferred)
        await cluster.start_broker(preferred)
        await cluster.until(lambda: len(cluster.image.topics[TOPIC].partitions[0].isr) == 3)
        assert cluster.leader(TOPIC, 0) != preferred
        await in_thread(elect, cluster.bootstrap_servers, preferred)
