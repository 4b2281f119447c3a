"""librdkafka, through confluent-kafka."""

import time
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaException,
    Producer,
    TopicPartition,
    libversion,
    version,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.interop.card.features import CODECS, LONG_AGO, SECONDS, SENT
from tests.interop.card.secured import STAY_SECONDS, Entrance
from tests.interop.card.waiting import now_and_then, until

VERSION = f"librdkafka {libversion()[0]} (confluent-kafka {version()})"


def producer_of(servers: str, **config: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": servers, "acks": "all", **named})


def consumer_of(servers: str, group: str, **config: Any) -> Consumer:
    named = {key.replace("_", "."): value for key, value in config.items()}
    reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": servers, "group.id": group, **reading, **named})


def send(producer: Producer, topic: str, *values: bytes | None) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0


def take(consumer: Consumer, count: int) -> list[Any]:
    """`count` messages; what nobody sent raises."""
    read: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(read) < count:
        assert time.monotonic() < deadline, f"{len(read)} of {count} records came"
        for message in consumer.consume(count - len(read), timeout=0.5):
            if message.error() is not None:
                raise KafkaException(message.error())
            read.append(message)
    return read


def read_all(servers: str, topic: str, count: int, **config: Any) -> list[Any]:
    consumer = consumer_of(servers, f"{topic}-all", **config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    read = take(consumer, count)
    consumer.close()
    return read


def values(messages: list[Any]) -> list[bytes | None]:
    return [each.value() for each in messages]


def produce_and_consume(servers: str, topic: str) -> None:
    send(producer_of(servers), topic, *SENT)
    assert values(read_all(servers, topic, len(SENT))) == SENT


def compression(servers: str, topic: str) -> None:
    for codec in CODECS:
        send(producer_of(servers, compression_type=codec, linger_ms=50), topic, *SENT * 10)
    assert values(read_all(servers, topic, len(SENT) * 40)) == SENT * 40


def idempotence(servers: str, topic: str) -> None:
    send(producer_of(servers, enable_idempotence=True), topic, *SENT)
    assert values(read_all(servers, topic, len(SENT))) == SENT


def headers_and_nulls(servers: str, topic: str) -> None:
    producer = producer_of(servers)
    producer.produce(topic, None, b"key", headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, b"value", None)
    assert producer.flush(SECONDS) == 0
    read = {each.key(): each for each in read_all(servers, topic, 2)}
    assert read[b"key"].value() is None
    assert read[b"key"].headers() == [("a", b"1"), ("a", None)]
    assert read[None].value() == b"value"


def offsets_by_time(servers: str, topic: str) -> None:
    producer = producer_of(servers)
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=LONG_AGO + number)
    assert producer.flush(SECONDS) == 0
    consumer = consumer_of(servers, topic)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, LONG_AGO + 4)], SECONDS)
    assert found.offset == 4
    consumer.close()


def group_goes_on(servers: str, topic: str) -> None:
    send(producer_of(servers), topic, *SENT)
    for part in (SENT[:5], SENT[5:]):
        consumer = consumer_of(servers, topic)
        consumer.subscribe([topic])
        read = take(consumer, 5)
        assert values(read) == part
        consumer.commit(message=read[-1], asynchronous=False)
        consumer.close()


def share(servers: str, topic: str, **config: Any) -> None:
    """Two members have a partition each; who stays has both."""
    quick = {"heartbeat_interval_ms": 300, "session_timeout_ms": 6000, **config}
    one, two = (consumer_of(servers, topic, **quick) for _ in range(2))
    for each in (one, two):
        each.subscribe([topic])
    until(lambda: sizes(one, two), lambda found: found == [1, 1])
    two.close()
    until(lambda: sizes(one), lambda found: found == [2])
    one.close()


def sizes(*consumers: Consumer) -> list[int]:
    for each in consumers:
        if (message := each.poll(0.1)) is not None and message.error() is not None:
            raise KafkaException(message.error())
    return [len(each.assignment()) for each in consumers]


def group_shares(servers: str, topic: str) -> None:
    share(servers, topic)


def cooperative(servers: str, topic: str) -> None:
    share(servers, topic, partition_assignment_strategy="cooperative-sticky")


def new_group_protocol(servers: str, topic: str) -> None:
    send(producer_of(servers), topic, *SENT)
    consumer = consumer_of(servers, topic, group_protocol="consumer")
    consumer.subscribe([topic])
    assert values(take(consumer, len(SENT))) == SENT
    consumer.close()


def static_member(servers: str, topic: str) -> None:
    """Close the member without leaving, and have it come back under its name."""
    for _ in range(2):
        consumer = consumer_of(servers, topic, group_instance_id="one")
        consumer.subscribe([topic])
        joined(consumer)
        admin = admin_of(servers)  # what is asked is forgotten with it
        (group,) = done(admin.describe_consumer_groups([topic]))
        assert [each.group_instance_id for each in group.members] == ["one"]
        consumer.close()


def joined(consumer: Consumer) -> None:
    until(lambda: sizes(consumer), lambda found: found == [2])


def transactions(servers: str, topic: str) -> None:
    producer = producer_of(servers, transactional_id=topic)
    producer.init_transactions(SECONDS)
    for value, end in ((b"aborted", "abort"), (b"committed", "commit")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        getattr(producer, f"{end}_transaction")(SECONDS)
    read = read_all(servers, topic, 1, isolation_level="read_committed")
    assert values(read) == [b"committed"]


def offsets_in_transaction(servers: str, topic: str) -> None:
    send(producer_of(servers), topic, *SENT)
    producer = producer_of(servers, transactional_id=topic)
    producer.init_transactions(SECONDS)
    consumer = consumer_of(servers, topic)
    consumer.subscribe([topic])
    take(consumer, 5)
    producer.begin_transaction()
    place = [TopicPartition(topic, 0, 5)]
    producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], SECONDS)
    assert committed.offset == 5
    consumer.close()


# Admin.


def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def done(futures: dict[Any, Any]) -> list[Any]:
    return [each.result(SECONDS) for each in futures.values()]


def topics(servers: str, topic: str) -> None:
    admin, name = admin_of(servers), f"{topic}-made"

    def partitions() -> int:
        found = admin.list_topics(name, SECONDS).topics[name]
        return len(found.partitions)

    done(admin.create_topics([NewTopic(name, 1, 3)]))
    until(partitions, lambda found: found == 1)
    done(admin.create_partitions([NewPartitions(name, 3)]))
    until(partitions, lambda found: found == 3)
    done(admin.delete_topics([name]))
    until(lambda: admin.list_topics(timeout=SECONDS).topics, lambda found: name not in found)


def configs(servers: str, topic: str) -> None:
    admin = admin_of(servers)
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    done(admin.incremental_alter_configs([asked]))

    def retention() -> str:
        (found,) = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        value: str = found["retention.ms"].value
        return value

    until(retention, lambda found: found == "5000")


def delete_records(servers: str, topic: str) -> None:
    send(producer_of(servers), topic, *SENT)
    admin = admin_of(servers)
    (deleted,) = done(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4


def groups(servers: str, topic: str) -> None:
    group_goes_on(servers, topic)
    admin = admin_of(servers)
    (group,) = done(admin.describe_consumer_groups([topic]))
    assert group.state.name == "EMPTY"
    listed_groups = admin.list_consumer_groups().result(SECONDS).valid
    assert topic in {each.group_id for each in listed_groups}
    put = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])
    done(admin.alter_consumer_group_offsets([put]))
    (listed,) = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)]))
    assert [each.offset for each in listed.topic_partitions] == [3]
    done(admin.delete_consumer_groups([topic]))


def elections(servers: str, topic: str) -> None:
    """Elect a leader that leads already: librdkafka reports that it is not needed."""
    admin = admin_of(servers)
    found = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(SECONDS)
    for error in found.values():
        assert error is None or error.name() == "ELECTION_NOT_NEEDED", error


# Ways in.


def enter(way: Entrance, topic: str) -> None:
    words = way.as_librdkafka()
    send(producer_of(way.servers, **words), topic, *SENT)
    consumer = consumer_of(way.servers, topic, **words)
    consumer.subscribe([topic])
    assert values(take(consumer, len(SENT))) == SENT
    consumer.close()


def turned_away(way: Entrance, topic: str) -> None:
    said: list[str] = []
    words = {**way.as_librdkafka(), "bootstrap.servers": way.servers}
    producer = Producer({**words, "error_cb": lambda error: said.append(error.name())})

    def heard() -> list[str]:
        producer.poll(0.1)
        return said

    until(heard, lambda found: "_AUTHENTICATION" in found)


def refused(way: Entrance, topic: str) -> None:
    words = way.as_librdkafka()
    said: list[str] = []
    producer = producer_of(way.servers, **words)
    producer.produce(topic, b"x", on_delivery=lambda error, _: said.append(str(error)))
    producer.flush(SECONDS)
    assert "TOPIC_AUTHORIZATION_FAILED" in said.pop()
    consumer = consumer_of(way.servers, topic, **words)
    consumer.subscribe([topic])
    try:
        take(consumer, 1)
    except KafkaException as error:
        said.append(error.args[0].name())
    assert said == ["GROUP_AUTHORIZATION_FAILED"]
    consumer.close()


def stay(way: Entrance, topic: str) -> None:
    producer = producer_of(way.servers, **way.as_librdkafka())
    for _ in now_and_then(STAY_SECONDS):
        send(producer, topic, b"x")
