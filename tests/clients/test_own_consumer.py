"""Our consumer in one group with stock clients: they share partitions, and each other's commits."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import kafka
import pytest
import trio

from replication.client.admin import NewTopic
from replication.client.consumer import Consumer
from tests.clients.sample import PARTITIONS, TOPIC, cluster_for_clients, in_thread
from tests.deep import one_in

pytestmark = pytest.mark.client

GROUP = "mixed"
COUNT = 60


def poll_confluent(bootstrap_servers: str, stop: threading.Event, read: set[bytes]) -> int:
    """Poll until `stop` is set; return how many partitions it had at most."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([TOPIC])
    most = 0
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.add(message.value() or b"")
        most = max(most, len(consumer.assignment()))
    consumer.close()
    return most


def poll_kafka_python(bootstrap_servers: str, stop: threading.Event, read: set[bytes]) -> int:
    consumer = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
        session_timeout_ms=10_000,
    )
    most = 0
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            read.update(record.value for record in records)
        most = max(most, len(consumer.assignment()))
    consumer.close()
    return most


@contextmanager
def telling(stop: threading.Event) -> Iterator[None]:
    """Whatever becomes of the block: a thread that nobody tells is waited for without an end."""
    try:
        yield
    finally:
        stop.set()


@pytest.mark.parametrize("poll", one_in(2, [poll_confluent, poll_kafka_python]))
async def test_ours_and_theirs_share_a_group(
    poll: Callable[[str, threading.Event, set[bytes]], int],
) -> None:
    async with cluster_for_clients(group_initial_rebalance_delay_ms="500") as cluster:
        servers = cluster.bootstrap_servers
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS)])
        ours: set[bytes] = set()
        theirs: set[bytes] = set()
        stop = threading.Event()
        most: list[int] = []

        async def they_poll() -> None:
            most.append(await in_thread(poll, servers, stop, theirs))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(they_poll)
            consumer = Consumer(
                TOPIC,
                bootstrap_servers=servers,
                group_id=GROUP,
                auto_offset_reset="earliest",
                partition_assignment_strategy="range",
                heartbeat_interval_ms=500,
                session_timeout_ms=10_000,
            )
            with telling(stop):
                async with consumer, cluster.producer() as producer:
                    deadline = time.monotonic() + 60
                    sent = 0
                    while not (theirs and ours and sent >= COUNT and len(ours | theirs) == sent):
                        assert time.monotonic() < deadline, (len(ours), len(theirs), sent)
                        if sent < COUNT or not (ours and theirs):
                            await producer.send(TOPIC, b"%d" % sent, partition=sent % PARTITIONS)
                            sent += 1
                        for record in await consumer.poll(timeout_ms=100):
                            ours.add(record.value)
                    assert 0 < len(consumer.assignment()) < PARTITIONS
                    stop.set()
        assert len(ours | theirs) == sent
        # What both have committed is where anybody goes on.
        async with cluster.consumer(group_id=GROUP) as after:
            committed = [await after.committed((TOPIC, each)) for each in range(PARTITIONS)]
            ends = await after.end_offsets([(TOPIC, each) for each in range(PARTITIONS)])
        assert [each.offset for each in committed if each is not None] == list(ends.values())
