"""Three controllers, each on a node of its own: they elect, replicate, and survive each other."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

from replication.config import BrokerConfig, ListenerConfig
from replication.config.listeners import Voter
from replication.controller.controller import Controller
from replication.errors import ErrorCode, KafkaError, PeerUnavailableError
from replication.events import LogDirectoryFailed
from replication.metadata.rules.records import METADATA_TOPIC_ID
from replication.raft.quorum_state import read_quorum_state
from replication.wire.broker_heartbeat import BrokerHeartbeatRequest
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.testing import Fault
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import played
from tests.replication.controller.running_controller import Registered, fail

IDS = (3001, 3002, 3003)


def name_of(node_id: int) -> str:
    return f"controller-{node_id}"


def config_of(node_id: int, *, snapshot_bytes: int) -> BrokerConfig:
    return BrokerConfig(
        node_id=node_id,
        process_roles=("controller",),
        listeners=(ListenerConfig("CONTROLLER", name_of(node_id), 9093),),
        controller_listener_names=("CONTROLLER",),
        controller_quorum_voters=tuple(Voter(each, name_of(each), 9093) for each in IDS),
        cluster_id="a-quorum",
        log_dirs=("/controller",),
        log_index_size_max_bytes=4096,
        metadata_log_max_record_bytes_between_snapshots=snapshot_bytes,
    )


@attrs.define
class RunningQuorum:
    """The controllers that run, each started and killed by itself."""

    world: World
    nursery: trio.Nursery
    config_of: Callable[[int], BrokerConfig]
    running: dict[int, Controller] = attrs.field(factory=dict)
    scopes: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    on_end: dict[int, Callable[[BaseException], object]] = attrs.field(factory=dict)
    ended: dict[int, trio.Event] = attrs.field(factory=dict)

    async def start(self, node_id: int) -> Controller:
        name = name_of(node_id)
        controller = Controller(
            config=self.config_of(node_id),
            seams=self.world.node(name),
            sink=self.world.sink(name),
            on_bug=fail,
        )
        scope = self.scopes[node_id] = trio.CancelScope()
        ended = self.ended[node_id] = trio.Event()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            try:
                with scope:
                    await controller.run(task_status)
            except KafkaStorageError as error:
                self.on_end[node_id](error)
                del self.running[node_id]
            finally:
                ended.set()

        await self.nursery.start(run)
        self.running[node_id] = controller
        return controller

    def kill(self, node_id: int) -> None:
        self.world.kill(name_of(node_id))
        self.scopes.pop(node_id).cancel()
        del self.running[node_id]

    async def stop(self, node_id: int) -> float:
        """Shut a controller down, and return how many seconds that took."""
        clock = self.world.node("client").clock
        began = clock.now()
        self.running.pop(node_id).shut_down()
        await self.ended[node_id].wait()
        return clock.now() - began

    @property
    def active(self) -> list[int]:
        return [each for each, controller in self.running.items() if controller.is_active]

    async def leader(self, *, among: tuple[int, ...] = IDS, within: float = 20) -> Controller:
        """Wait for the one active controller among these."""
        clock = self.world.node("client").clock
        for _ in range(int(within * 20)):
            found = [each for each in self.active if each in among]
            if len(found) == 1:
                return self.running[found[0]]
            await clock.sleep(0.05)
        raise AssertionError(f"active: {self.active}")

    async def until_equal(self) -> None:
        """Wait until all that run have the same committed topics."""
        clock = self.world.node("client").clock
        for _ in range(400):
            if (
                len({frozenset(each.log.committed_image.topics) for each in self.running.values()})
                == 1
            ):
                return
            await clock.sleep(0.05)
        raise AssertionError(
            {
                each: controller.log.committed_image.topics.keys()
                for each, controller in self.running.items()
            }
        )


@asynccontextmanager
async def quorum(world: World, *, snapshot_bytes: int = 20 << 20) -> AsyncIterator[RunningQuorum]:
    async with trio.open_nursery() as nursery:
        opened = RunningQuorum(world, nursery, partial(config_of, snapshot_bytes=snapshot_bytes))
        for each in IDS:
            await opened.start(each)
        try:
            yield opened
        finally:
            for each in list(opened.running):
                opened.kill(each)
            nursery.cancel_scope.cancel()


async def join(controller: Controller) -> Registered:
    broker = Registered(controller, 1)
    await broker.register()
    await broker.heartbeat()
    return broker


async def create(controller: Controller, name: str) -> ErrorCode:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )
    response = await controller.answer_client(request)
    return ErrorCode.of(response.topics[0].error_code)


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
        asked = FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0)
        fetched = await client.ask(
            address,
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                session_epoch=0,
                topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])],
            ),
        )
        ((data,),) = [topic.partitions for topic in fetched.responses]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert data.current_leader.leader_id == leader.config.node_id
        (where,) = fetched.node_endpoints
        assert (where.host, where.port) == (name_of(leader.config.node_id), 9093)


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
