"""Nodes with both roles: three of them are a cluster, and each has one copy of the metadata log."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from replication.broker.combined import CombinedNode
from replication.cluster.cluster import open_cluster
from replication.errors import ConfigError, ErrorCode, raise_bug
from replication.metadata.rules.records import METADATA_PARTITION
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from scenarios.world.world import World
from storage.checkpoint import META_PROPERTIES
from storage.errors import InconsistentMetadataError, KafkaStorageError
from storage.filesystem import make_lasting_directory
from storage.testing import Fault
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, Stage, name_of, played, played_in

TAKEN_OVER_SECONDS = 8.0  # two lost elections included


@asynccontextmanager
async def combined(
    world: World, *, brokers: int = 3, controllers: int = 3, **properties: str
) -> AsyncIterator[Stage]:
    async with open_cluster(
        brokers=brokers,
        controllers=controllers,
        combined=True,
        data_dir="/data",
        properties=QUICK | {key.replace("_", "."): value for key, value in properties.items()},
        host_of=name_of,
        make_seams=lambda node_id: world.node(name_of(node_id)),
        make_sink=lambda node_id: world.sink(name_of(node_id)),
    ) as cluster:
        yield Stage(world, cluster, Client(world.node("client")))


@played_in(combined)
async def test_three_nodes_with_both_roles_are_a_cluster(stage: Stage) -> None:
    cluster = stage.cluster
    assert cluster.node_ids == cluster.controller_ids == cluster.broker_ids == [1, 2, 3]
    assert sum(each.is_active for each in cluster.controllers.values()) == 1
    topic_id = await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    answer = await stage.client.produce(stage.address(leader), "t", b"one")
    assert answer.error_code == ErrorCode.NONE
    assert await stage.client.read_all(stage.address(leader), topic_id) == [b"one"]


@played_in(combined)
async def test_a_node_has_one_copy_and_one_owner_of_its_directory(
    stage: Stage, world: World
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    for node_id, broker in stage.cluster.brokers.items():
        disk = world.node(name_of(node_id)).file_system
        assert disk.list_directory("/data") == [f"broker-{node_id}"]
        found = disk.list_directory(f"/data/broker-{node_id}")
        assert found == ["log"]
        names = disk.list_directory(f"/data/broker-{node_id}/log")
        assert {str(METADATA_PARTITION), META_PROPERTIES, "t-0"} <= {*names}
        assert broker.logs.get(METADATA_PARTITION) is None
        (directory,) = broker.logs.directories
        assert directory.directory_id is not None
        node = stage.cluster.controllers[node_id].node
        assert node.quorum.me.directory_id == directory.directory_id


@played_in(combined)
async def test_no_broker_fetches_metadata_that_its_controller_has(
    stage: Stage, world: World
) -> None:
    quorum = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)])
    answer = await stage.client.ask(stage.address(1), DescribeQuorumRequest(topics=[quorum]))
    (described,) = answer.topics[0].partitions
    assert {each.replica_id for each in described.current_voters} == {1, 2, 3}
    assert not described.observers


@played_in(combined)
async def test_a_change_is_answered_when_every_node_has_committed_it(stage: Stage) -> None:
    """An administrator's change waits for all brokers, and none of them costs its patience."""
    clock = stage.cluster.clock
    began = clock.now()
    await stage.client.create_topic(stage.address(1), "t")
    assert clock.now() - began < 0.4
    for controller in stage.cluster.controllers.values():
        assert "t" in controller.node.cache.image.topics


@played_in(combined, min_insync_replicas="2")
async def test_the_node_that_leads_everything_is_killed(stage: Stage) -> None:
    cluster = stage.cluster
    victim = cluster.active_controller
    assert victim is not None
    replicas = [victim, *(each for each in cluster.node_ids if each != victim)]
    assigned = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned]
    )
    created = await stage.client.ask(stage.address(victim), CreateTopicsRequest(topics=[topic]))
    assert await stage.leader("t") == victim
    answer = await stage.client.produce(stage.address(victim), "t", b"before")
    assert answer.error_code == ErrorCode.NONE
    await cluster.kill_node(victim)
    leader = await stage.leader("t", other_than=victim)
    assert cluster.active_controller not in (None, victim)
    answer = await stage.client.produce(stage.address(leader), "t", b"after")
    assert answer.error_code == ErrorCode.NONE
    await cluster.start_node(victim)
    await stage.until_in_sync("t", 3)
    values = await stage.client.read_all(stage.address(leader), created.topics[0].topic_id)
    assert values == [b"before", b"after"]


@played_in(combined, brokers=3, controllers=1)
async def test_one_node_may_be_the_controller_of_several_brokers(stage: Stage) -> None:
    assert stage.cluster.controller_ids == [1]
    assert stage.cluster.broker_ids == [1, 2, 3]
    await stage.client.create_topic(stage.address(2), "t")
    await stage.cluster.kill_node(1)
    await stage.cluster.start_node(1)
    await stage.until_in_sync("t", 3)


@pytest.mark.parametrize("failing", ["/a", "/b", "the metadata log"])
@played
async def test_a_node_ends_with_the_directory_of_its_metadata(world: World, failing: str) -> None:
    async with combined(world, log_dirs="/a,/b") as stage:
        cluster = stage.cluster
        await stage.client.create_topic(stage.address(1), "t", partitions=2)
        await cluster.until(lambda: len(cluster.brokers[2].hosted) == 2)
        logs = cluster.brokers[2].logs
        found = [each for each in logs.directories if each.path == failing]
        if found:
            logs.fail(found[0], OSError(errno.EIO, "the disk is dead"))
        else:
            world.disk(name_of(2)).faults.append(Fault(operation="sync", names="*.log", times=None))
        await stage.client.create_topic(stage.address(3), "u", replicas=1)
        if failing != "/b":
            await cluster.until(lambda: not cluster.is_up(2), what="node 2 ends")
            assert isinstance(cluster.failures[2], KafkaStorageError)
            world.disk(name_of(2)).faults.clear()
            await cluster.start_node(2)
        assert cluster.is_up(2)
        again = cluster.controllers[2].node
        await cluster.until(lambda: "u" in again.cache.image.topics, what="it has caught up")


@played_in(combined)
async def test_a_node_that_is_stopped_before_it_starts_ends(stage: Stage, world: World) -> None:
    await stage.cluster.stop_node(1)
    seams = world.node(name_of(1))
    node = CombinedNode(config=stage.cluster.configs[1], seams=seams, on_bug=raise_bug)
    node.shut_down()
    await node.run()
    assert seams.file_system.exists("/data/broker-1/log/.kafka_cleanshutdown")


@played
async def test_the_directory_of_an_older_release_is_refused(world: World) -> None:
    disk = world.node(name_of(1)).file_system
    former = "/data/broker-1/log.controller"
    make_lasting_directory(disk, f"{former}/{METADATA_PARTITION}")
    with pytest.raises(InconsistentMetadataError, match=f"set metadata.log.dir={former}"):
        async with combined(world, controllers=1):
            pass
    assert not disk.exists(f"/data/broker-1/log/{META_PROPERTIES}")


@played
async def test_controllers_without_a_broker_of_their_own_are_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="controllers=3: expected at most 2"):
        async with combined(world, brokers=2, controllers=3):
            pass
