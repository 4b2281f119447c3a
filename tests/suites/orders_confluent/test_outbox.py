import json

import pytest
from confluent_kafka import Consumer, TopicPartition
from outbox import Outbox


@pytest.fixture
def outbox(kafka_cluster, kafka_topic):
    return Outbox(kafka_cluster.bootstrap_servers, kafka_topic)


@pytest.fixture
def read(kafka_cluster, kafka_topic):
    """The ids of so many orders, in the order of the log."""

    def read(count):
        consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "r"})
        consumer.assign([TopicPartition(kafka_topic, 0, 0)])
        messages = consumer.consume(count, timeout=60)
        consumer.close()
        return [json.loads(each.value())["id"] for each in messages]

    return read


def orders(numbers):
    return [{"id": number, "total": number * 10} for number in numbers]


def test_every_order_knows_its_offset(outbox, read):
    outbox.send(orders(range(3)))
    assert outbox.sent == {"0": 0, "1": 1, "2": 2}
    assert read(3) == [0, 1, 2]


def test_a_leader_that_dies_loses_no_order(outbox, read, kafka_cluster, kafka_topic):
    outbox.send(orders(range(50)))
    kafka_cluster.kill_leader(kafka_topic)
    outbox.send(orders(range(50, 100)))
    assert not outbox.failed
    assert read(100) == list(range(100))


@pytest.mark.kafka(brokers=1, config={"message.max.bytes": 1000})
def test_an_order_too_large_is_reported(outbox):
    outbox.send([{"id": 1, "note": "x" * 5000}])
    assert outbox.failed["1"].name() == "MSG_SIZE_TOO_LARGE"
