"""Our clients while brokers of Apache Kafka die, and logs are cut (KIP-320)."""

import pytest
import trio

from replication.client.admin import NewTopic
from replication.client.consumer.errors import LogTruncationError
from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop.kafka import Kafka
from tests.interop.own_clients import (
    SECONDS,
    admin_of,
    asked_until,
    consumer_of,
    elect_uncleanly,
    leaders_of,
    producer_of,
    read_all,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


async def test_what_was_acked_is_there_once_although_the_leader_died(three: Kafka) -> None:
    async with admin_of(three) as admin:
        configs = {"min.insync.replicas": "2"}
        new = NewTopic(name="survives", partitions=1, replication_factor=3, configs=configs)
        await admin.create_topics([new])
    async with producer_of(three, linger_ms=5) as producer, consumer_of(three) as consumer:
        consumer.assign([("survives", 0)])
        for number in range(100):
            await producer.send("survives", b"%d" % number)
        async with admin_of(three) as admin:
            (leader,) = await leaders_of(admin, "survives")
        await in_thread(three.kill, leader)
        with trio.fail_after(SECONDS):
            for number in range(100, 200):
                await producer.send("survives", b"%d" % number)
            read: list[bytes] = []
            while len(read) < 200:
                read += [each.value for each in await consumer.poll(timeout_ms=500)]
        assert read == [b"%d" % each for each in range(200)]
    await in_thread(three.start, leader)


async def test_a_consumer_notices_that_what_it_read_was_cut_off(three: Kafka) -> None:
    """b1 leads and b2 follows; b1 goes on alone, dies, and b2 leads, uncleanly."""
    partition = TopicPartition("cut-off", 0)
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    async with admin_of(three) as admin:
        new = NewTopic(name="cut-off", replicas=((1, 2),), configs=configs)
        await admin.create_topics([new])
    async with producer_of(three) as producer:
        for _ in range(5):
            await producer.send("cut-off", b"kept")
        await in_thread(three.kill, 2)
        with trio.fail_after(SECONDS):
            for _ in range(5):
                await producer.send("cut-off", b"lost")
    async with consumer_of(three, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        read: list[bytes] = []
        with trio.fail_after(SECONDS):
            while len(read) < 10:
                read += [each.value for each in await consumer.poll(timeout_ms=500)]
        await in_thread(three.kill, 1)
        await in_thread(three.start, 2)
        async with admin_of(three) as admin:
            await elect_uncleanly(admin, partition, 2)
        with pytest.raises(LogTruncationError) as caught:
            await consumer.poll(timeout_ms=SECONDS * 1000)
        assert caught.value.divergent_offsets[partition].offset == 5
    await in_thread(three.start, 1)
    kept = await read_all(three, "cut-off", 5)
    assert {each.value for each in kept} == {b"kept"}


async def test_replicas_are_moved_and_preferred_leaders_elected(three: Kafka) -> None:
    partition = TopicPartition("moved", 0)
    async with admin_of(three) as admin, producer_of(three) as producer:
        await admin.create_topics([NewTopic(name="moved", replicas=((1, 2),))])
        for _ in range(10):
            await producer.send("moved", b"x" * 1000)
        await admin.alter_partition_reassignments({partition: (3, 1)})
        await asked_until(admin.list_partition_reassignments, lambda moving: not moving)
        await admin.elect_leaders([partition])
        await asked_until(lambda: leaders_of(admin, "moved"), lambda leaders: leaders == [3])
        (described,) = (await admin.describe_topics(["moved"]))["moved"].partitions
        assert (described.replicas, sorted(described.isr)) == ((3, 1), [1, 3])
    assert len(await read_all(three, "moved", 10)) == 10
