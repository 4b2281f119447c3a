"""A cluster with three controllers: one decides, the others follow it, and one of them takes over.

The times are those of Kafka's defaults: a voter begins an election when it has fetched nothing for two
seconds (`controller.quorum.fetch.timeout.ms`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from replication.cluster.cluster import Cluster, open_cluster
from replication.cluster.interface import NotInTimeError, NotPossibleError
from replication.controller.controller import Controller
from replication.controller.metrics import controller_metric, raft_metric
from replication.errors import ErrorCode
from replication.wire.add_raft_voter import AddRaftVoterRequest
from replication.wire.control_records import VoterEndpoint
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest
from scenarios.world.world import World
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, Stage, played_in

TAKEN_OVER_SECONDS = 8.0  # two lost elections included


def name_of(node_id: int) -> str:
    return f"c{node_id - 3000}" if node_id > 3000 else f"b{node_id}"


@asynccontextmanager
async def a_quorum(
    world: World, *, brokers: int = 3, session_ms: int = 1000
) -> AsyncIterator[Stage]:
    async with open_cluster(
        brokers=brokers,
        controllers=3,
        data_dir="/data",
        properties=QUICK | {"broker.session.timeout.ms": str(session_ms)},
        host_of=name_of,
        make_seams=lambda node_id: world.node(name_of(node_id)),
        make_sink=lambda node_id: world.sink(name_of(node_id)),
    ) as cluster:
        yield Stage(world, cluster, Client(world.node("client")))


def active(cluster: Cluster) -> Controller:
    controller = cluster.controller
    assert controller is not None
    return controller


async def create(stage: Stage, name: str) -> ErrorCode:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic])
    answer = await stage.client.ask(stage.address(1), request)
    return ErrorCode.of(answer.topics[0].error_code)


async def until_another_decides(cluster: Cluster, was: int) -> None:
    await cluster.until(
        lambda: cluster.active_controller not in (None, was),
        timeout_seconds=TAKEN_OVER_SECONDS,
        what="another controller decides",
    )


def is_everywhere(cluster: Cluster, topic: str) -> bool:
    """Return whether every running node has the topic in what it has committed."""
    images = [each.synced_image for each in cluster.controllers.values()]
    images += [each.metadata.image for each in cluster.brokers.values()]
    return all(topic in image.topics for image in images)


@played_in(a_quorum)
async def test_one_of_three_decides_and_all_have_what_it_has_decided(stage: Stage) -> None:
    cluster = stage.cluster
    assert cluster.controller_ids == [3001, 3002, 3003]
    assert sum(each.is_active for each in cluster.controllers.values()) == 1
    assert await create(stage, "t") is ErrorCode.NONE
    await cluster.until(lambda: is_everywhere(cluster, "t"), what="all nodes have the topic")


@played_in(a_quorum)
async def test_a_request_goes_on_while_another_controller_takes_over(stage: Stage) -> None:
    cluster = stage.cluster
    assert await create(stage, "before") is ErrorCode.NONE
    was = cluster.active_controller
    assert was is not None
    epoch = active(cluster).node.quorum.leader_epoch
    await cluster.kill_controller()
    began = cluster.clock.now()
    assert await create(stage, "after") is ErrorCode.NONE  # the broker has repeated it
    assert cluster.clock.now() - began < TAKEN_OVER_SECONDS
    assert cluster.active_controller not in (None, was)
    assert active(cluster).node.quorum.leader_epoch > epoch
    assert {"before", "after"} <= active(cluster).synced_image.topics.keys()
    await cluster.start_controller(was)
    await cluster.until(lambda: is_everywhere(cluster, "after"), what="it has caught up")


@played_in(a_quorum)
async def test_leaders_are_elected_by_the_controller_that_took_over(stage: Stage) -> None:
    cluster = stage.cluster
    await stage.client.create_topic(stage.address(1), "t", replicas=3)
    leader = await stage.leader("t")
    was = cluster.active_controller
    assert was is not None
    await cluster.kill_controller()
    await cluster.kill_broker(leader)
    assert await stage.leader("t", other_than=leader) != leader
    assert cluster.active_controller not in (None, was)
    await cluster.start_controller()
    await cluster.start_broker(leader)
    await stage.until_in_sync("t", 3)


@played_in(a_quorum)
async def test_no_minority_decides_anything(stage: Stage) -> None:
    cluster = stage.cluster
    first = cluster.active_controller
    assert first is not None
    await cluster.kill_controller()
    await until_another_decides(cluster, first)
    second = cluster.active_controller
    assert second is not None
    await cluster.kill_controller()
    with pytest.raises(NotInTimeError):
        await until_another_decides(cluster, second)
    with pytest.raises(NotPossibleError, match="no controller decides now"):
        await cluster.kill_controller()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, stage, "late")
        await cluster.clock.sleep(5)
        assert all("late" not in each.metadata.image.topics for each in cluster.brokers.values())
        await cluster.start_controller(first)
    await cluster.until(lambda: is_everywhere(cluster, "late"), what="two of three decide")


# A session is longer than a broker waits for the silent controller.
@pytest.mark.parametrize("away", ["frozen", "cut off"])
@played_in(a_quorum, session_ms=6000)
async def test_brokers_leave_a_controller_that_stays_silent(
    stage: Stage, world: World, away: str
) -> None:
    cluster = stage.cluster
    was = cluster.active_controller
    assert was is not None
    if away == "frozen":
        world.pause(name_of(was))
    else:
        world.network.isolate(name_of(was))
    assert await create(stage, "meanwhile") is ErrorCode.NONE
    world.resume(name_of(was))
    world.network.heal_all()
    await cluster.until(lambda: is_everywhere(cluster, "meanwhile"), what="it follows")
    assert sum(each.is_active for each in cluster.controllers.values()) == 1
    assert not cluster.controllers[was].is_active


@played_in(a_quorum)
async def test_each_controller_measures_its_place_in_the_quorum(stage: Stage) -> None:
    cluster = stage.cluster
    assert await create(stage, "t") is ErrorCode.NONE
    await cluster.until(lambda: is_everywhere(cluster, "t"), what="all nodes have the topic")
    read = {each: node.metrics.read for each, node in cluster.controllers.items()}
    ends = {each(raft_metric("log-end-offset")) for each in read.values()}
    assert ends == {active(cluster).log.log_end_offset}
    for node_id, measured in read.items():
        leads = node_id == cluster.active_controller
        assert measured(raft_metric("current-leader")) == cluster.active_controller
        assert measured(raft_metric("current-epoch")) == measured(raft_metric("log-end-epoch"))
        assert measured(raft_metric("number-of-voters")) == 3
        assert measured(raft_metric("current-state", state="leader")) == leads
        assert measured(raft_metric("current-state", state="follower")) == (not leads)
        assert measured(controller_metric("ActiveControllerCount")) == leads
    assert 0 < active(cluster).metrics.read(raft_metric("high-watermark")) <= max(ends)


@played_in(a_quorum)
async def test_brokers_describe_the_quorum(stage: Stage) -> None:
    topic = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)])
    answer = await stage.client.ask(stage.address(2), DescribeQuorumRequest(topics=[topic]))
    (quorum,) = answer.topics[0].partitions
    assert quorum.leader_id == stage.cluster.active_controller
    assert sorted(each.replica_id for each in quorum.current_voters) == [3001, 3002, 3003]
    assert sorted(each.replica_id for each in quorum.observers) == [1, 2, 3]
    assert sorted(each.node_id for each in answer.nodes) == [3001, 3002, 3003]


@played_in(a_quorum)
async def test_brokers_forward_changes_of_the_voters(stage: Stage) -> None:
    """The leader answers them: the voters of this quorum stand in no log."""
    was = stage.cluster.active_controller
    assert was is not None
    where = VoterEndpoint(name="CONTROLLER", host=name_of(3001), port=9093)
    add = AddRaftVoterRequest(
        cluster_id=None, voter_id=3001, voter_directory_id=b"d" * 16, listeners=[where]
    )
    remove = RemoveRaftVoterRequest(cluster_id=None, voter_id=3001, voter_directory_id=b"d" * 16)
    for request in (add, remove):
        answer = await stage.client.ask(stage.address(2), request)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    await stage.cluster.kill_controller(was)
    await until_another_decides(stage.cluster, was)
    answer = await stage.client.ask(stage.address(2), remove)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION, "the next leader answers"


@played_in(a_quorum)
async def test_a_cluster_of_several_controllers_is_stopped_and_comes_back(stage: Stage) -> None:
    cluster = stage.cluster
    assert await create(stage, "t") is ErrorCode.NONE
    await cluster.stop()
    await cluster.start()
    assert active(cluster).synced_image.topics.keys() >= {"t"}
