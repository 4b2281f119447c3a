"""Transactions of stock clients over loopback: copied exactly once, whatever dies meanwhile."""

import time
from collections.abc import Callable

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, NewTopic

from replication.cluster.cluster import Cluster
from tests.clients.sample import cluster_for_clients, in_thread

pytestmark = pytest.mark.client

SOURCE, COPY = "source", "copy"
PARTITIONS = 2
COUNT = 200
SECONDS = 60


def make_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, PARTITIONS, 3) for name in (SOURCE, COPY)]
    for future in admin.create_topics(topics).values():
        future.result(timeout=10)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(COUNT):
        producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def consumer(bootstrap_servers: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )


def copy_all(bootstrap_servers: str, copied: Callable[[int], None]) -> None:
    """Consume, produce and commit in one transaction, again and again (KIP-447)."""
    source = consumer(bootstrap_servers, "copier")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": "copier"}
    )
    producer.init_transactions(SECONDS)
    source.subscribe([SOURCE])
    done, deadline = 0, time.monotonic() + SECONDS
    while done < COUNT:
        assert time.monotonic() < deadline, f"only {done} of {COUNT} after {SECONDS} s"
        messages = [each for each in source.consume(7, timeout=1) if each.error() is None]
        if messages and _copy(producer, source, messages):
            done += len(messages)
            copied(done)
    source.close()


def _copy(
    producer: confluent_kafka.Producer,
    source: confluent_kafka.Consumer,
    messages: list[confluent_kafka.Message],
) -> bool:
    """Whether it was committed; where it was not, the same is consumed again."""
    producer.begin_transaction()
    try:
        for each in messages:
            partition = each.partition()
            assert partition is not None
            producer.produce(COPY, each.value(), partition=partition)
        positions = source.position(source.assignment())
        producer.send_offsets_to_transaction(positions, source.consumer_group_metadata())
        producer.commit_transaction(SECONDS)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(SECONDS)
        for each in reversed(messages):
            topic, partition, offset = each.topic(), each.partition(), each.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            source.seek(confluent_kafka.TopicPartition(topic, partition, offset))
        return False
    return True


def read_copy(bootstrap_servers: str) -> list[list[int]]:
    """By partition, once nothing more has come for a while."""
    reader = consumer(bootstrap_servers, "reader")
    reader.assign([confluent_kafka.TopicPartition(COPY, each, 0) for each in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    quiet = 0
    while quiet < 3:
        messages = [each for each in reader.consume(COUNT, timeout=1) if each.error() is None]
        quiet = 0 if messages else quiet + 1
        for each in messages:
            partition, value = each.partition(), each.value()
            assert partition is not None
            assert isinstance(value, bytes)
            found[partition].append(int(value))
    reader.close()
    return found


async def kill_one_after(cluster: Cluster, copied: trio.Event, broker_id: int) -> None:
    await copied.wait()
    await cluster.kill_broker(broker_id)
    await cluster.start_broker(broker_id)


async def test_a_copy_is_made_exactly_once_while_a_broker_is_killed() -> None:
    async with cluster_for_clients(
        transaction_state_log_num_partitions="3",
        offsets_topic_num_partitions="3",
        broker_session_timeout_ms="3000",
    ) as cluster:
        await in_thread(make_topics, cluster.bootstrap_servers)
        half = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def copied(count: int) -> None:
            if count >= COUNT // 2:
                token.run_sync_soon(half.set)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_one_after, cluster, half, 2)
            await in_thread(copy_all, cluster.bootstrap_servers, copied)
        assert await in_thread(read_copy, cluster.bootstrap_servers) == [
            list(range(each, COUNT, PARTITIONS)) for each in range(PARTITIONS)
        ]
