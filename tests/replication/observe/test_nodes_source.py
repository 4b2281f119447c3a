"""The state of a cluster, read from its nodes: a failover, a follower that lags, a cut."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from replication.cluster.cluster import Cluster, open_cluster
from replication.events import fan_out
from replication.leader.rules.isr import NEVER_MS
from replication.observe.cluster_state import (
    ObservedPartition,
    ObservedReplica,
    Role,
    Status,
    to_json,
    troubled_first,
)
from replication.observe.nodes_source import reader_of_nodes
from replication.observe.state_reader import IsrReasons, StateReader, why_out
from scenarios.world.world import World
from storage.checkpoint import EpochEntry
from storage.types import TopicPartition
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, Stage, name_of, played


@asynccontextmanager
async def watched(world: World, **properties: str) -> AsyncIterator[tuple[Stage, StateReader]]:
    reasons = IsrReasons(world.node("watcher").clock.now_ms)
    async with open_cluster(
        data_dir="/data",
        properties=QUICK | {key.replace("_", "."): value for key, value in properties.items()},
        host_of=name_of,
        make_seams=lambda node_id: world.node(name_of(node_id)),
        make_sink=lambda node_id: fan_out(world.sink(name_of(node_id)), reasons.sink),
    ) as cluster:
        stage = Stage(world, cluster, Client(world.node("client")))
        await stage.client.create_topic(stage.address(1), "t")
        await stage.leader("t")
        yield stage, reader_of_nodes(cluster, reasons)


async def partition_of(state: StateReader) -> ObservedPartition:
    (found,) = (each for each in (await state.read()).partitions if not each.is_internal)
    return found


async def replica_of(state: StateReader, broker: int) -> ObservedReplica:
    found = (await partition_of(state)).replica(broker)
    assert found is not None
    return found


async def logs_of(state: StateReader) -> dict[int, str]:
    return {each.broker: drawn(each) for each in (await partition_of(state)).replicas}


def drawn(replica: ObservedReplica) -> str:
    """Return the log drawn by its epochs, without those that have no records."""
    assert replica.epochs is not None
    assert replica.log_end_offset is not None
    starts = [each.start_offset for each in replica.epochs]
    return "".join(
        f"[e{each.epoch}: {each.start_offset}-{end - 1}]"
        for each, end in zip(replica.epochs, [*starts[1:], replica.log_end_offset], strict=True)
        if end > each.start_offset
    )


async def broker_of(state: StateReader, broker: int) -> tuple[Status, bool | None]:
    """Return the status of a broker, and whether the controller has fenced it."""
    (found,) = [each for each in (await state.read()).brokers if each.id == broker]
    return found.status, found.fenced


def has_reported(world: World, name: str) -> bool:
    return any(entry.event.name == name for entry in world.trace.entries)


@played
async def test_a_failover_is_shown_as_it_happens(world: World) -> None:
    async with watched(world) as (stage, state):
        victim = await stage.leader("t")
        await stage.client.produce(stage.address(victim), "t", b"a", b"b")
        before = await partition_of(state)
        assert (before.leader, before.leader_epoch, before.is_in_trouble) == (victim, 0, False)
        assert before.why == "the first replica of a new partition leads"
        assert await logs_of(state) == dict.fromkeys((1, 2, 3), "[e0: 0-1]")
        assert {each.lag for each in before.replicas} == {0}
        leads = await replica_of(state, victim)
        assert (leads.role, leads.high_watermark) == (Role.LEADER, 2)

        await stage.cluster.kill_broker(victim)
        dead = await replica_of(state, victim)
        assert (dead.role, dead.in_isr, dead.is_live) == (Role.DOWN, True, False)
        assert (dead.log_end_offset, dead.lag) == (2, None), "as it was seen last"
        assert "the controller removes it when the session of 1 s has expired" in dead.why
        assert await broker_of(state, victim) == (Status.DOWN, False), "not fenced yet"

        successor = await stage.leader("t", other_than=victim)
        await stage.client.produce(stage.address(successor), "t", b"c")
        after = await partition_of(state)
        assert (after.leader, after.leader_epoch) == (successor, 1)
        assert after.is_under_replicated
        assert after.why.startswith(f"{name_of(victim)} is fenced; ")
        dead = await replica_of(state, victim)
        assert dead.why.startswith(
            f"left the ISR: {name_of(victim)} was fenced: session expired, silent for "
        )
        assert dead.why.endswith("; its broker is down")
        assert dead.lag == 1
        assert await logs_of(state) == {victim: "[e0: 0-1]"} | dict.fromkeys(
            {1, 2, 3} - {victim}, "[e0: 0-1][e1: 2-2]"
        )
        statuses = {each.id: each.status for each in (await state.read()).brokers}
        assert statuses == {1: "up", 2: "up", 3: "up"} | {victim: "down"}
        assert await broker_of(state, victim) == (Status.DOWN, True)

        await stage.cluster.start_broker(victim)
        await stage.until_in_sync("t", 3)
        back = await replica_of(state, victim)
        assert (back.role, back.is_live, back.lag) == (Role.FOLLOWER, True, 0)
        assert back.why == (
            "in the ISR: it has all that the leader has; it joined because it had reached the high"
            " watermark 3 in this leader epoch"
        )


@played
async def test_a_follower_that_lags_leaves_with_its_lag_as_the_reason(world: World) -> None:
    async with watched(world, replica_lag_time_max_ms="2000") as (stage, state):
        leader = await stage.leader("t")
        follower = min({1, 2, 3} - {leader})
        world.network.cut(name_of(leader), name_of(follower))
        await stage.client.produce(stage.address(leader), "t", b"a", acks=1)
        lagging = await replica_of(state, follower)
        assert (lagging.in_isr, lagging.lag) == (True, 1)
        assert lagging.behind_since_ms not in (None, NEVER_MS)
        assert "behind for now: it is removed if that lasts longer than" in lagging.why
        assert "replica.lag.time.max.ms (2 s)" in lagging.why
        await stage.until_in_sync("t", 2)
        left = await replica_of(state, follower)
        assert left.why.startswith("left the ISR: it lacked up to 1 records for ")
        assert left.why.endswith("; it joins again when it has reached the high watermark")
        assert left.behind_since_ms == lagging.behind_since_ms
        world.network.heal_all()
        await stage.until_in_sync("t", 3)
        assert (await replica_of(state, follower)).behind_since_ms is None


@played
async def test_a_leader_that_is_cut_off_is_deposed_and_was_fenced(world: World) -> None:
    """It asks for an ISR of itself alone; the request never reaches the controller."""
    async with watched(world, replica_lag_time_max_ms="500", broker_session_timeout_ms="3000") as (
        stage,
        state,
    ):
        leader = await stage.leader("t")
        world.network.isolate(name_of(leader))
        world.network.heal(name_of(leader), "client")
        await stage.client.produce(stage.address(leader), "t", b"only here", acks=1)
        await stage.cluster.until(lambda: has_reported(world, "isr_change_proposed"))
        await stage.leader("t", other_than=leader)
        zombie = await replica_of(state, leader)
        assert (zombie.role, zombie.leader_epoch, zombie.in_isr) == (Role.DEPOSED, 0, False)
        assert zombie.why.startswith(f"left the ISR: {name_of(leader)} was fenced: ")
        assert zombie.log_end_offset == 1
        world.network.heal_all()


@played
async def test_the_quorum_is_shown_with_the_metadata_that_each_node_has(world: World) -> None:
    async with watched(world) as (stage, state):
        await stage.cluster.until(lambda: image_is_everywhere(stage.cluster))
        quorum = (await state.read()).quorum
        controller = stage.cluster.controller
        assert quorum is not None
        assert controller is not None
        assert (quorum.leader, quorum.leader_epoch) == (0, controller.log.leading_epoch)
        assert quorum.high_watermark == controller.log.high_watermark
        assert [each.id for each in quorum.voters] == [0]
        assert [each.id for each in quorum.observers] == [1, 2, 3]
        assert [quorum.lag(each) for each in (0, 1, 2, 3)] == [0, 0, 0, 0]


def image_is_everywhere(cluster: Cluster) -> bool:
    controller = cluster.controller
    return controller is not None and all(
        each.metadata.image.offset == controller.image.offset for each in cluster.brokers.values()
    )


@played
async def test_a_controller_that_is_away_is_down_and_the_rest_is_shown(world: World) -> None:
    async with watched(world) as (stage, state):
        await stage.cluster.kill_controller()
        found = await state.read()
        assert (found.controller, found.controller_status) == (0, Status.DOWN)
        assert found.quorum is not None
        assert (found.quorum.leader, found.quorum.voters[0].status) == (None, Status.DOWN)
        assert len(found.partitions) == found.number_of_partitions


def test_partitions_in_trouble_are_shown_first_and_internal_ones_last() -> None:
    partitions = {
        TopicPartition("__offsets", 0): False,
        TopicPartition("a", 0): False,
        TopicPartition("b", 0): False,
        TopicPartition("z", 0): True,
    }
    internal = frozenset({"__offsets"})
    assert troubled_first(partitions, internal, 2) == [("a", 0), ("z", 0)]
    assert troubled_first(partitions, internal, 3) == [("a", 0), ("b", 0), ("z", 0)]


def test_json_has_words_and_null_for_unknown_values() -> None:
    replica = ObservedReplica(broker=1, role=Role.UNKNOWN, in_isr=True, epochs=(EpochEntry(0, 0),))
    found = json.loads(to_json([replica]))
    assert found[0]["role"] == "unknown"
    assert found[0]["epochs"] == [[0, 0]]
    assert found[0]["log_end_offset"] is None


def test_an_unknown_reason_is_not_made_up() -> None:
    replica = ObservedReplica(broker=1, role=Role.FOLLOWER, in_isr=False)
    assert why_out(replica, None, "") == "out of the ISR since before the first look"
