import json
from collections import Counter

import pytest
from bank import Booking, is_fenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


@pytest.fixture
def servers(kafka_cluster):
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def bookings(kafka_cluster, kafka_topic):
    name = f"{kafka_topic}-bookings"
    kafka_cluster.create_topic(name)
    yield name
    kafka_cluster.delete_topic(name)


@pytest.fixture
def transfer(servers, kafka_topic):
    producer = Producer({"bootstrap.servers": servers})

    def transfer(*transfers):
        for source, target, amount in transfers:
            value = {"from": source, "to": target, "amount": amount}
            producer.produce(kafka_topic, json.dumps(value))
        assert producer.flush(60) == 0

    return transfer


def balances(servers, topic, count):
    """From so many bookings that were committed."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "audit", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = Counter()
    for message in consumer.consume(count, timeout=60):
        found[message.key().decode()] += int(message.value())
    assert consumer.consume(1, timeout=0.5) == []
    consumer.close()
    return dict(found)


def test_a_transfer_is_two_bookings(servers, kafka_topic, bookings, transfer):
    transfer(("ada", "bob", 5), ("bob", "cleo", 2))
    booking = Booking(servers, kafka_topic, bookings, name="plain")
    booking.book(2)
    booking.close()
    assert balances(servers, bookings, 4) == {"ada": -5, "bob": 3, "cleo": 2}


def test_what_died_halfway_is_done_again_whole(servers, kafka_topic, bookings, transfer):
    transfer(("ada", "bob", 5), ("bob", "cleo", 2))
    first = Booking(servers, kafka_topic, bookings, name="halfway")
    with pytest.raises(ConnectionAbortedError):
        first.book(2, fail_at=1)
    first.close()
    second = Booking(servers, kafka_topic, bookings, name="halfway")
    second.book(1)
    second.close()
    assert balances(servers, bookings, 4) == {"ada": -5, "bob": 3, "cleo": 2}


def test_a_zombie_is_fenced(servers, kafka_topic, bookings, transfer):
    zombie = Booking(servers, kafka_topic, bookings, name="zombie")
    transfer(("ada", "bob", 5))
    zombie.book(1)
    successor = Booking(servers, kafka_topic, bookings, name="zombie")
    transfer(("bob", "cleo", 2))
    with pytest.raises(KafkaException) as refused:
        zombie.book(1)
    assert is_fenced(refused.value)
    zombie.close()
    successor.book(1)
    successor.close()
    assert balances(servers, bookings, 4) == {"ada": -5, "bob": 3, "cleo": 2}
