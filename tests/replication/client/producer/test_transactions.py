"""Transactions against the real brokers of a simulated world: all of it is there, or nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from replication.client.admin import Admin, NewTopic
from replication.client.consumer import Consumer
from replication.client.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
)
from replication.client.producer import Producer
from replication.coordinator.rules import TRANSACTION_STATE_TOPIC
from replication.errors import ConfigError, KafkaError
from scenarios.world.cluster import SimulatedCluster, open_simulated_cluster
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import played

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SMALL = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
}


@attrs.define(eq=False)
class Scene:
    world: World
    cluster: SimulatedCluster
    machines: int = 0

    @property
    def servers(self) -> list[str]:
        return [f"{name}:9092" for name in self.cluster.broker_names]

    def producer(self, transactional_id: str = "tx", **config: Any) -> Producer[bytes, bytes]:
        """Return a producer on a machine of its own."""
        self.machines += 1
        return Producer(
            self.servers,
            seams=self.world.node(f"producer{self.machines}"),
            transactional_id=transactional_id,
            linger_ms=0,
            **config,
        )

    async def read(self, *partitions: TopicPartition, committed: bool = True) -> list[str]:
        """Return the values that can be read now, in order of partitions."""
        self.machines += 1
        consumer = Consumer(
            bootstrap_servers=self.servers,
            seams=self.world.node(f"consumer{self.machines}"),
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        found: dict[TopicPartition, list[str]] = {each: [] for each in partitions}
        async with consumer:
            consumer.assign(partitions)
            empty = 0
            while empty < 3:
                records = await consumer.poll(timeout_ms=700)
                empty = 0 if records else empty + 1
                for record in records:
                    at = TopicPartition(record.topic, record.partition)
                    found[at].append((record.value or b"").decode())
        return [value for each in partitions for value in found[each]]


@asynccontextmanager
async def scene(world: World, **properties: str) -> AsyncIterator[Scene]:
    settings = SMALL | {key.replace("_", "."): value for key, value in properties.items()}
    async with open_simulated_cluster(world, brokers=3, properties=settings) as cluster:
        stage = Scene(world, cluster)
        async with Admin(stage.servers, seams=world.node("admin")) as admin:
            await admin.create_topics([NewTopic(name="t", replicas=((1, 2, 3), (2, 3, 1)))])
        yield stage


@played
async def test_a_committed_transaction_is_there_as_a_whole(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
            await producer.send("t", b"two", partition=1)
            assert await stage.read(T0, T1) == []
            assert await stage.read(T0, T1, committed=False) == ["one", "two"]
        assert await stage.read(T0, T1) == ["one", "two"]


@played
async def test_in_a_transaction_many_are_there_or_not(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        async with producer.transaction():
            await producer.send_many("t", [b"kept"] * 3, partition=0)
        producer.begin_transaction()
        await producer.send_many("t", [b"never"] * 3, partition=0)
        await producer.abort_transaction()
        assert await stage.read(T0) == ["kept"] * 3


@played
async def test_an_aborted_transaction_is_as_if_it_had_not_been(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:

        async def fail() -> None:
            async with producer.transaction():
                await producer.send("t", b"never", partition=0)
                raise RuntimeError("of the block")

        with pytest.raises(RuntimeError, match="of the block"):
            await fail()
        async with producer.transaction():
            await producer.send("t", b"then", partition=0)
        assert await stage.read(T0) == ["then"]
        assert await stage.read(T0, committed=False) == ["never", "then"]


@played
async def test_an_empty_transaction_costs_nothing(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        async with producer.transaction():
            pass
        producer.begin_transaction()
        await producer.abort_transaction()


@played
async def test_a_new_producer_of_the_id_fences_the_old_one(world: World) -> None:
    async with scene(world) as stage, stage.producer() as old:
        old.begin_transaction()
        await old.send("t", b"of the old one", partition=0)
        async with stage.producer() as new:
            with pytest.raises(ProducerFencedError):
                await old.commit_transaction()
            with pytest.raises(ProducerFencedError):
                old.begin_transaction()
            async with new.transaction():
                await new.send("t", b"of the new one", partition=0)
        assert await stage.read(T0) == ["of the new one"]


@played_in(scene)
async def test_a_transaction_that_goes_on_for_too_long_is_aborted(stage: Scene) -> None:
    async with stage.producer(transaction_timeout_ms=5000) as producer:
        producer.begin_transaction()
        await producer.send("t", b"late", partition=0)
        await stage.cluster.clock.sleep(30)
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
    async with stage.producer("another") as other, other.transaction():
        await other.send("t", b"then", partition=0)
    assert await stage.read(T0) == ["then"]


@played_in(scene)
async def test_a_failed_transaction_cannot_be_committed(stage: Scene) -> None:
    async with stage.producer(delivery_timeout_ms=4000, request_timeout_ms=1000) as producer:
        producer.begin_transaction()
        await producer.send("t", b"there", partition=0)
        for name in ("b2", "b3"):
            await stage.cluster.kill(name)
        delivery = await producer.send_soon("t", b"not there", partition=0)
        with pytest.raises(KafkaError):
            await delivery.wait()
        with pytest.raises(TransactionAbortedError):
            await producer.send("t", b"too late", partition=0)
        with pytest.raises(TransactionAbortedError):
            await producer.commit_transaction()
        for name in ("b2", "b3"):
            await stage.cluster.start(name)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"then", partition=0)
    assert await stage.read(T0) == ["then"]


@pytest.mark.parametrize(
    ("topic", "value"), [("missing", b"x"), ("t", b"x" * 2000)], ids=["unknown topic", "too large"]
)
@played
async def test_a_transaction_without_a_record_that_could_not_be_sent_is_not_committed(
    world: World, topic: str, value: bytes
) -> None:
    """The program caught the error of its send, as a program without `async with` may."""
    async with (
        scene(world, auto_create_topics_enable="false") as stage,
        stage.producer(max_block_ms=2000, max_request_size=1000) as producer,
    ):
        producer.begin_transaction()
        await producer.send("t", b"there", partition=0)
        with pytest.raises(KafkaError):
            await producer.send(topic, value, partition=0)
        with pytest.raises(TransactionAbortedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert await stage.read(T0) == []


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
@played_in(scene)
async def test_transactions_survive_killed_brokers(stage: Scene, victim: str) -> None:
    async with stage.producer() as producer, trio.open_nursery() as nursery:

        async def kill() -> None:
            await stage.cluster.clock.sleep(2)
            name = _victim(stage, victim)
            await stage.cluster.kill(name)
            await stage.cluster.clock.sleep(2)
            await stage.cluster.start(name)

        nursery.start_soon(kill)
        for number in range(8):
            async with producer.transaction():
                await producer.send("t", b"%d" % number, partition=0)
                await producer.send("t", b"%d" % number, partition=1)
            await stage.cluster.clock.sleep(0.5)
    numbers = [str(number) for number in range(8)]
    assert await stage.read(T0) == numbers
    assert await stage.read(T1) == numbers


def _victim(stage: Scene, which: str) -> str:
    partition = T0
    if which == "coordinator":
        brokers = stage.cluster.brokers.values()
        (partition,) = {
            shard.partition
            for broker in brokers
            for shard in broker.transactions.shards.values()
            if "tx" in shard.slots
        }
        assert partition.topic == TRANSACTION_STATE_TOPIC
    leader = stage.cluster.leader(partition)
    assert leader is not None
    return leader


@played
async def test_a_prepared_transaction_is_completed_by_the_next_coordinator(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        producer.begin_transaction()
        await producer.send("t", b"one", partition=1)
        # The leader of t-1 cannot be reached: its marker waits, and the coordinator dies.
        coordinator = _victim(stage, "coordinator")
        leader = stage.cluster.leader(T1)
        assert leader is not None
        if leader != coordinator:
            stage.world.network.cut(coordinator, leader)
        await producer.commit_transaction()
        await stage.cluster.kill(coordinator)
        if leader != coordinator:
            stage.world.network.heal(coordinator, leader)
        await stage.cluster.clock.sleep(15)
        assert await stage.read(T1) == ["one"]
        await stage.cluster.start(coordinator)


@played
async def test_offsets_are_committed_with_the_transaction(world: World) -> None:
    async with (
        scene(world) as stage,
        stage.producer() as producer,
        Admin(stage.servers, seams=world.node("admin")) as admin,
    ):

        async def committed() -> dict[TopicPartition, int]:
            found = await admin.list_group_offsets("g", [T1], require_stable=True)
            return {each: offset.offset for each, offset in found.items()}

        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
            await producer.send_offsets_to_transaction({T1: 5}, "g")
            assert await admin.list_group_offsets("g") == {}
        assert await committed() == {T1: 5}
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({T1: 9}, "g")
        await producer.abort_transaction()
        assert await committed() == {T1: 5}


def group_member(stage: Scene, **config: Any) -> Consumer:
    """Return a consumer on a machine of its own, in the group g."""
    return Consumer(
        "t",
        bootstrap_servers=stage.servers,
        seams=stage.world.node("member"),
        group_id="g",
        enable_auto_commit=False,
        **config,
    )


@played
async def test_a_member_that_has_left_commits_nothing_more(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        async with group_member(stage) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout_ms=500)
            member = consumer.group_metadata()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({T0: 1}, member)
        producer.begin_transaction()
        with pytest.raises(KafkaError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
            await producer.send_offsets_to_transaction({T0: 2}, member)
        await producer.abort_transaction()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@played
async def test_a_member_that_was_away_commits_nothing_of_what_it_read(
    world: World, protocol: str
) -> None:
    """It hears that its session has expired before the program commits, and joins anew only then."""
    quick = {
        "group_initial_rebalance_delay_ms": "0",
        "group_consumer_session_timeout_ms": "6000",
        "group_consumer_min_session_timeout_ms": "1000",
    }
    async with scene(world, **quick) as stage, stage.producer() as producer:
        timeouts: dict[str, Any] = {"session_timeout_ms": 6000} if protocol == "classic" else {}
        async with group_member(stage, group_protocol=protocol, **timeouts) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout_ms=500)
            before = consumer.group_metadata()
            assert before.generation_id > 0
            world.network.isolate("member")
            await stage.cluster.clock.sleep(20)
            world.network.heal_all()
            await stage.cluster.clock.sleep(4)
            assert consumer.group_metadata() == before
            producer.begin_transaction()
            with pytest.raises(KafkaError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
                await producer.send_offsets_to_transaction({T0: 1}, consumer.group_metadata())
            await producer.abort_transaction()


@played
async def test_an_unused_transactional_id_expires(world: World) -> None:
    soon = {
        "transactional_id_expiration_ms": "5000",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    }
    async with scene(world, **soon) as stage, stage.producer() as old:
        async with old.transaction():
            await old.send("t", b"one", partition=0)
        coordinator = _victim(stage, "coordinator")
        await stage.cluster.clock.sleep(10)
        assert _known(stage) == set()
        await stage.cluster.kill(coordinator)
        await stage.cluster.clock.sleep(15)
        assert _known(stage) == set()
        old.begin_transaction()
        delivery = await old.send_soon("t", b"two", partition=0)
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_ID_MAPPING"):
            await delivery.wait()
        async with stage.producer() as new, new.transaction():
            await new.send("t", b"three", partition=0)
        assert await stage.read(T0) == ["one", "three"]
        await stage.cluster.start(coordinator)


def _known(stage: Scene) -> set[str]:
    up = [name for name in stage.cluster.broker_names if stage.cluster.is_running(name)]
    shards = [
        shard for name in up for shard in stage.cluster.brokers[name].transactions.shards.values()
    ]
    return {name for shard in shards for name in shard.slots}


@played
async def test_an_abort_without_an_answer_can_be_repeated(world: World) -> None:
    async with scene(world) as stage, stage.producer(max_block_ms=5000) as producer:
        producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        for name in stage.cluster.broker_names:
            await stage.cluster.kill(name)
        with pytest.raises(KafkaTimeoutError):
            await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError, match="its abort was not answered"):
            await producer.commit_transaction()
        for name in stage.cluster.broker_names:
            await stage.cluster.start(name)
        await stage.cluster.clock.sleep(15)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"then", partition=0)
        assert await stage.read(T0) == ["then"]


@played
async def test_calls_of_transactions_come_in_order(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        with pytest.raises(IllegalStateError, match="is ready, not in a transaction"):
            await producer.send("t", b"one")
        with pytest.raises(IllegalStateError, match="is ready, not in a transaction"):
            await producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="is in a transaction, not ready"):
            producer.begin_transaction()
        await producer.abort_transaction()
        plain: Producer[bytes, bytes] = Producer(stage.servers, seams=world.node("plain"))
        async with plain:
            with pytest.raises(IllegalStateError, match="without transactional_id"):
                plain.begin_transaction()


def test_transactions_need_idempotence() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id needs enable\.idempotence=true"):
        Producer("b1:9092", transactional_id="tx", enable_idempotence=False)
    with pytest.raises(ConfigError, match="needs acks=all"):
        Producer("b1:9092", transactional_id="tx", acks="1")
