"""kafka-python."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import kafka
import kafka.errors
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests.interop.card.features import CODECS, LONG_AGO, SECONDS, SENT
from tests.interop.card.secured import STAY_SECONDS, Entrance
from tests.interop.card.waiting import heard, now_and_then, until

PREFERRED = 0
VERSION = f"kafka-python {kafka.__version__}"


@contextmanager
def producer_of(servers: str, **config: Any) -> Iterator[kafka.KafkaProducer]:
    with closing(kafka.KafkaProducer(bootstrap_servers=servers, acks="all", **config)) as producer:
        yield producer


def consumer_of(servers: str, group: str | None, **config: Any) -> kafka.KafkaConsumer:
    return kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **config},
    )


def send(servers: str, topic: str, *values: bytes, **config: Any) -> None:
    with producer_of(servers, **config) as producer:
        send_all(producer, topic, *values)


def send_all(producer: kafka.KafkaProducer, topic: str, *values: bytes) -> None:
    sent = [producer.send(topic, value, partition=0) for value in values]
    for each in sent:
        each.get(SECONDS)


def take(consumer: kafka.KafkaConsumer, count: int) -> list[Any]:
    read: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(read) < count:
        assert time.monotonic() < deadline, f"{len(read)} of {count} records came"
        for records in consumer.poll(1500, max_records=count - len(read)).values():
            read += records
    return read


def read_all(servers: str, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = consumer_of(servers, None, **config)
    consumer.assign([kafka.TopicPartition(topic, partition) for partition in range(2)])
    read = take(consumer, count)
    consumer.close()
    return read


def values(records: list[Any]) -> list[bytes | None]:
    return [each.value for each in records]


def produce_and_consume(servers: str, topic: str) -> None:
    send(servers, topic, *SENT)
    assert values(read_all(servers, topic, len(SENT))) == SENT


def compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        send(servers, topic, *SENT * 10, compression_type=codec, linger_ms=50)
    assert values(read_all(servers, topic, len(SENT) * 40)) == SENT * 40


def idempotence(servers: str, topic: str) -> None:
    send(servers, topic, *SENT, enable_idempotence=True)
    assert values(read_all(servers, topic, len(SENT))) == SENT


def headers_and_nulls(servers: str, topic: str) -> None:
    with producer_of(servers) as producer:
        producer.send(topic, None, b"key", headers=[("a", b"1"), ("a", b"")]).get(SECONDS)
        producer.send(topic, b"value", None).get(SECONDS)
    read = {each.key: each for each in read_all(servers, topic, 2)}
    assert read[b"key"].value is None
    assert list(read[b"key"].headers) == [("a", b"1"), ("a", b"")]
    assert read[None].value == b"value"


def offsets_by_time(servers: str, topic: str) -> None:
    with producer_of(servers) as producer:
        for number in range(10):
            producer.send(topic, b"x", partition=0, timestamp_ms=LONG_AGO + number).get(SECONDS)
    partition = kafka.TopicPartition(topic, 0)
    with closing(consumer_of(servers, None)) as consumer:
        found = consumer.offsets_for_times({partition: LONG_AGO + 4})
    assert found[partition].offset == 4


def group_goes_on(servers: str, topic: str) -> None:
    send(servers, topic, *SENT)
    for part in (SENT[:5], SENT[5:]):
        consumer = consumer_of(servers, topic)
        consumer.subscribe([topic])
        assert values(take(consumer, 5)) == part
        consumer.commit()
        consumer.close()


def sizes(*consumers: kafka.KafkaConsumer) -> list[int]:
    for each in consumers:
        each.poll(1500)
    return [len(each.assignment()) for each in consumers]


def joined(consumer: kafka.KafkaConsumer) -> None:
    until(lambda: sizes(consumer), lambda found: found == [2])


def share(servers: str, topic: str, **config: Any) -> None:
    quick = {"heartbeat_interval_ms": 300, "session_timeout_ms": 6000, **config}
    one, two = (consumer_of(servers, topic, **quick) for _ in range(2))
    for each in (one, two):
        each.subscribe([topic])
    until(lambda: sizes(one, two), lambda found: found == [1, 1])
    two.close()
    until(lambda: sizes(one), lambda found: found == [2])
    one.close()


def group_shares(servers: str, topic: str) -> None:
    share(servers, topic)


def cooperative(servers: str, topic: str) -> None:
    share(servers, topic, partition_assignment_strategy=[CooperativeStickyAssignor])


def static_member(servers: str, topic: str) -> None:
    """Close the member without leaving, and have it come back under its name."""
    with admin_of(servers) as admin:
        for _ in range(2):
            consumer = consumer_of(servers, topic, group_instance_id="one")
            consumer.subscribe([topic])
            joined(consumer)
            (group,) = admin.describe_groups([topic]).values()
            assert [each["group_instance_id"] for each in group["members"]] == ["one"]
            consumer.close()


def transactions(servers: str, topic: str) -> None:
    with producer_of(servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, end in ((b"aborted", "abort"), (b"committed", "commit")):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).get(SECONDS)
            getattr(producer, f"{end}_transaction")()
    read = read_all(servers, topic, 1, isolation_level="read_committed")
    assert values(read) == [b"committed"]


def offsets_in_transaction(servers: str, topic: str) -> None:
    send(servers, topic, *SENT)
    partition = kafka.TopicPartition(topic, 0)
    with producer_of(servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: kafka.OffsetAndMetadata(5, "", -1)}, topic)
        producer.commit_transaction()
    with closing(consumer_of(servers, topic)) as consumer:
        # It does not wait for the transaction's marker, which comes after the answer.
        until(lambda: consumer.committed(partition), lambda found: found == 5)


# Admin.


@contextmanager
def admin_of(servers: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        yield admin


def described(admin: KafkaAdminClient, topic: str) -> list[dict[str, Any]]:
    (found,) = admin.describe_topic_partitions([topic])["topics"]
    partitions: list[dict[str, Any]] = found["partitions"]
    return partitions


def topics(servers: str, topic: str) -> None:
    name = f"{topic}-made"
    with admin_of(servers) as admin:
        admin.create_topics([NewTopic(name, 1, 3)])
        until(lambda: described(admin, name), lambda found: len(found) == 1)
        admin.create_partitions({name: 3})
        until(lambda: described(admin, name), lambda found: len(found) == 3)
        admin.delete_topics([name])
        until(admin.list_topics, lambda found: name not in found)


def configs(servers: str, topic: str) -> None:
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "5000"})
    question = ConfigResource(ConfigResourceType.TOPIC, topic)
    with admin_of(servers) as admin:
        admin.alter_configs([asked], incremental=True)
        until(lambda: str(admin.describe_configs([question])), lambda found: "5000" in found)


def delete_records(servers: str, topic: str) -> None:
    send(servers, topic, *SENT)
    partition = kafka.TopicPartition(topic, 0)
    with admin_of(servers) as admin:
        deleted = admin.delete_records({partition: 4}, timeout_ms=10_000)
    assert deleted[partition]["low_watermark"] == 4


def groups(servers: str, topic: str) -> None:
    group_goes_on(servers, topic)
    partition = kafka.TopicPartition(topic, 0)
    with admin_of(servers) as admin:
        assert "Empty" in str(admin.describe_groups([topic]))
        admin.alter_group_offsets(topic, {partition: kafka.OffsetAndMetadata(3, "", -1)})
        assert "offset=3" in str(admin.list_group_offsets(topic))
        admin.delete_groups([topic])


def elections(servers: str, topic: str) -> None:
    """Nobody has to move, which it takes for done."""
    with admin_of(servers) as admin:
        admin.elect_leaders(PREFERRED, {topic: [0]})


def reassignments(servers: str, topic: str) -> None:
    with admin_of(servers) as admin:
        admin.alter_partition_reassignments({kafka.TopicPartition(topic, 0): [2, 3]})
        until(lambda: described(admin, topic)[0]["replica_nodes"], lambda found: found == [2, 3])
        until(admin.list_partition_reassignments, lambda found: not found)


# Ways in.


def reader_by(way: Entrance, topic: str) -> kafka.KafkaConsumer:
    reading = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return kafka.KafkaConsumer(topic, group_id=topic, **way.as_kafka_python(), **reading)


@contextmanager
def producer_by(way: Entrance) -> Iterator[kafka.KafkaProducer]:
    with closing(kafka.KafkaProducer(**way.as_kafka_python(), acks="all")) as producer:
        yield producer


def enter(way: Entrance, topic: str) -> None:
    with producer_by(way) as producer:
        send_all(producer, topic, *SENT)
    with closing(reader_by(way, topic)) as consumer:
        assert values(take(consumer, len(SENT))) == SENT


def turned_away(way: Entrance, topic: str) -> None:
    """Show that a wrong password is in the client's log; the client itself goes on trying.

    A client that finds the answer and the end of its connection together drops the answer.
    """
    with heard("kafka") as said:

        def tried() -> bool:
            with pytest.raises(kafka.errors.KafkaTimeoutError):
                KafkaAdminClient(**way.as_kafka_python(), bootstrap_timeout_ms=2000)
            return any("SaslAuthenticationFailed" in each for each in said)

        until(tried, bool)


def refused(way: Entrance, topic: str) -> None:
    not_the_topic = pytest.raises(kafka.errors.TopicAuthorizationFailedError)
    with producer_by(way) as producer, not_the_topic:
        send_all(producer, topic, b"x")
    not_the_group = pytest.raises(kafka.errors.GroupAuthorizationFailedError)
    with closing(reader_by(way, topic)) as consumer, not_the_group:
        take(consumer, 1)


def stay(way: Entrance, topic: str) -> None:
    with producer_by(way) as producer:
        for _ in now_and_then(STAY_SECONDS):
            send_all(producer, topic, b"x")
