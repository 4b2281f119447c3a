"""Committed records that an unclean election loses after a group has read them, by real processes."""

import time
from pathlib import Path

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from replication.broker.nodes import HOST
from replication.cli.demo_run import CONFIG
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from replication.wire.metadata import MetadataResponsePartition

TOPIC = "orders"
PATIENCE_SECONDS = 120


@attrs.frozen
class UncleanRun:
    log_dirs: tuple[str, ...]
    victim: int


def run(data_dir: Path) -> UncleanRun:
    """Ten records, of which the follower has five; a group reads all, and the leader dies."""
    with IsolatedCluster(data_dir, 3, config=CONFIG) as cluster:
        cluster.wait_until_ready(PATIENCE_SECONDS)
        _create(cluster)
        led = _wait(cluster, lambda found: found.leader_id > 0 and len(found.isr_nodes) == 2)
        victim = led.leader_id
        (follower,) = set(led.replica_nodes) - {victim}
        _produce(cluster, 5, "all")
        # While every broker is there, which the topic of commits needs when it is made.
        _read_and_commit(cluster, 5)
        cluster.kill(follower)
        _wait(cluster, lambda found: list(found.isr_nodes) == [victim])
        _produce(cluster, 5, "1")
        _read_and_commit(cluster, 10)
        cluster.kill(victim)
        cluster.start(follower)
        _wait(cluster, lambda found: found.leader_id == follower)
        _produce(cluster, 2, "1")
        cluster.start(victim)
        _wait(cluster, lambda found: len(found.isr_nodes) == 2)
        log_dirs = tuple(str(cluster.log_dir(each)) for each in (1, 2, 3))
    return UncleanRun(log_dirs, victim)


def _create(cluster: IsolatedCluster) -> None:
    """Make a topic whose leader may commit alone (KIP-966), and may be elected out of the ISR."""
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=2, config=config)
    admin.create_topics([topic])[TOPIC].result(PATIENCE_SECONDS)


def _produce(cluster: IsolatedCluster, count: int, acks: str) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "log_level": 0}
    )
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0


def _read_and_commit(cluster: IsolatedCluster, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    last = -1
    deadline = time.monotonic() + PATIENCE_SECONDS
    while last + 1 < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            last = message.offset() or 0
    assert last + 1 == count
    consumer.commit(asynchronous=False)
    (at,) = consumer.committed([Position(TOPIC, 0)], PATIENCE_SECONDS)
    assert at.offset == count
    consumer.close()


def _wait(cluster: IsolatedCluster, is_so: object) -> MetadataResponsePartition:
    """Return the topic's partition once it is as it should be."""
    assert callable(is_so)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for port in cluster.ports:
            found = _partition(port)
            if found is not None and is_so(found):
                return found
        time.sleep(0.1)  # real brokers, in processes of their own: asked again, with a bound
    raise AssertionError(f"{TOPIC} is not as it should be")


def _partition(port: int) -> MetadataResponsePartition | None:
    try:
        topics = fetch_metadata(HOST, port).topics
    except OSError:
        return None
    partitions = [p for topic in topics if topic.name == TOPIC for p in topic.partitions]
    return partitions[0] if partitions else None
