"""A mirror of a cluster of ours: what it takes over, and where it goes on."""

import attrs
import pytest

from replication.client.admin import NewTopic
from replication.client.offsets import OffsetAndMetadata
from replication.mirror import UpTo
from replication.mirror.state import read_state, write_state
from scenarios.world.world import World
from storage.testing import FaultyFileSystem
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, play, played
from tests.replication.mirror.scene import MACHINE, Following, admin_of, cuts, following

T1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
GROUPS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
# Asking again every second for an hour only takes the test longer.
PATIENT = {
    "properties": {"replica.fetch.backoff.ms": "30000"},
    "source": {"retry_backoff_max_ms": 30_000, "reconnect_backoff_max_ms": 30_000},
}
TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


@played_in(following, replicas=((1,), (1,)))
async def test_a_copy_is_the_sources_log_byte_for_byte(copy: Following) -> None:
    await copy.scene.produce("a", "b", compression_type="zstd")
    await copy.start()
    await copy.scene.produce("c", partition=1, compression_type="gzip")
    await copy.until_end(2)
    await copy.until_end(1, T1)
    copy.assert_same()
    copy.assert_same(partition=T1)


@played_in(following)
async def test_after_a_kill_it_goes_on_where_its_log_ends(copy: Following) -> None:
    await copy.begin("a", "b")
    await copy.kill()
    await copy.scene.produce("c")
    await copy.start()
    await copy.until_end(3)
    copy.assert_same()
    await copy.stop()
    await copy.start()
    assert copy.end() == 3


@played_in(following)
async def test_where_it_goes_on_is_in_its_log_and_nowhere_else(
    copy: Following, world: World
) -> None:
    await copy.begin("a", "b")
    await copy.stop()
    disk = world.disk(MACHINE)
    files = FaultyFileSystem(disk.chance, disk=disk)
    state = read_state(files, f"/{MACHINE}")
    assert state is not None
    topic = state.topics["t"]
    wrong = {
        number: attrs.evolve(each, log_end_offset=0, source_end=1)
        for number, each in topic.partitions.items()
    }
    outdated = attrs.evolve(state, topics={"t": attrs.evolve(topic, partitions=wrong)})
    write_state(files, f"/{MACHINE}", outdated)
    await copy.scene.produce("c")
    await copy.start()
    await copy.until_end(3)
    copy.assert_same()
    assert cuts(copy) == []


@pytest.mark.parametrize("seed", range(5))
def test_after_a_power_cut_lost_records_are_copied_again(seed: int) -> None:
    async def story(world: World) -> None:
        async with following(world) as copy:
            await copy.start()
            for value in "abc":
                await copy.scene.produce(value)
            await copy.until_end(3)
            await copy.cut_power()
            await copy.start()
            await copy.until_end(3)
            copy.assert_same()

    play(story, seed=seed)


@played_in(following, brokers=3, replicas=((1, 2, 3),))
async def test_it_follows_the_partition_to_its_next_leader(copy: Following) -> None:
    await copy.begin("a")
    await copy.scene.cluster.kill("b1")
    await copy.scene.produce("b", acks="all")
    await copy.until_end(2)
    copy.assert_same(copy.scene.leader())
    at = copy.at()
    assert at is not None
    assert at.leader != 1


@played
async def test_new_partitions_and_new_topics_of_a_pattern_are_found(world: World) -> None:
    options = {"topics": (), "patterns": ("t|u.*",)}
    async with following(world, options=options) as copy, admin_of(copy.scene) as admin:
        await copy.start()
        await admin.create_partitions({"t": 2})
        await copy.until(lambda: copy.at(T1) is not None, "the new partition is found")
        await copy.scene.produce("a", partition=1)
        await copy.until_end(1, T1)
        await copy.scene.client.create_topic("u1", ((1,),))
        await copy.scene.client.create_topic("v", ((1,),))
        await copy.until(lambda: copy.at(TopicPartition("u1", 0)) is not None, "u1 is found")
        assert copy.at(TopicPartition("v", 0)) is None


def test_a_source_that_is_away_for_an_hour_is_waited_for() -> None:
    async def story(world: World) -> None:
        async with following(world, options=PATIENT) as copy:
            await copy.begin("a")
            await copy.scene.cluster.kill("b1")
            await copy.scene.cluster.clock.sleep(3600)
            assert copy.mirror.trouble is not None
            await copy.scene.cluster.start("b1")
            await copy.scene.produce("b")
            await copy.until_end(2)
            copy.assert_same()
            assert copy.mirror.trouble is None

    world = World(seed=1)
    world.run(story, limit=2 * 3600)


@pytest.mark.parametrize(
    ("up_to", "end"),
    [
        pytest.param(UpTo.LAST_STABLE, 1, id="to the last stable offset"),
        pytest.param(UpTo.HIGH_WATERMARK, 2, id="to the high watermark"),
    ],
)
@played
async def test_how_far_it_goes_is_an_option(world: World, up_to: UpTo, end: int) -> None:
    async with following(world, options={"up_to": up_to}, properties=TRANSACTIONS) as copy:
        await copy.start()
        await copy.scene.produce("a")
        async with copy.scene.producer(transactional_id="x") as producer:
            producer.begin_transaction()
            await producer.send("t", b"b", partition=0)
            await producer.flush()
            await copy.until_end(end)
            await copy.scene.cluster.clock.sleep(5)
            assert copy.end() == end
            await producer.commit_transaction()
        await copy.until_end(3)  # with the marker
        copy.assert_same()


@played_in(following, options={"topics": ("t", "u")})
async def test_a_topic_that_is_no_longer_followed_stays_and_is_not_missing(copy: Following) -> None:
    await copy.scene.client.create_topic("u", ((1,),))
    await copy.begin("a")
    await copy.until_end(0, TopicPartition("u", 0))
    await copy.stop()
    await copy.start(topics=("u",))
    await copy.scene.produce("b")
    assert [each.topic_partition.topic for each in copy.mirror.progress()] == ["u"]
    await copy.stop()
    await copy.start()
    await copy.until_end(2)
    copy.assert_same()


@played
async def test_groups_offsets_have_a_position_of_their_own(world: World) -> None:
    """A commit is copied although nothing is yet of the records that it is behind."""
    options = {"topics": ("u",), "groups": True}
    async with following(world, brokers=2, options=options, properties=GROUPS) as copy:
        async with admin_of(copy.scene) as admin:
            await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(0)})
            here = copy.scene.leader(OFFSETS)
            away = 1 if here == "b2" else 2
            await admin.create_topics([NewTopic(name="u", replicas=((away,),))])
            async with copy.scene.producer() as producer:
                for value in (b"a", b"b", b"c"):
                    await producer.send("u", value, partition=0)
            await admin.alter_group_offsets("g", {U0: OffsetAndMetadata(3)})
        await copy.scene.cluster.kill(f"b{away}")
        await copy.start()
        await copy.until(lambda: copy.end(OFFSETS) > 1, "both commits are copied")
        assert copy.end(U0) <= 0
        await copy.scene.cluster.start(f"b{away}")
        await copy.until_end(3, U0)
        copy.assert_same(f"b{away}", U0)
        copy.assert_same(here, OFFSETS)
