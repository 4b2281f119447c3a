"""Voters that stand in the log: controllers are added and removed while the quorum works (KIP-853)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from replication.controller.controller import Controller
from replication.errors import ErrorCode
from replication.metadata.rules.checkpoint import BOOTSTRAP_SNAPSHOT_ID, checkpoint_name
from replication.metadata.rules.formatting import initial_voters
from replication.metadata.rules.records import METADATA_PARTITION
from replication.raft.rules.types import ReplicaKey
from replication.raft.rules.voters import NO_VOTERS, VoterSet
from replication.wire.add_raft_voter import AddRaftVoterRequest
from replication.wire.control_records import VoterEndpoint
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.fetch import NO_SNAPSHOT
from replication.wire.remove_raft_voter import RemoveRaftVoterRequest
from scenarios.world.world import World
from storage.checkpoint import uuid_text
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import played
from tests.replication.raft.running_quorum import (
    IDS,
    RunningQuorum,
    create,
    directory_id,
    dynamic_config,
    fetch_metadata,
    format_controller,
    join,
    name_of,
    running,
    voter,
)


@asynccontextmanager
async def standalone(world: World) -> AsyncIterator[RunningQuorum]:
    """One voter, and two controllers that only observe."""
    for each in IDS:
        voters = VoterSet((voter(IDS[0]),)) if each == IDS[0] else None
        format_controller(world, each, voters, is_dynamic=True)
    async with running(world, dynamic_config) as opened:
        yield opened


@pytest.mark.conformance("KR-575")
@played
async def test_three_initial_controllers_elect_one(world: World) -> None:
    text = ",".join(f"{each}@{name_of(each)}:9093:{uuid_text(directory_id(each))}" for each in IDS)
    voters = initial_voters(text, listener="CONTROLLER")
    for each in IDS:
        format_controller(world, each, voters, is_dynamic=True)
    async with running(world, dynamic_config) as three:
        first = await three.leader()
        assert first.node.quorum.voters == voters
        assert first.node.quorum.kraft_version == 1
        await join(first)
        assert await create(first, "t") is ErrorCode.NONE
        await three.until_equal()
        three.kill(first.config.node_id)
        assert "t" in (await three.leader()).image.topics


async def add(leader: Controller, node_id: int) -> ErrorCode:
    request = AddRaftVoterRequest(
        cluster_id="a-quorum",
        timeout_ms=5000,
        voter_id=node_id,
        voter_directory_id=directory_id(node_id),
        listeners=[VoterEndpoint(name="CONTROLLER", host=name_of(node_id), port=9093)],
    )
    return ErrorCode.of((await leader.node.change_voters(request)).error_code)


async def remove(leader: Controller, node_id: int) -> ErrorCode:
    request = RemoveRaftVoterRequest(
        cluster_id="a-quorum", voter_id=node_id, voter_directory_id=directory_id(node_id)
    )
    return ErrorCode.of((await leader.node.change_voters(request)).error_code)


@pytest.mark.conformance("KR-524", "KR-569")
@pytest.mark.conformance("KR-209")
@played
async def test_observers_become_voters_and_one_of_them_leads(world: World) -> None:
    async with standalone(world) as three:
        leader = await three.leader()
        assert leader.config.node_id == IDS[0]
        assert leader.node.quorum.is_only_voter
        assert leader.node.quorum.me == ReplicaKey(IDS[0], directory_id(IDS[0]))
        assert leader.node.quorum.kraft_version == 1
        await join(leader)
        assert await create(leader, "before") is ErrorCode.NONE
        await three.until_equal()
        topic = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition()])
        described = await leader.answer_client(DescribeQuorumRequest(topics=[topic]))
        (partition,) = described.topics[0].partitions
        observers = {each.replica_id: each.replica_directory_id for each in partition.observers}
        assert observers.keys() == {1, *IDS[1:]}, "broker 1 has fetched"
        assert observers[IDS[1]] == directory_id(IDS[1])
        for each in IDS[1:]:
            assert await add(leader, each) is ErrorCode.NONE
        assert leader.node.quorum.voters.ids == set(IDS)
        assert await add(leader, IDS[1]) is ErrorCode.DUPLICATE_VOTER
        assert await create(leader, "after") is ErrorCode.NONE
        three.kill(IDS[0])
        second = await three.leader()
        assert set(second.image.topics) == {"before", "after"}
        assert await remove(second, IDS[0]) is ErrorCode.NONE
        assert second.node.quorum.voters.ids == set(IDS[1:])
        assert await create(second, "later") is ErrorCode.NONE


@played
async def test_a_controller_whose_directory_names_no_voters_leads_nobody(world: World) -> None:
    """Apache Kafka before 4.4 leaves a directory so, with --no-initial-controllers."""
    format_controller(world, IDS[0], is_dynamic=True)
    disk = world.node(name_of(IDS[0])).file_system
    disk.remove(f"/controller/{METADATA_PARTITION}/{checkpoint_name(BOOTSTRAP_SNAPSHOT_ID)}")
    async with trio.open_nursery() as nursery:
        alone = RunningQuorum(world, nursery, dynamic_config)
        controller = await alone.start(IDS[0])
        await world.node("client").clock.sleep(60)
        assert not controller.is_active
        assert controller.node.quorum.voters == NO_VOTERS
        alone.kill(IDS[0])


@pytest.mark.conformance("KR-400")
@played
async def test_the_leader_sends_no_bootstrap_snapshot(world: World) -> None:
    async with standalone(world) as three:
        leader = await three.leader()
        names = leader.seams.file_system.list_directory(leader.log.log.directory)
        assert "00000000000000000000-0000000000.checkpoint" in names
        epoch = leader.node.quorum.leader_epoch
        fetched = await fetch_metadata(Client(world.node("client")), IDS[0], leader_epoch=epoch)
        ((data,),) = [topic.partitions for topic in fetched.responses]
        assert data.error_code == ErrorCode.NONE
        assert data.snapshot_id == NO_SNAPSHOT
        assert data.records


@pytest.mark.conformance("KR-401")
@pytest.mark.conformance("KR-402")
@pytest.mark.conformance("KR-404")
@played
async def test_an_observer_that_knows_no_voter_learns_of_them_from_the_log(world: World) -> None:
    """It finds the leader at a bootstrap server, and fetches no bootstrap snapshot."""
    async with standalone(world) as three:
        leader = await three.leader()
        observer = three.running[IDS[1]]
        await world.node("client").clock.sleep(3)
        quorum = observer.node.quorum
        assert (quorum.leader_id, quorum.kraft_version) == (IDS[0], 1)
        assert quorum.voters.keys == {ReplicaKey(IDS[0], directory_id(IDS[0]))}
        assert quorum.voters_offset == leader.node.quorum.voters_offset
        requests = {
            dict(name.tags).get("request")
            for name, _ in leader.metrics.snapshot()
            if name.name == "RequestsPerSec"
        }
        assert "Fetch" in requests
        assert "FetchSnapshot" not in requests


@played
async def test_the_voters_are_kept_in_the_snapshot(world: World) -> None:
    async with standalone(world) as three:
        leader = await three.leader()
        await join(leader)
        assert await create(leader, "before") is ErrorCode.NONE
        await three.until_equal()
        assert await add(leader, IDS[1]) is ErrorCode.NONE
        await leader.log.take_snapshot()
        assert leader.log.snapshot is not None
        assert leader.log.snapshot.voters.kraft_version == 1
        three.kill(IDS[0])
        back = await three.start(IDS[0])
        assert back.node.quorum.voters.ids == set(IDS[:2])
        assert await create(await three.leader(), "t") is ErrorCode.NONE


@played
async def test_over_the_wire_a_standby_refuses_to_change_the_voters(world: World) -> None:
    async with standalone(world) as three:
        await three.leader()
        client = Client(world.node("client"))
        request = RemoveRaftVoterRequest(
            cluster_id="a-quorum", voter_id=IDS[0], voter_directory_id=directory_id(IDS[0])
        )
        answer = await client.ask(f"{name_of(IDS[1])}:9093", request)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
