"""A cluster in a simulated world: the real controller and brokers, and nothing else is real.

    async with open_simulated_cluster(world, brokers=3) as cluster:
        await cluster.kill("b1")          # SIGKILL
        await cluster.start("b1")         # the next incarnation, on the same disk
        await cluster.cut_power("b2")     # what was not synced is at the mercy of chance
        await cluster.until(cluster.is_complete, what="everybody is back")

    c     the controller, node 0     disk /c/log      listens on c:9093
    b1    broker 1                   disk /b1/log     listens on b1:9092

Rule 1: a node is killed in two steps: the world takes its disk and network away, then its
tasks are cancelled. So nothing that runs on cancellation can write or say anything. What a
dead node stumbles over meanwhile is the kill, and no news; a mistake of ours anywhere else
ends the run.

Rule 2: whoever looks at a disk here looks beside the node: it costs the node no time, and
shows what its own process would read.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from replication.broker.broker import Broker
from replication.cluster.cluster import Node
from replication.cluster.interface import NotInTimeError
from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.controller.node import ControllerNode
from replication.errors import UnderstudyError
from replication.events import EventSink, fan_out, ignore
from replication.faults.node_faults import Faults
from replication.metadata.rules import MetadataImage, PartitionRegistration
from replication.net.raising import raising_only_one
from scenarios.world.clock import SimulatedClock
from scenarios.world.trace import DiskReplaced, NodeKilled, NodeStopped, PowerCut
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.testing import FaultyFileSystem, SimulatedDisk
from storage.testing.disk import DirectoryNode, Fate
from storage.types import TopicPartition

CONTROLLER = "c"
CONTROLLER_ID = 0
CONTROLLER_PORT = 9093
BROKER_PORT = 9092
LISTENER = "PLAINTEXT"
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 60.0  # virtual
STOP_PATIENCE_SECONDS = 30.0
"""Of whoever stops a broker, as of a pod that is deleted: then it leaves without a grant. Five
minutes, which a broker has by itself, would be most of what some runs do.
"""


def node_name(node_id: int) -> str:
    return CONTROLLER if node_id == CONTROLLER_ID else f"b{node_id}"


def log_directory(name: str) -> str:
    """Where a node's logs are, on its own disk; the same path on no other."""
    return f"/{name}/log"


def partition_directory(name: str, partition: TopicPartition) -> str:
    return f"{log_directory(name)}/{partition}"


def _late(what: str, why: Callable[[], str] | None) -> NotInTimeError:
    error = NotInTimeError(what)
    if why is not None:
        error.add_note(why())
    return error


class NodeKilledError(UnderstudyError):
    """It was killed before it was up."""


@attrs.define(eq=False, kw_only=True)
class _Incarnation:
    """One life of a node."""

    node: Node
    gave_up: Callable[["_Incarnation"], None]
    """It was up, and its last log directory has failed: its process ends by itself."""
    killed: bool = False
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self.scope:
                await self.node.run(task_status=task_status)
        except KafkaStorageError:
            if not self.killed:
                self.gave_up(self)
        except Exception:
            if not self.killed:
                raise
        finally:
            self.ended.set()


@attrs.define(eq=False, kw_only=True)
class SimulatedCluster:
    """Nodes by name. Made by `open_simulated_cluster`."""

    world: World
    configs: dict[str, BrokerConfig]
    watcher: EventSink = ignore
    """Is told of every event, after the trace, of ends, power cuts and replaced disks."""
    clock: SimulatedClock = attrs.field(init=False)
    """Of nobody in it, so that it is never paused."""
    faults: Faults = attrs.field(init=False)
    """What is to go wrong with requests; nothing, until rules are added."""
    _nursery: trio.Nursery
    _alive: dict[str, _Incarnation] = attrs.field(factory=dict, init=False)
    _last_image: MetadataImage = attrs.field(factory=MetadataImage, init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = SimulatedClock(self.world.time)
        self.faults = Faults(self.clock)

    # Who is there, and what they know.

    @property
    def names(self) -> list[str]:
        return list(self.configs)

    @property
    def broker_names(self) -> list[str]:
        return [name for name in self.configs if name != CONTROLLER]

    @property
    def brokers(self) -> dict[str, Broker]:
        """Those that run now, in the order of their numbers."""
        alive = ((name, self._alive.get(name)) for name in self.broker_names)
        return {
            name: incarnation.node
            for name, incarnation in alive
            if incarnation is not None and isinstance(incarnation.node, Broker)
        }

    @property
    def controller(self) -> Controller | None:
        """The one that runs now, once it listens."""
        incarnation = self._alive.get(CONTROLLER)
        node = None if incarnation is None else incarnation.node
        if not isinstance(node, ControllerNode) or node.controller.listener is None:
            return None
        return node.controller

    @property
    def is_undisturbed(self) -> bool:
        """Everybody is up, and hears everybody."""
        paused = any(self.world.clock(name).paused for name in self.names)
        return (
            len(self._alive) == len(self.configs) and not paused and not self.world.network.is_cut
        )

    def is_running(self, name: str) -> bool:
        return name in self._alive

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that any running broker acts upon; where none runs, the last."""
        images = [broker.metadata.image for broker in self.brokers.values()]
        self._last_image = max(images, key=lambda image: image.offset, default=self._last_image)
        return self._last_image

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        return self.image.partition(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> str | None:
        """Who leads it; None where nobody does."""
        registration = self.partition(topic_partition)
        if registration is None or registration.leader < 0:
            return None
        return node_name(registration.leader)

    def is_complete(self) -> bool:
        """Whether every broker that runs knows every other one alive."""
        brokers = self.brokers.values()
        return all(
            broker.metadata.image.is_alive(other.broker_id)
            for broker in brokers
            for other in brokers
        )

    def disk(self, name: str) -> FaultyFileSystem:
        """Return a view of a node's disk, to be read. It neither meets nor uses up the faults
        that were injected for the node.
        """
        return self._view(self.world.disk(name).root)

    def disks(self) -> FaultyFileSystem:
        """A view of all nodes' disks at once, to be read; a node's logs are where they are."""
        root = DirectoryNode()
        for name in self.names:
            root.entries |= self.world.disk(name).root.entries
        return self._view(root)

    def _view(self, root: DirectoryNode) -> FaultyFileSystem:
        chance = self.world.chance("nothing")
        return FaultyFileSystem(chance, disk=SimulatedDisk(chance, root=root))

    async def until(
        self,
        predicate: Callable[[], bool],
        *,
        what: str,
        seconds: float = PATIENCE_SECONDS,
        why: Callable[[], str] | None = None,
    ) -> None:
        """Until `predicate` holds; NotInTimeError where it does not come to, with a note that
        says `why`.
        """
        with self.clock.move_on_after(seconds):
            while not predicate():
                await self.clock.sleep(self._until_something_may_change())
            return
        raise _late(f"not within {seconds:g} virtual seconds: {what}", why)

    def _until_something_may_change(self) -> float:
        """A number of polls, of which all but the last would find what the one before found."""
        ahead = self.world.time.next_moment() - self.world.time.now
        return POLL_SECONDS * max(1, math.ceil(ahead / POLL_SECONDS))

    # What happens to them.

    async def start(self, name: str) -> None:
        """Start a node that is down; a broker is unfenced and serves when this returns."""
        assert name not in self._alive, f"{name} runs already"
        incarnation = self._incarnation(name)
        self._alive[name] = incarnation
        try:
            await self._nursery.start(incarnation.run)
        except BaseException as error:
            if self._alive.get(name) is incarnation:  # it gave up
                del self._alive[name]
                self._stopped(name)
            elif isinstance(error, Exception):
                raise NodeKilledError(f"{name} was killed before it was up") from None
            raise

    async def start_all(self) -> None:
        """The controller first, then the brokers at once; until all know each other."""
        if not self.is_running(CONTROLLER):
            await self.start(CONTROLLER)
        async with trio.open_nursery() as nursery:
            for name in self.broker_names:
                if not self.is_running(name):
                    nursery.start_soon(self.start, name)
        await self.until(self.is_complete, what="every broker knows every other")

    async def kill(self, name: str) -> None:
        """As SIGKILL would: nothing more is written; the kernel closes its connections."""
        incarnation = self._alive.pop(name)
        incarnation.killed = True
        self.world.kill(name)
        self.watcher(NodeKilled(node=name))
        await self._end(incarnation)

    async def cut_power(self, name: str, fate: Fate | None = None) -> None:
        """What was not synced may be gone, whole or in part, and nobody is told."""
        incarnation = self._alive.pop(name, None)
        if incarnation is not None:
            incarnation.killed = True
        self.world.crash_disk(name, fate)
        self.watcher(PowerCut(node=name))
        if incarnation is not None:
            await self._end(incarnation)

    def replace_disk(self, name: str, root: DirectoryNode) -> None:
        """Of a node that is down; nobody is told, and what it had is gone."""
        assert name not in self._alive, f"{name} is up: nobody takes its disk"
        self.world.replace_disk(name, root)
        self.watcher(DiskReplaced(node=name))

    async def stop(self, name: str) -> None:
        """A controlled shutdown, for as long as its operator is patient."""
        incarnation = self._alive[name]
        if isinstance(incarnation.node, Broker):
            incarnation.node.shut_down(patience_seconds=STOP_PATIENCE_SECONDS)
        else:
            incarnation.node.shut_down()
        await incarnation.ended.wait()
        if self._alive.get(name) is incarnation:  # nobody killed it on its way out
            del self._alive[name]
            self._stopped(name)

    def _stopped(self, name: str) -> None:
        self.world.stopped(name)
        self.watcher(NodeStopped(node=name))

    async def kill_all(self) -> None:
        for name in self.names:
            if self.is_running(name):
                await self.kill(name)

    async def _end(self, incarnation: _Incarnation) -> None:
        incarnation.scope.cancel()
        await incarnation.ended.wait()

    def _incarnation(self, name: str) -> _Incarnation:
        make: type[Broker | ControllerNode] = ControllerNode if name == CONTROLLER else Broker

        def on_bug(error: BaseException) -> None:
            if not incarnation.killed:
                raise error

        node = make(
            config=self.configs[name],
            seams=self.world.node(name),
            sink=fan_out(self.world.sink(name), self.watcher),
            on_bug=on_bug,
            faults=self.faults,
        )
        incarnation = _Incarnation(node=node, gave_up=partial(self._gave_up, name))
        return incarnation

    def _gave_up(self, name: str, incarnation: _Incarnation) -> None:
        if self._alive.get(name) is incarnation:
            del self._alive[name]
            self._stopped(name)


@asynccontextmanager
async def open_simulated_cluster(
    world: World,
    *,
    brokers: int = 3,
    properties: Mapping[str, str] | None = None,
    watcher: EventSink = ignore,
) -> AsyncIterator[SimulatedCluster]:
    """A cluster that is up when the block begins, and is gone when it ends.

    Kafka's defaults apply, session and lag times included: virtual seconds cost nothing. Only
    indexes are small.
    `properties` are further `server.properties` entries, for every node; those that begin with
    the name of one, as `b2.broker.rack`, for that one.
    """
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(
                world=world,
                configs=node_configs(brokers, properties or {}),
                watcher=watcher,
                nursery=nursery,
            )
            for name in cluster.names:  # its machine, before anybody looks for it
                world.node(name)
            await cluster.start_all()
            yield cluster
            await cluster.kill_all()


def node_configs(brokers: int, properties: Mapping[str, str]) -> dict[str, BrokerConfig]:
    """What each node's server.properties would say."""
    common = {
        "cluster.id": "understudy",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{CONTROLLER}:{CONTROLLER_PORT}",
        "default.replication.factor": str(min(3, brokers)),
        # A simulated disk holds every byte in memory, also those of an index's spare room.
        "log.index.size.max.bytes": "4096",
        # In a story the controller may be away for as long as it takes to tell it.
        "initial.broker.registration.timeout.ms": "86400000",
    }
    own = {
        CONTROLLER: {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{CONTROLLER}:{CONTROLLER_PORT}",
        }
    }
    for broker_id in range(1, brokers + 1):
        name = node_name(broker_id)
        own[name] = {
            "process.roles": "broker",
            "listeners": f"{LISTENER}://{name}:{BROKER_PORT}",
        }
    for key, value in properties.items():
        name, _, rest = key.partition(".")
        if name in own:
            own[name][rest] = value
        else:
            common[key] = value
    return {
        name: BrokerConfig.from_properties(
            common | {"node.id": str(node_id), "log.dirs": log_directory(name)} | own[name]
        )
        for node_id, name in enumerate(own)
    }
