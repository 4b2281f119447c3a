"""A copy that is served, and one that is promoted, by a cluster of ours in another world."""

from collections.abc import Mapping, Sequence

import attrs
import pytest

from replication.broker.adoption import AdoptedTopic, AdoptionError, adopt
from replication.client.admin import Admin
from replication.client.consumer import Consumer
from replication.client.offsets import OffsetAndMetadata
from replication.client.producer import Producer
from replication.errors import ErrorCode, KafkaError
from replication.mirror import UpTo
from replication.mirror.promotion import (
    KEPT,
    abort_open_transactions,
    configs_of,
    groups_ahead,
    next_producer_id,
    promoted_partitions,
)
from replication.mirror.state import CopiedTopic, CopyState, read_state
from scenarios.world.cluster import SimulatedCluster, open_simulated_cluster
from scenarios.world.world import World
from storage.checkpoint import EpochEntry
from storage.testing import FaultyFileSystem
from storage.testing.disk import DirectoryNode
from storage.tools.standalone import open_log_directory
from storage.types import TopicPartition
from tests.replication.client.scene import T0, played
from tests.replication.mirror.scene import COPY, MACHINE, admin_of, compared, following
from tests.replication.mirror.test_following import GROUPS, TRANSACTIONS

ANOTHER = {"cluster.id": "understudy"} | TRANSACTIONS
LOG = "/b1/log"


def served_by(world: World) -> World:
    """Another world, in which the copy is broker 1's disk."""
    other = World(seed=2)
    for name in ("c", "b1"):
        other.node(name)
        other.kill(name)
    copy = world.disk(MACHINE).directory(f"/{MACHINE}/broker-1")
    root = DirectoryNode()
    root.entries["b1"] = copy
    other.replace_disk("b1", root)
    return other


def disk_of(world: World) -> FaultyFileSystem:
    disk = world.disk("b1")
    return FaultyFileSystem(disk.chance, disk=disk)


def copied(values: Sequence[str], *, open_transaction: bool = False) -> tuple[World, CopyState]:
    """Return the world and the state that a stopped mirror has left."""

    async def story(world: World) -> CopyState:
        options = {"up_to": UpTo.HIGH_WATERMARK}
        async with following(world, options=options, properties=TRANSACTIONS) as copy:
            await copy.scene.produce(*values)
            await copy.start()
            if open_transaction:
                async with copy.scene.producer(transactional_id="x") as producer:
                    producer.begin_transaction()
                    await producer.send("t", b"not ended", partition=0)
                    await producer.flush()
                    await copy.until_end(len(values) + 1)
                    await copy.stop()
            else:
                await copy.until_end(len(values))
                await copy.stop()
            disk = world.disk(MACHINE)
            found = read_state(FaultyFileSystem(disk.chance, disk=disk), f"/{MACHINE}")
        assert found is not None
        return found

    world = World(seed=1)
    state = world.run(story)
    return served_by(world), state


def epochs_of(world: World) -> list[EpochEntry]:
    with open_log_directory(LOG, file_system=disk_of(world)) as logs:
        log = logs.get(T0)
        assert log is not None
        return list(log.leader_epoch_cache.entries)


async def adopt_on_c(world: World, topics: Sequence[AdoptedTopic], **given: int) -> None:
    await adopt(
        world.node("c"), "/c/log", cluster_id="understudy", broker_id=1, topics=topics, **given
    )
    world.kill("c")


def as_topics(state: CopyState, configs: Mapping[str, str], epoch: int) -> list[AdoptedTopic]:
    return [
        AdoptedTopic(
            name=name,
            topic_id=topic.topic_id,
            configs=configs,
            leader_epochs=dict.fromkeys(topic.partitions, epoch),
        )
        for name, topic in state.topics.items()
    ]


async def read(world: World, count: int) -> list[bytes]:
    values: list[bytes] = []
    consumer = Consumer(
        bootstrap_servers="b1:9092",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        seams=world.node("reader"),
    )
    async with consumer:
        consumer.assign([T0])
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1000)]
    return values


def writer_to(world: World) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers="b1:9092", seams=world.node("writer"))


def test_a_copy_that_is_served_is_read_and_changes_by_nothing() -> None:
    world, state = copied(["a", "b"])
    before = epochs_of(world)

    async def story(world: World) -> None:
        await adopt_on_c(world, as_topics(state, KEPT, 0))
        async with open_simulated_cluster(world, brokers=1, properties=ANOTHER):
            assert await read(world, 2) == [b"a", b"b"]
            async with writer_to(world) as writer:
                with pytest.raises(KafkaError) as refused:
                    await writer.send("t", b"mine", partition=0)
            assert refused.value.code is ErrorCode.POLICY_VIOLATION

    world.run(story)
    assert epochs_of(world) == before
    with open_log_directory(LOG, file_system=disk_of(world)) as logs:
        log = logs.get(T0)
        assert log is not None
        assert log.log_end_offset == 2


def test_a_promoted_one_goes_on_in_epochs_of_its_own() -> None:
    world, state = copied(["a"], open_transaction=True)
    with open_log_directory(LOG, file_system=disk_of(world)) as logs:
        [found] = promoted_partitions(state, logs, {T0: 5})
        assert (found.log_end_offset, found.not_copied, found.open_transactions) == (2, 3, 1)
        log = logs.get(T0)
        assert log is not None
        assert abort_open_transactions(log, leader_epoch=found.new_epoch, wall_ms=1) == 1
        first_free = next_producer_id(logs)
        assert first_free > 0

    async def story(world: World) -> None:
        await adopt_on_c(world, as_topics(state, {}, found.new_epoch), next_producer_id=first_free)
        async with open_simulated_cluster(world, brokers=1, properties=ANOTHER) as cluster:
            async with writer_to(world) as writer:
                at = await writer.send("t", b"mine", partition=0)
            assert at.offset == 3  # behind the marker
            assert await read(world, 2) == [b"a", b"mine"]
            assert cluster.image.next_producer_id > first_free

    world.run(story)
    assert [entry.epoch for entry in epochs_of(world)][-2:] == [100, 101]


def test_a_promoted_one_is_given_more_replicas_and_they_are_exact() -> None:
    """Brokers are added, each partition is reassigned to them, and the copy's broker may go."""
    world, state = copied(["a", "b"], open_transaction=True)
    with open_log_directory(LOG, file_system=disk_of(world)) as logs:
        [found] = promoted_partitions(state, logs, {})
        log = logs.get(T0)
        assert log is not None
        abort_open_transactions(log, leader_epoch=found.new_epoch, wall_ms=1)

    async def story(world: World) -> None:
        await adopt_on_c(world, as_topics(state, {}, found.new_epoch))
        async with open_simulated_cluster(world, brokers=3, properties=ANOTHER) as cluster:
            admin = Admin("b1:9092", seams=world.node("admin"))
            async with admin, writer_to(world) as writer:
                await admin.alter_partition_reassignments({T0: [1, 2, 3]})
                await cluster.until(lambda: replicas(cluster) == {1, 2, 3}, what="all have it")
                # Three records and the marker of the promotion, as the source wrote them.
                said = compared(world, "b1", "b2", "b3")
                assert "same in 3 copies, offsets 0 to 4 (exclusive)" in said
                await writer.send("t", b"mine", partition=0)
                await admin.alter_partition_reassignments({T0: [2, 3]})
                await cluster.until(lambda: replicas(cluster) == {2, 3}, what="b1 has let go")
                await writer.send("t", b"after", partition=0)
            assert await read(world, 4) == [b"a", b"b", b"mine", b"after"]

    world.run(story)
    assert "same in 2 copies, offsets 0 to 6 (exclusive)" in compared(world, "b2", "b3")


def replicas(cluster: SimulatedCluster) -> set[int]:
    """Return the replicas in sync, when no replica is moving."""
    found = cluster.partition(T0)
    if found is None or found.adding or found.removing or {*found.isr} != {*found.replicas}:
        return set()
    return {*found.isr}


@played
async def test_a_topic_adopted_twice_is_registered_once_and_a_new_one_replaces_it(
    world: World,
) -> None:
    topic = AdoptedTopic(name="t", topic_id=b"1" * 16, configs=KEPT, leader_epochs={0: 4})
    ends = []
    for each in (topic, topic, attrs.evolve(topic, topic_id=b"2" * 16)):
        await adopt_on_c(world, [each])
        async with open_simulated_cluster(world, brokers=1) as cluster:
            registration = cluster.partition(T0)
            assert registration is not None
            ends.append((cluster.image.topics["t"].topic_id, registration.leader_epoch > 4))
    assert ends == [(b"1" * 16, True), (b"1" * 16, True), (b"2" * 16, True)]
    with pytest.raises(AdoptionError, match="belongs to cluster understudy"):
        await adopt(world.node("c"), "/c/log", cluster_id="x", broker_id=1, topics=[topic])
    world.kill("c")


def test_settings_of_the_source_apply_if_they_are_known_here() -> None:
    settings = {
        "retention.ms": "5",
        "follower.replication.throttled.replicas": "*",
        "confluent.tier.enable": "true",
    }
    topic = CopiedTopic(topic_id=b"1" * 16, configs=settings, partitions={})
    assert configs_of(topic) == ({"retention.ms": "5"}, ["confluent.tier.enable"])


@played
async def test_groups_that_committed_beyond_the_end_of_the_copy_are_named(world: World) -> None:
    options = {"groups": True}
    async with following(world, options=options, properties=GROUPS) as copy:
        await copy.scene.produce("a", "b", "c")
        async with admin_of(copy.scene) as admin:
            await admin.alter_group_offsets("slow", {T0: OffsetAndMetadata(1)})
            await admin.alter_group_offsets("fast", {T0: OffsetAndMetadata(3)})
        await copy.start()
        await copy.until_end(3)
        offsets = TopicPartition("__consumer_offsets", 0)
        await copy.until(lambda: copy.end(offsets) > 1, "offsets are copied")
        await copy.stop()
    disk = world.disk(MACHINE)
    with open_log_directory(COPY, file_system=FaultyFileSystem(disk.chance, disk=disk)) as logs:
        assert list(groups_ahead(logs)) == []
        log = logs.get(T0)
        assert log is not None
        log.truncate_to(2)
        [ahead] = groups_ahead(logs)
    assert str(ahead) == "group fast: t-0 was committed at 3, and the copy ends at 2"
