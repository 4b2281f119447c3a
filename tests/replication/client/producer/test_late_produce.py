"""A Produce that comes after its transaction was aborted, in a simulated world (KIP-890).

producer ── Produce ───────── held up ─────────────────────────┐
    └ gives up, aborts ──> coordinator ── marker ──> leader    v
                                                     leader <──┘ too late
"""

import attrs
import pytest

from replication.client.errors import TransactionAbortedError
from replication.client.producer.batch import ProducerIdAndEpoch
from replication.errors import KafkaError
from replication.transactions.rules.decisions import Slot
from replication.wire.apis import ApiKey
from scenarios.world.world import World
from storage.batch.record_batch import MAX_PRODUCER_EPOCH
from tests.replication.client.producer.test_transactions import T0, T1, Scene, scene
from tests.replication.client.scene import played

AS_BEFORE = {"understudy_transaction_version": "1"}
UNVERIFIED = AS_BEFORE | {"transaction_partition_verification_enable": "false"}


def slot_of(stage: Scene) -> Slot:
    (slot,) = {
        shard.slots["tx"]
        for broker in stage.cluster.brokers.values()
        for shard in broker.transactions.shards.values()
        if "tx" in shard.slots
    }
    return slot


def last_stable_offset(stage: Scene) -> tuple[int, int]:
    """And where the log ends."""
    leader = stage.cluster.leader(T0)
    assert leader is not None
    log = stage.cluster.brokers[leader].replica_manager.hosted.get(T0).log
    return log.last_stable_offset, log.log_end_offset


@pytest.mark.parametrize(
    ("properties", "hangs"),
    [
        pytest.param(UNVERIFIED, True, id="nobody asks"),
        pytest.param(AS_BEFORE, False, id="version 1"),
        pytest.param({}, False, id="version 2"),
    ],
)
@played
async def test_a_late_message_of_an_aborted_transaction(
    world: World, properties: dict[str, str], hangs: bool
) -> None:
    async with (
        scene(world, **properties) as stage,
        stage.producer(request_timeout_ms=2000, delivery_timeout_ms=3000) as producer,
    ):
        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
        leader = stage.cluster.leader(T0)
        assert leader is not None
        producer.begin_transaction()
        await producer.send("t", b"elsewhere", partition=1)
        world.network.hold("producer1", leader, ApiKey.PRODUCE)
        late = await producer.send_soon("t", b"late", partition=0)
        with pytest.raises(KafkaError):
            await late.wait()
        with pytest.raises(TransactionAbortedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await stage.cluster.clock.sleep(2)
        _, before = last_stable_offset(stage)
        world.network.heal("producer1", leader)
        await stage.cluster.clock.sleep(30)
        stable, end = last_stable_offset(stage)
        assert (end > before, stable < end) == (hangs, hangs)


# The epochs of version 2.


def identity(producer: object) -> ProducerIdAndEpoch:
    return producer._accumulator.identity  # type: ignore[attr-defined,no-any-return] # who it is


@pytest.mark.parametrize("properties", [AS_BEFORE, {}], ids=["version 1", "version 2"])
@played
async def test_each_end_gives_the_next_epoch_where_the_cluster_has_version_2(
    world: World,
    properties: dict[str, str],
) -> None:
    async with scene(world, **properties) as stage, stage.producer() as producer:
        epochs = [identity(producer).producer_epoch]
        for number in range(3):
            async with producer.transaction():
                await producer.send("t", str(number).encode(), partition=0)
                await producer.send_offsets_to_transaction({T1: number}, "g")
            epochs.append(identity(producer).producer_epoch)
        assert epochs == ([0] * 4 if properties else [0, 1, 2, 3])
        assert await stage.read(T0) == ["0", "1", "2"]


@played
async def test_a_producer_out_of_time_aborts_and_goes_on(world: World) -> None:
    soon = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "500"}
    async with (
        scene(world, **soon) as stage,
        stage.producer(transaction_timeout_ms=1000) as producer,
    ):
        producer.begin_transaction()
        await producer.send("t", b"never", partition=0)
        await stage.cluster.clock.sleep(5)
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
            await producer.send("t", b"nor this", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"then", partition=0)
        assert await stage.read(T0) == ["then"]


@played
async def test_epochs_run_out_and_the_producer_hears_nothing_of_it(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        first = identity(producer)
        nearly = ProducerIdAndEpoch(first.producer_id, MAX_PRODUCER_EPOCH - 2)
        slot = slot_of(stage)
        slot.current = attrs.evolve(slot.current, producer_epoch=nearly.producer_epoch)
        producer._accumulator.became(nearly)
        identities = []
        for number in range(4):
            async with producer.transaction():
                await producer.send("t", str(number).encode(), partition=0)
            identities.append(identity(producer))
        last, rotated, *_ = identities
        assert last == (first.producer_id, MAX_PRODUCER_EPOCH - 1)
        assert rotated.producer_id != first.producer_id
        assert identities[1:] == [(rotated.producer_id, each) for each in range(3)]
        assert await stage.read(T0) == ["0", "1", "2", "3"]


@played
async def test_the_version_changes_between_two_transactions(world: World) -> None:
    async with scene(world) as stage, stage.producer() as producer:
        transactions = producer._transactions
        assert transactions is not None
        epochs = []

        for level in (1, 2, 1, 1):
            transactions.feature = {"transaction.version": level}.__getitem__
            async with producer.transaction():
                await producer.send("t", str(level).encode(), partition=0)
            epochs.append((transactions.bumps_epoch, identity(producer).producer_epoch))
        assert epochs == [(False, 1), (True, 2), (False, 3), (False, 3)]
        assert await stage.read(T0) == ["1", "2", "1", "1"]
