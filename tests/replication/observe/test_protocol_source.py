"""The state of a cluster over Kafka's protocol alone: what is known, and what is not."""

from collections.abc import Awaitable, Callable

from replication.client.admin import Admin, NewTopic
from replication.observe.cluster_state import ObservedPartition, Role, Status
from replication.observe.protocol_source import ProtocolSource
from replication.observe.state_reader import StateReader
from scenarios.world.world import World
from storage.checkpoint import EpochEntry
from tests.replication.broker.stage import played
from tests.replication.client.scene import Scene, scene


def looking(
    story: Callable[[Scene, StateReader, Admin], Awaitable[None]],
) -> Callable[[], None]:
    """Make `story` a test on virtual time; a reader observes three brokers with three records."""

    async def run(world: World) -> None:
        async with (
            scene(world, brokers=3, replicas=((1, 2, 3),), replica_lag_time_max_ms="2000") as stage,
            Admin(
                stage.bootstrap_servers, seams=world.node("admin"), request_timeout_ms=1000
            ) as admin,
        ):
            await stage.produce("a", "b", "c")
            clock = world.node("watcher").clock
            await story(
                stage,
                StateReader(
                    source=ProtocolSource(
                        admin=admin,
                        now_ms=clock.now_ms,
                        wanted=lambda topic: topic == "t",
                        in_detail=True,
                    )
                ),
                admin,
            )

    return played(run)


async def only(state: StateReader) -> ObservedPartition:
    (found,) = (await state.read()).partitions
    return found


@looking
async def test_each_replicas_end_and_the_leaders_high_watermark_are_known(
    stage: Scene, state: StateReader, admin: Admin
) -> None:
    found = await only(state)
    assert (found.leader, found.leader_epoch, sorted(found.isr)) == (1, 0, [1, 2, 3])
    assert [each.role for each in found.replicas] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
    assert {each.log_end_offset for each in found.replicas} == {3}
    assert {each.log_start_offset for each in found.replicas} == {0}
    assert [each.high_watermark for each in found.replicas] == [3, None, None]
    assert {each.lag for each in found.replicas} == {0}
    assert len({each.bytes for each in found.replicas}) == 1
    assert found.replicas[0].epochs == (EpochEntry(0, 0),)
    assert found.min_isr == 1


@looking
async def test_the_last_lag_is_why_a_follower_left_between_two_looks(
    stage: Scene, state: StateReader, admin: Admin
) -> None:
    stage.world.network.cut("b1", "b3")
    await stage.produce("d", acks=1)
    behind = (await only(state)).replica(3)
    assert behind is not None
    assert (behind.in_isr, behind.lag, behind.is_live) == (True, 1, True)
    await stage.world.node("watcher").clock.sleep(6)
    left = (await only(state)).replica(3)
    assert left is not None
    assert (left.in_isr, left.lag) == (False, 1)
    assert left.why == (
        "left the ISR: it was 1 records behind when it was last seen in the ISR;"
        " it joins again when it has reached the high watermark"
    )


@looking
async def test_a_failover_shows_epochs_and_a_broker_that_is_not_alive(
    stage: Scene, state: StateReader, admin: Admin
) -> None:
    assert (await only(state)).leader == 1
    await stage.cluster.kill("b1")
    while (await only(state)).leader in (1, None):
        await stage.world.node("watcher").clock.sleep(1)
    await stage.produce("d")
    found = await only(state)
    dead = found.replica(1)
    assert dead is not None
    assert (dead.role, dead.is_live, dead.log_end_offset) == (Role.DOWN, False, 3)
    assert dead.why.startswith("out of the ISR: its broker is down or fenced")
    leads = found.replica(found.leader)
    assert leads is not None
    assert leads.epochs == (EpochEntry(0, 0), EpochEntry(1, 3))
    brokers = {each.id: each.status for each in (await state.read()).brokers}
    assert brokers == {1: Status.DOWN, 2: Status.UP, 3: Status.UP}


@looking
async def test_a_broker_that_does_not_answer_keeps_its_last_figures(
    stage: Scene, state: StateReader, admin: Admin
) -> None:
    await only(state)
    stage.world.network.cut("b3", "admin")
    found = await state.read()
    silent = found.partitions[0].replica(3)
    assert silent is not None
    assert (silent.is_live, silent.log_end_offset, silent.in_isr) == (False, 3, True)
    assert [(each.id, each.status, each.why) for each in found.brokers if each.why] == [
        (3, Status.UNKNOWN, "it does not answer")
    ]


@looking
async def test_a_topic_that_is_made_again_has_its_own_min_insync_replicas(
    stage: Scene, state: StateReader, admin: Admin
) -> None:
    clock = stage.world.node("watcher").clock
    assert (await only(state)).min_isr == 1
    await admin.delete_topics(["t"])
    while (await state.read()).partitions:
        await clock.sleep(0.1)
    again = NewTopic(
        name="t", partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"}
    )
    await admin.create_topics([again])
    while not (found := (await state.read()).partitions):
        await clock.sleep(0.1)
    assert [each.min_isr for each in found] == [2]
