"""What becomes of a copy when its source loses leaders, records, topics."""

from replication.client.admin import NewTopic
from scenarios.world.world import World
from storage.types import TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import T0, played
from tests.replication.mirror.scene import COPY, MACHINE, Following, admin_of, cuts, following


@played_in(following, brokers=3, replicas=((1, 2, 3),))
async def test_a_high_watermark_that_lags_after_a_failover_cuts_nothing(copy: Following) -> None:
    cluster = copy.scene.cluster
    await copy.start()
    await copy.scene.produce("a", acks="1")
    await copy.until_end(1)
    # The new leader does not know that "a" is committed, and nobody is there to tell.
    await cluster.kill("b1")
    await cluster.clock.sleep(5)
    await cluster.kill("b3")
    await copy.until(lambda: copy.scene.cluster.leader(T0) == "b2", "b2 leads")
    led = cluster.brokers["b2"].replica_manager.hosted.get(T0)
    assert led.log.high_watermark < copy.end() == led.log.log_end_offset
    await copy.kill()
    await copy.start()  # nor does a start: what lies beyond is waited for
    await copy.scene.produce("b", acks="1")
    await copy.until_end(2)
    assert cuts(copy) == []
    copy.assert_same("b2")


@played
async def test_records_that_an_unclean_leader_lacks_are_truncated(world: World) -> None:
    unclean = {"unclean.leader.election.enable": "true"}
    async with following(world, brokers=2, replicas=((1, 2),), topic=unclean) as copy:
        cluster = copy.scene.cluster
        await copy.start()
        await copy.scene.produce("a", acks="all")
        await cluster.kill("b2")
        await copy.scene.produce("b", "c", acks="all")
        await copy.until_end(3)
        await cluster.kill("b1")
        await cluster.start("b2")
        await copy.scene.produce("x")
        await copy.until_end(2)
        assert cuts(copy) == [(3, 1, "diverging epoch")]
        copy.assert_same("b2")


@played
async def test_it_starts_over_if_the_source_has_deleted_the_next_records(world: World) -> None:
    async with following(world) as copy, admin_of(copy.scene) as admin:
        await copy.begin("a", "b")
        await copy.stop()
        await copy.scene.produce("c", "d", "e")
        await admin.delete_records({T0: 4})
        await copy.start()
        await copy.until_end(5)
        at = copy.at()
        assert at is not None
        assert at.log_start_offset == 4
        copy.assert_same()


@played
async def test_the_log_start_of_the_source_is_the_copys(world: World) -> None:
    async with following(world) as copy, admin_of(copy.scene) as admin:
        await copy.begin("a", "b", "c")
        await admin.delete_records({T0: 2})
        await copy.until(lambda: getattr(copy.at(), "log_start_offset", 0) == 2, "it moves")
        assert copy.end() == 3


@played
async def test_the_copy_of_a_topic_that_was_made_anew_is_set_aside(world: World) -> None:
    async with following(world) as copy, admin_of(copy.scene) as admin:
        await copy.begin("a", "b")
        await admin.delete_topics(["t"])
        await copy.until(
            lambda: getattr(copy.at(), "trouble", "") == "gone from the source", "it is gone"
        )
        assert copy.end() == 2
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await copy.scene.produce("x")
        await copy.until_end(1)
        copy.assert_same()
        names = world.disk(MACHINE).directory(COPY).entries
        assert len([name for name in names if name.endswith("-stray")]) == 1


@played
async def test_a_topic_recreated_while_the_mirror_was_down_is_set_aside_too(world: World) -> None:
    async with following(world) as copy, admin_of(copy.scene) as admin:
        await copy.begin("a", "b")
        await copy.kill()
        await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic(name="t", partitions=2)])
        await copy.scene.produce("x", partition=1)
        await copy.start()
        await copy.until_end(1, TopicPartition("t", 1))
        assert copy.end() == 0


@played_in(following, options={"bytes_per_second": 20_000})
async def test_a_copy_that_is_throttled_takes_its_time(copy: Following) -> None:
    for _ in range(20):
        await copy.scene.produce("x" * 10_000)
    began = copy.scene.cluster.clock.now()
    await copy.start()
    await copy.until_end(20)
    took = copy.scene.cluster.clock.now() - began
    assert 7 < took < 20, "200 kB at 20 kB/s"
    copy.assert_same()
