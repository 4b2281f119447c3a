"""Three controllers, each on a node of its own: they elect, replicate, and survive each other."""

import pytest
import trio

from replication.controller.controller import Controller
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.events import LogDirectoryFailed
from replication.metadata.rules.records import METADATA_TOPIC_ID
from replication.raft.quorum_state import read_quorum_state
from replication.raft.rules.states import Leading
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from replication.wire.refusals import error_of_whole
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.testing import Fault
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import played
from tests.replication.raft.running_quorum import IDS, create, fetch_metadata, join, name_of, quorum


@pytest.mark.conformance("KR-200")
@played
async def test_three_elect_one_and_the_others_follow_it(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        assert await create(leader, "t") is ErrorCode.NONE
        await three.until_equal()
        for each in three.running.values():
            assert list(each.log.committed_image.topics) == ["t"]
            assert each.node.quorum.leader_id == leader.config.node_id


@pytest.mark.conformance("KR-201")
@played
async def test_the_kill_of_the_leader_loses_nothing_that_was_answered(world: World) -> None:
    async with quorum(world) as three:
        first = await three.leader()
        await join(first)
        assert await create(first, "before") is ErrorCode.NONE
        dead = first.config.node_id
        three.kill(dead)
        second = await three.leader()
        assert second.config.node_id != dead
        assert second.node.quorum.leader_epoch > first.node.quorum.leader_epoch
        assert "before" in second.image.topics
        assert await create(second, "after") is ErrorCode.NONE
        back = await three.start(dead)
        await three.until_equal()
        assert not back.is_active
        assert set(back.log.committed_image.topics) == {"before", "after"}


@pytest.mark.conformance("KR-98")
@played
async def test_a_leader_that_is_shut_down_is_followed_by_another_at_once(world: World) -> None:
    async with quorum(world) as three:
        first = await three.leader()
        await join(first)
        assert await create(first, "before") is ErrorCode.NONE
        began = first.seams.clock.now_ms()
        taken = await three.stop(first.config.node_id)
        second = await three.leader()
        waited_ms = second.seams.clock.now_ms() - began
        assert taken < 0.1, "the voters have answered"
        assert waited_ms < second.config.controller_quorum_election_timeout_ms
        assert "before" in second.image.topics
        assert await create(second, "after") is ErrorCode.NONE


@pytest.mark.conformance("KR-210")
@played
async def test_a_leader_without_voters_is_shut_down_all_the_same(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        for each in IDS:
            if each != leader.config.node_id:
                world.network.isolate(name_of(each))
        seconds = await three.stop(leader.config.node_id)
        assert seconds * 1000 <= leader.config.controller_quorum_request_timeout_ms


@played
async def test_all_controllers_are_shut_down_together(world: World) -> None:
    async with quorum(world) as three:
        leader = (await three.leader()).config.node_id
        for each in IDS:
            if each != leader:
                assert await three.stop(each) == 0, "only the leader has something to say"
        assert await three.stop(leader) < 0.1


@pytest.mark.conformance("KR-507")
@pytest.mark.conformance("KR-202")
@played
async def test_a_leader_without_a_majority_decides_nothing(world: World) -> None:
    """It answers what it could not commit as NOT_CONTROLLER, once it has resigned."""
    async with quorum(world) as three:
        old = await three.leader()
        await join(old)
        cut_off = old.config.node_id
        others = tuple(each for each in IDS if each != cut_off)
        world.network.isolate(name_of(cut_off))
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await create(old, "undecided")
        new = await three.leader(among=others)
        assert not old.is_active
        assert "undecided" not in new.image.topics
        assert await create(new, "decided") is ErrorCode.NONE
        world.network.heal_all()
        await three.until_equal()
        assert list(old.log.committed_image.topics) == ["decided"]
        assert list(old.image.topics) == ["decided"]


@played
async def test_a_fetch_that_waits_is_no_new_sign_of_life(world: World) -> None:
    """A record wakes the waiting fetches of voters that are cut off: they have not fetched again."""
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        clock = world.node("client").clock
        await clock.sleep(1)
        before = last_fetches(leader)
        while last_fetches(leader)[-1] == before[-1]:
            await clock.sleep(0.01)
        world.network.isolate(name_of(leader.config.node_id))
        last_ms = last_fetches(leader)[-1]
        await clock.sleep(0.4)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
            await create(leader, "undecided")
        wait_ms = leader.config.controller_quorum_fetch_timeout_ms * 3 // 2
        assert leader.seams.clock.now_ms() == last_ms + wait_ms


def last_fetches(leader: Controller) -> list[int]:
    """Return when each other voter has sent its last fetch, the latest last."""
    state = leader.node.quorum.state
    assert isinstance(state, Leading)
    others = [each for each in state.progress.voters.keys if each != state.progress.me]
    times = [state.progress.of(each).last_fetch_ms for each in others]
    return sorted(each for each in times if each is not None)


@pytest.mark.conformance("KR-203")
@played
async def test_one_of_three_elects_nobody(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        left, *killed = sorted(IDS, key=lambda each: each == leader.config.node_id)
        for each in killed:
            three.kill(each)
        await world.node("client").clock.sleep(20)
        assert three.active == []
        epoch = three.running[left].node.quorum.leader_epoch
        assert epoch == leader.node.quorum.leader_epoch, "a pre-vote raises no epoch (KIP-996)"
        await three.start(killed[0])
        assert (await three.leader()).node.quorum.leader_epoch > epoch


@pytest.mark.conformance("KR-204")
@played
async def test_an_empty_follower_fetches_a_snapshot(world: World) -> None:
    async with quorum(world, snapshot_bytes=500) as three:
        leader = await three.leader()
        await join(leader)
        behind = next(each for each in IDS if each != leader.config.node_id)
        three.kill(behind)
        for number in range(20):
            assert await create(leader, f"t{number}") is ErrorCode.NONE
        assert leader.log.log.log_start_offset > 0
        back = await three.start(behind)
        await three.until_equal()
        assert len(back.log.committed_image.topics) == 20
        assert back.log.log.log_start_offset > 0


@pytest.mark.conformance("KR-205")
@played
async def test_a_restart_keeps_the_vote_and_the_epoch(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        voter = next(each for each in IDS if each != leader.config.node_id)
        directory = three.running[voter].log.log.directory
        before = read_quorum_state(world.node(name_of(voter)).file_system, directory)
        assert before is not None
        assert (before.leader_epoch, before.leader_id) == (
            leader.node.quorum.leader_epoch,
            leader.config.node_id,
        )
        three.kill(voter)
        world.crash_disk(name_of(voter))
        again = await three.start(voter)
        assert again.node.quorum.leader_epoch >= before.leader_epoch
        assert again.node.quorum.leader_id == before.leader_id


@pytest.mark.parametrize("seed", range(5))
def test_all_three_lose_their_power_and_nothing_that_was_answered(seed: int) -> None:
    async def story(world: World) -> None:
        answered: list[str] = []
        async with quorum(world) as three:
            leader = await three.leader()
            await join(leader)

            with world.node("client").clock.move_on_after(0.3):
                while await create(leader, f"t{len(answered)}") is ErrorCode.NONE:
                    answered.append(f"t{len(answered)}")
            for each in IDS:
                three.kill(each)
                world.crash_disk(name_of(each))
            for each in IDS:
                await three.start(each)
            again = await three.leader()
            assert answered
            assert set(answered) <= set(again.image.topics)
            await three.until_equal()

    World(seed=seed).run(story)


@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "a standby"])
@played
async def test_a_controller_whose_disk_fails_ends_with_its_name(world: World, leads: bool) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        victim = next(each for each in IDS if (each == leader.config.node_id) == leads)
        ended: list[BaseException] = []
        three.on_end[victim] = ended.append
        world.disk(name_of(victim)).faults.append(
            Fault(operation="sync", names="*.log", times=None)
        )
        if leads:
            with pytest.raises((KafkaError, PeerUnavailableError)):
                await create(leader, "undecided")
            leader = await three.leader(among=tuple(each for each in IDS if each != victim))
        assert await create(leader, "decided") is ErrorCode.NONE
        await three.ended[victim].wait()
        assert [type(each) for each in ended] == [KafkaStorageError]
        (failed,) = [
            each.node for each in world.trace.entries if isinstance(each.event, LogDirectoryFailed)
        ]
        assert failed == name_of(victim)


@played
async def test_a_vote_that_cannot_be_kept_ends_the_node(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        standby = next(each for each in IDS if each != leader.config.node_id)
        ended: list[BaseException] = []
        three.on_end[standby] = ended.append
        world.disk(name_of(standby)).faults.append(
            Fault(operation="write", names="quorum-state*", times=None)
        )
        three.kill(leader.config.node_id)
        await world.node("client").clock.sleep(10)
        assert [type(each) for each in ended] == [KafkaStorageError]
        assert three.active == []


@pytest.mark.conformance("KR-508")
@played
async def test_a_standby_answers_who_leads(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        standby = next(each for each in three.running.values() if each is not leader)
        client = Client(world.node("client"))
        address = f"{name_of(standby.config.node_id)}:9093"
        heartbeat = await client.ask(
            address,
            BrokerHeartbeatRequest(
                broker_id=1, broker_epoch=0, current_metadata_offset=0, offline_log_dirs=[]
            ),
        )
        assert heartbeat.error_code == ErrorCode.NOT_CONTROLLER
        epoch = leader.node.quorum.leader_epoch
        fetched = await fetch_metadata(client, standby.config.node_id, leader_epoch=epoch)
        ((data,),) = [topic.partitions for topic in fetched.responses]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert data.current_leader.leader_id == leader.config.node_id
        (where,) = fetched.node_endpoints
        assert (where.host, where.port) == (name_of(leader.config.node_id), 9093)


@pytest.mark.conformance("KR-525")
@pytest.mark.conformance("KR-206")
@played
async def test_the_leader_describes_how_far_each_voter_is(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        await three.until_equal()
        await world.node("client").clock.sleep(1)
        topic = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition()])
        described = await leader.answer_client(DescribeQuorumRequest(topics=[topic]))
        (partition,) = described.topics[0].partitions
        assert partition.leader_id == leader.config.node_id
        assert [each.replica_id for each in partition.current_voters] == list(IDS)
        assert {each.log_end_offset for each in partition.current_voters} == {
            leader.log.log_end_offset
        }
        assert [each.node_id for each in described.nodes] == list(IDS)


@pytest.mark.conformance("KR-522", "KR-526", "KR-571", "KR-573", "KR-574")
@played
async def test_a_fetch_that_waits_is_answered_when_its_leader_resigns(world: World) -> None:
    """Or when its time is over, without records; only the leader describes the quorum."""
    async with quorum(world) as three:
        leader = await three.leader()
        await three.until_equal()
        clock, client = world.node("client").clock, Client(world.node("client"))
        await clock.sleep(2)
        asked = FetchPartition(
            current_leader_epoch=leader.node.quorum.leader_epoch,
            fetch_offset=leader.log.log_end_offset,
            last_fetched_epoch=leader.node.quorum.leader_epoch,
            high_watermark=leader.log.high_watermark,
        )
        request = FetchRequest(
            max_wait_ms=1000,
            session_epoch=0,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])],
        )
        address, began = f"{name_of(leader.config.node_id)}:9093", clock.now()
        ((data,),) = [each.partitions for each in (await client.ask(address, request)).responses]
        assert (data.error_code, bytes(data.records or b"")) == (ErrorCode.NONE, b"")
        assert 1 <= clock.now() - began < 1.5

        async def resign() -> None:
            await clock.sleep(0.2)
            leader.node.resign(leader.node.quorum.leader_epoch)

        began = clock.now()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resign)
            response = await client.ask(address, request)
        ((data,),) = [each.partitions for each in response.responses]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert clock.now() - began < 0.5
        topic = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition()])
        refused = await client.ask(address, DescribeQuorumRequest(topics=[topic]))
        assert error_of_whole(refused) != ErrorCode.NONE


@pytest.mark.conformance("KR-561")
@played
async def test_the_metrics_say_who_leads(world: World) -> None:
    async with quorum(world) as three:
        leader = await three.leader()
        await join(leader)
        await three.until_equal()
        for each in three.running.values():
            found = {
                name.name: value
                for name, value in each.metrics.snapshot()
                if name.type == "raft-metrics"
            }
            assert found["current-leader"] == leader.config.node_id
            assert found["current-epoch"] == leader.node.quorum.leader_epoch
            assert found["high-watermark"] <= found["log-end-offset"] == each.log.log_end_offset
            assert found["number-of-voters"] == len(IDS)
