"""Our consumer in one group with stock clients: they share partitions, and each other's commits."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from replication.client.consumer import Consumer
from tests.clients.readers import GROUP, Ledger, Read, Reader, confluent, kafka_python
from tests.clients.sample import PARTITIONS, TOPIC, cluster_for_clients, create_topic, in_thread
from tests.deep import one_in

pytestmark = pytest.mark.client

COUNT = 60


@contextmanager
def leaving(reader: Reader) -> Iterator[None]:
    """Have the reader leave, whatever becomes of the block."""
    try:
        yield
    finally:
        reader.leaving.set()


@pytest.mark.parametrize("read", one_in(2, [confluent, kafka_python]))
async def test_ours_and_theirs_share_a_group(read: Read) -> None:
    async with cluster_for_clients(group_initial_rebalance_delay_ms="500") as cluster:
        await in_thread(create_topic, cluster.bootstrap_servers)
        ledger = Ledger()
        theirs = Reader("theirs", cluster.bootstrap_servers, ledger, read).start()
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            partition_assignment_strategy="range",
            heartbeat_interval_ms=500,
            session_timeout_ms=10_000,
        )
        ours: set[str] = set()
        with leaving(theirs):
            async with consumer, cluster.producer() as producer:
                deadline, sent = time.monotonic() + 60, 0
                while not (
                    ours
                    and ledger.values
                    and sent >= COUNT
                    and len(ours | ledger.values.keys()) == sent
                ):
                    assert time.monotonic() < deadline, (len(ours), len(ledger.values), sent)
                    if sent < COUNT or not (ours and ledger.values):
                        await producer.send(TOPIC, b"%d" % sent, partition=sent % PARTITIONS)
                        sent += 1
                    for record in await consumer.poll(timeout_ms=100):
                        ours.add(record.value.decode())
                assert 0 < len(consumer.assignment()) < PARTITIONS
                theirs.leaving.set()
        await in_thread(theirs.leave)
        # What both have committed is where anybody goes on.
        async with cluster.consumer(group_id=GROUP) as after:
            committed = [await after.committed((TOPIC, each)) for each in range(PARTITIONS)]
            ends = await after.end_offsets([(TOPIC, each) for each in range(PARTITIONS)])
        assert [each.offset for each in committed if each is not None] == list(ends.values())
