"""Three controllers, each on a node of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from replication.config import BrokerConfig, ListenerConfig
from replication.config.listeners import HostPort, Voter
from replication.controller.controller import Controller
from replication.errors import ErrorCode, MetadataError
from replication.metadata.formatter import NodeFormat, format_directories
from replication.metadata.rules.formatting import feature_levels
from replication.metadata.rules.records import METADATA_TOPIC_ID
from replication.raft.rules.types import Endpoints, ListenerAddress, ReplicaKey
from replication.raft.rules.voters import SUPPORTED, VoterNode, VoterSet
from replication.wire.create_topics import CreatableTopic, CreateTopicsRequest
from replication.wire.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.types import LeaderEpoch
from tests.replication.broker.clients import Client
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


def dynamic_config(node_id: int) -> BrokerConfig:
    """Return a configuration that names no voters: the log does (KIP-853)."""
    return attrs.evolve(
        config_of(node_id, snapshot_bytes=20 << 20),
        controller_quorum_voters=(),
        controller_quorum_bootstrap_servers=tuple(HostPort(name_of(each), 9093) for each in IDS),
        cluster_id=None,
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
            except (KafkaStorageError, MetadataError) as error:
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
    async with running(world, partial(config_of, snapshot_bytes=snapshot_bytes)) as opened:
        yield opened


@asynccontextmanager
async def running(
    world: World, make_config: Callable[[int], BrokerConfig]
) -> AsyncIterator[RunningQuorum]:
    """Start the three controllers with these configurations, and kill them at the end."""
    async with trio.open_nursery() as nursery:
        opened = RunningQuorum(world, nursery, make_config)
        for each in IDS:
            await opened.start(each)
        try:
            yield opened
        finally:
            for each in list(opened.running):
                opened.kill(each)
            nursery.cancel_scope.cancel()


def directory_id(node_id: int) -> bytes:
    return node_id.to_bytes(16, "big")


def voter(node_id: int, *, disk: int | None = None) -> VoterNode:
    """Return the entry of a controller in a voter set; `disk` is another node's, if given."""
    return VoterNode(
        ReplicaKey(node_id, directory_id(disk or node_id)),
        Endpoints((ListenerAddress("CONTROLLER", name_of(node_id), 9093),)),
        SUPPORTED,
    )


def format_controller(
    world: World, node_id: int, voters: VoterSet | None = None, *, is_dynamic: bool
) -> None:
    """Format a node's directory as `storage format` does.

    The configuration names the voters, or with `is_dynamic` the log does.
    """
    wanted = NodeFormat(
        cluster_id="a-quorum",
        node_id=node_id,
        directories=["/controller"],
        metadata_directory="/controller",
        is_controller=True,
        levels=feature_levels({}, is_dynamic=is_dynamic),
        voters=voters,
    )
    file_system = world.node(name_of(node_id)).file_system
    format_directories(file_system, wanted, random_bytes=lambda _: directory_id(node_id), wall_ms=0)


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


async def fetch_metadata(
    client: Client, node_id: int, *, leader_epoch: LeaderEpoch
) -> FetchResponse:
    """Ask a controller for the metadata log's first batches, as a broker does."""
    asked = FetchPartition(
        partition=0, current_leader_epoch=leader_epoch, fetch_offset=0, last_fetched_epoch=0
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])],
    )
    response: FetchResponse = await client.ask(f"{name_of(node_id)}:9093", request)
    return response
