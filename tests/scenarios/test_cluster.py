"""The real brokers in a simulated world: killed, stopped, without power, and back again."""

import itertools
from collections.abc import Awaitable, Callable

import pytest
import trio

from replication.cluster.interface import NotInTimeError
from replication.errors import ErrorCode
from scenarios.checkers import Checkers
from scenarios.story.commands.judge import loss_ledger
from scenarios.story.log_drawing import batches_of, draw
from scenarios.story.runner import run_story
from scenarios.story.script import parse
from scenarios.world.client import (
    AckedBatch,
    NoAnswer,
    ReadRecord,
    Refused,
    SentRecords,
    StoryClient,
)
from scenarios.world.cluster import (
    BROKER_PORT,
    CONTROLLER,
    CONTROLLER_PORT,
    SimulatedCluster,
    log_directory,
    node_name,
    open_simulated_cluster,
    partition_directory,
)
from scenarios.world.trace import NodeKilled, NodeStopped
from scenarios.world.world import World
from storage.checkpoint import CLEAN_SHUTDOWN
from storage.types import TopicPartition

PARTITION = TopicPartition("t", 0)

Story = Callable[[SimulatedCluster, StoryClient], Awaitable[None]]


def run(
    story: Story, *, seed: int = 1, brokers: int = 3, controllers: int = 1, **properties: str
) -> World:
    """Tell `story` with a cluster, a client, and the invariants watched."""
    world = World(seed)

    async def in_world(world: World) -> None:
        checkers = Checkers()
        async with open_simulated_cluster(
            world,
            brokers=brokers,
            controllers=controllers,
            properties={name.replace("_", "."): value for name, value in properties.items()},
            watcher=checkers,
        ) as cluster:
            checkers.cluster = cluster
            client = StoryClient(
                name="client",
                seams=world.node("client"),
                bootstrap=[(name, BROKER_PORT) for name in cluster.broker_names],
            )
            await client.create_topic("t", [list(range(1, brokers + 1))])
            await story(cluster, client)
            checkers.look()

    world.run(in_world)
    return world


async def send(client: StoryClient, *values: str, acks: int = -1) -> SentRecords:
    batch = SentRecords(PARTITION, values, acks)
    await client.send(batch, timeout_ms=30_000)
    return batch


def is_marked_clean(cluster: SimulatedCluster, name: str) -> bool:
    return cluster.disk(name).exists(f"{log_directory(name)}/{CLEAN_SHUTDOWN}")


def drawn(cluster: SimulatedCluster, name: str) -> str:
    disk = cluster.disk(name)
    return draw(batches_of(disk, partition_directory(disk, name, PARTITION)))


def values(records: list[ReadRecord]) -> list[str]:
    return [record.value for record in records]


def test_a_killed_broker_writes_nothing_more_and_one_that_stops_leaves_its_logs_in_order() -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        await send(client, "one")
        before = cluster.disk("b2").disk.used()
        await cluster.kill("b2")
        assert cluster.disk("b2").disk.used() == before
        assert not is_marked_clean(cluster, "b2")
        await cluster.stop("b3")
        assert is_marked_clean(cluster, "b3")
        assert list(cluster.brokers) == ["b1"]
        await cluster.start("b3")
        assert not is_marked_clean(cluster, "b3"), "a marker is good for one start"

    trace = run(story).trace
    kinds = [type(entry.event) for entry in trace.entries]
    assert kinds.count(NodeStopped) == 1
    assert kinds.count(NodeKilled) == 4  # b2, and at the end all that was left


@pytest.mark.parametrize("order", [None, *itertools.permutations(["b1", "b2", "b3"])], ids=str)
def test_nothing_committed_is_lost_when_everybody_is_killed_at_once(
    order: tuple[str, ...] | None,
) -> None:
    """S48, in every order of coming back, and all at once."""

    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        batches = [await send(client, f"{number}") for number in range(5)]
        await cluster.kill_all()
        assert cluster.brokers == {}
        for name in [CONTROLLER, *order] if order else []:
            await cluster.start(name)
        await cluster.nodes.start()
        # The first leader that is back may be alone at first, and takes nothing while it is.
        after = await send(client, "after")
        while after.outcome == Refused(ErrorCode.NOT_ENOUGH_REPLICAS):
            await client.seams.clock.sleep(0.1)
            after = await send(client, "after")
        batches.append(after)
        ledger = loss_ledger(batches, await client.read(PARTITION))
        assert ledger.acked_and_committed == ("0", "1", "2", "3", "4", "after")
        assert ledger.acked_and_lost == ledger.duplicated == ()

    run(story, min_insync_replicas="2")


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_at_one_broker_costs_nothing_that_others_have(seed: int) -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        batches = [await send(client, f"{number}") for number in range(5)]
        await cluster.cut_power("b1")
        await cluster.until(lambda: cluster.leader(PARTITION) == "b2", what="b2 leads")
        batches.append(await send(client, "after"))
        await cluster.start("b1")
        await cluster.until(
            lambda: drawn(cluster, "b1") == "[e0: 0-4][e1: 5-5]", what="b1 has it all"
        )
        assert loss_ledger(batches, await client.read(PARTITION)).acked_and_lost == ()

    run(story, seed=seed, min_insync_replicas="2")


@pytest.mark.parametrize("after", range(3))
def test_a_broker_whose_power_fails_in_the_middle_of_a_change_is_gone_at_once(after: int) -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        cluster.let_power_fail("b1", operation="write", names="*/t-0/*.log", after=after)
        assert isinstance((await send(client, "lost")).outcome, NoAnswer)
        assert not cluster.is_running("b1")
        last = [each.event for each in cluster.world.trace.entries if each.node == "b1"]
        await cluster.until(lambda: cluster.leader(PARTITION) == "b2", what="b2 leads")
        assert [e.event for e in cluster.world.trace.entries if e.node == "b1"] == last
        await cluster.start("b1")
        assert (await send(client, "after")).acked
        await cluster.until(lambda: drawn(cluster, "b1") == drawn(cluster, "b2"), what="equal")
        assert values(await client.read(PARTITION)) == ["after"]

    run(story, min_insync_replicas="2", log_flush_interval_messages="1")


SYNCING = """\
cluster brokers=2 min.insync.replicas=1
topic t replicas={replicas} segment.bytes=100
slow b1 disk=300ms
{records}
run 3s
reassign t-0 b2,b1
elect t-0 preferred
run 4s
show t-0
"""
"""Each partition of b1 has a segment to sync, and a sync takes 0.3 s at least."""


def test_a_leader_steps_down_while_it_has_many_logs_to_sync() -> None:
    records = (f"produce t-{each} acks=1 {one}{each} &" for each in range(10) for one in "ab")
    replicas = "/".join(["b1,b2"] * 10)
    story = parse(SYNCING.format(replicas=replicas, records="\n".join(records)))
    (step,) = run_story(story).actual.steps
    assert step.answer[-1].split()[0] == "b1"
    assert step.answer[-1].endswith("follows")


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_at_the_controller_costs_no_metadata(seed: int) -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        before = cluster.image
        await cluster.cut_power(CONTROLLER)
        await cluster.clock.sleep(5)
        await cluster.start(CONTROLLER)
        await cluster.kill("b1")
        await cluster.until(lambda: cluster.leader(PARTITION) == "b2", what="b2 leads")
        assert cluster.image.offset > before.offset
        assert cluster.image.topics["t"].topic_id == before.topics["t"].topic_id

    run(story, seed=seed)


def test_data_flows_while_the_controller_is_away_and_elections_wait_for_it() -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        await cluster.kill(CONTROLLER)
        await cluster.clock.sleep(60)
        assert (await send(client, "one")).acked
        await cluster.kill("b1")
        await cluster.clock.sleep(60)
        assert cluster.leader(PARTITION) == "b1"
        await cluster.start(CONTROLLER)
        await cluster.until(lambda: cluster.leader(PARTITION) == "b2", what="b2 leads")
        assert (await send(client, "two")).acked
        assert values(await client.read(PARTITION)) == ["one", "two"]

    run(story)


@pytest.mark.parametrize("fault", ["kill", "pause", "cut off"])
def test_of_three_controllers_two_decide_without_the_one_that_led(fault: str) -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        assert cluster.names == ["c3001", "c3002", "c3003", "b1", "b2"]
        deposed = cluster.nodes.active_controller
        assert deposed is not None
        name, world = node_name(deposed), cluster.world
        if fault == "kill":
            await cluster.kill(name)
        elif fault == "pause":
            world.pause(name)
        else:
            for other in set(cluster.names) - {name}:
                world.network.cut(name, other)
        await cluster.kill("b1")
        await cluster.until(lambda: cluster.leader(PARTITION) == "b2", what="b2 leads")
        assert cluster.nodes.active_controller not in (None, deposed)
        world.network.heal_all()
        if fault == "pause":
            world.resume(name)
        await cluster.nodes.start()
        await cluster.until(lambda: _isr(cluster) == {1, 2}, what="both are in sync")
        assert cluster.is_undisturbed

    run(story, brokers=2, controllers=3)


def test_a_majority_of_three_controllers_is_a_quorum() -> None:
    async def story(cluster: SimulatedCluster, _: StoryClient) -> None:
        await cluster.kill("c3001")
        assert cluster.has_quorum
        await cluster.kill("c3003")
        assert not cluster.has_quorum

    run(story, brokers=1, controllers=3)


def test_a_controller_that_was_stopped_before_it_listened_keeps_its_port() -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        def port() -> int:
            return 0 if cluster.controller is None else cluster.controller.port

        await cluster.stop(CONTROLLER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start, CONTROLLER)
            await cluster.until(lambda: cluster.is_running(CONTROLLER), what="it is started")
            assert port() == 0, "it does not listen yet"
            await cluster.stop(CONTROLLER)
        await cluster.start(CONTROLLER)
        assert port() == CONTROLLER_PORT

    run(story)


def test_a_node_has_what_it_was_configured_with_from_its_next_start() -> None:
    key = "producer.id.expiration.ms"

    async def configured(cluster: SimulatedCluster, _: StoryClient) -> None:
        def found() -> int:
            return cluster.brokers["b1"].config.producer_id_expiration_ms

        before = cluster.brokers["b1"].config
        cluster.configure("b1", {key: "7"})
        assert found() == 8, "it runs on with what it has"
        await cluster.stop("b1")
        await cluster.start("b1")
        assert found() == 7
        assert cluster.brokers["b1"].config.listeners == before.listeners
        assert cluster.brokers["b2"].config.producer_id_expiration_ms == 8

    run(configured, producer_id_expiration_ms="8")


def test_a_batch_is_acked_refused_or_has_no_answer() -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        assert (await send(client, "zero", acks=0)).outcome == NoAnswer("none was asked for")
        assert (await send(client, "one")).outcome == AckedBatch(1)
        await cluster.kill("b2")
        await cluster.until(lambda: _isr(cluster) == {1}, what="b2 leaves the isr")
        refused = await send(client, "two")
        assert isinstance(refused.outcome, Refused)
        assert refused.outcome.error.name == "NOT_ENOUGH_REPLICAS"
        assert (await send(client, "three", acks=1)).outcome == AckedBatch(2)
        assert values(await client.read(PARTITION)) == ["zero", "one"], "more is not committed"
        async with trio.open_nursery() as nursery:
            unanswered = SentRecords(PARTITION, ("four",), 1)
            cluster.world.pause("b1")
            nursery.start_soon(lambda: client.send(unanswered, timeout_ms=100))
            await cluster.clock.sleep(1)
            assert unanswered.outcome is None
            await cluster.kill("b1")
        assert unanswered.outcome == NoAnswer("t-0 was led by nobody for 60000 ms")

    run(story, brokers=2, min_insync_replicas="2")


def _isr(cluster: SimulatedCluster) -> set[int]:
    registration = cluster.partition(PARTITION)
    return set() if registration is None else set(registration.isr)


def test_a_wait_ends_after_its_time_limit() -> None:
    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        with pytest.raises(NotInTimeError, match="not within 5 s: pigs fly"):
            await cluster.until(lambda: False, what="pigs fly", seconds=5)

    run(story, brokers=1)


def test_a_mistake_of_ours_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from replication.replica_manager.high_watermarks import HighWatermarks

    async def mistaken(self: HighWatermarks) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HighWatermarks, "write", mistaken)

    async def story(cluster: SimulatedCluster, client: StoryClient) -> None:
        await cluster.clock.sleep(60)

    with pytest.raises(ZeroDivisionError):
        run(story, brokers=1)
