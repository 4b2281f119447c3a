"""A cluster in a simulated world: the real controller and brokers, and nothing else is real.

    async with open_simulated_cluster(world, brokers=3) as cluster:
        await cluster.kill("b1")          # SIGKILL
        await cluster.start("b1")         # the next incarnation, on the same disk
        await cluster.cut_power("b2")     # chance decides what is left of unsynced writes
        await cluster.until(cluster.nodes.is_complete, what="every broker is back")

    c      the controller, node 0     disk /c/log        listens on c:9093
    c3001  the first of several       disk /c3001/log    listens on c3001:9093
    b1     broker 1                   disk /b1/log       listens on b1:9092

`Cluster` starts, kills and stops the nodes, here on machines of a `World`. A `SimulatedCluster`
adds what only the simulator has: the names of the nodes, disks that can be read and replaced,
and power that can fail.

Rule 1: a mistake of ours ends the run, unless it is a killed node that stumbles.

Rule 2: a disk that is read here is read beside the node. That takes none of the node's time, and
shows what the node's own process would read.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from replication.broker.broker import Broker
from replication.broker.lifecycle import BrokerReplacedError, UnreportedDirectoryError
from replication.broker.nodes import CONTROLLER_ID, controller_ids, is_controller
from replication.cluster.cluster import POLL_SECONDS, Cluster
from replication.cluster.interface import NotInTimeError
from replication.config import BrokerConfig, Voter
from replication.controller.controller import Controller
from replication.errors import raise_bug
from replication.events import Event, EventSink, fan_out, ignore
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.net.raising import raising_only_one
from replication.net.seams import Seams
from replication.replica_manager import ReplicaManager
from scenarios.world.clock import SimulatedClock
from scenarios.world.trace import DiskReplaced, NodeKilled, NodeStopped, PowerCut
from scenarios.world.world import World
from storage.errors import KafkaStorageError
from storage.filesystem import FileSystem
from storage.testing import FaultyFileSystem, PowerFailure, SimulatedDisk
from storage.testing.disk import DirectoryNode, Fate
from storage.types import TopicPartition

CONTROLLER = "c"
"""The name of a single controller; those of several begin with it."""
BROKER = "b"
CONTROLLER_PORT = 9093
BROKER_PORT = 9092
LISTENER = "PLAINTEXT"
PATIENCE_SECONDS = 60.0  # virtual
STOP_PATIENCE_SECONDS = 30.0
"""The time that a broker has for its controlled shutdown, as when a pod is deleted. A broker by
itself waits five minutes, which would be most of the time of some runs.
"""


def node_name(node_id: int) -> str:
    if node_id == CONTROLLER_ID:
        return CONTROLLER
    return f"{CONTROLLER if is_controller(node_id) else BROKER}{node_id}"


def node_id_of(name: str) -> int:
    return CONTROLLER_ID if name == CONTROLLER else int(name[1:])


def log_directory(name: str) -> str:
    """Return the path of a node's first log directory; no other disk has that path."""
    return f"/{name}/log"


def log_directories(disk: FileSystem, name: str) -> list[str]:
    """Return the paths of a node's log directories, which lie side by side on its disk."""
    home = f"/{name}"
    return [f"{home}/{each}" for each in disk.list_directory(home)] if disk.exists(home) else []


def partition_directory(disk: FileSystem, name: str, partition: TopicPartition) -> str:
    """Return where a node has the partition, or would have it if it has one log directory."""
    for directory in log_directories(disk, name):
        if disk.is_directory(f"{directory}/{partition}"):
            return f"{directory}/{partition}"
    return f"{log_directory(name)}/{partition}"


@attrs.define(eq=False)
class _SimulatedMachine:
    """The machine that one incarnation of a node runs on (`cluster.Machine`)."""

    seams: Seams
    end: Callable[[], None]
    """Take disk and network away: by a kill, or by a power cut."""
    is_silent: bool = False
    """Whether it reports nothing more: the power has failed in the middle of what it did."""

    def detach(self) -> None:
        self.end()

    def abandon(self) -> None:
        """Do nothing: the world closes what a dead process has left open."""


@attrs.define(eq=False, kw_only=True, repr=False)
class SimulatedCluster:
    """The nodes of a cluster by name, on the machines of a world; see `open_simulated_cluster`."""

    world: World
    watcher: EventSink = ignore
    """The sink of every event after the trace, and of ends, power cuts and replaced disks."""
    clock: SimulatedClock = attrs.field(init=False)
    """A clock of no node, so that it is never paused."""
    nodes: Cluster = attrs.field(init=False)
    """The same nodes by id."""
    _configs: dict[int, BrokerConfig]
    _nursery: trio.Nursery
    _machines: dict[str, _SimulatedMachine] = attrs.field(factory=dict, init=False)
    _last_image: MetadataImage = attrs.field(factory=MetadataImage, init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = SimulatedClock(self.world.time)
        self.nodes = Cluster(
            configs=self._configs,
            make_machine=self._make_machine,
            make_sink=lambda node_id: self._make_sink(node_name(node_id)),
            on_bug=raise_bug,
            on_end=lambda node_id: self._stopped(node_name(node_id)),
            failures_of_a_node=(KafkaStorageError, BrokerReplacedError, UnreportedDirectoryError),
            poll_seconds=self._until_something_may_change,
            clock=self.clock,
            nursery=self._nursery,
        )

    # Which nodes there are, and what they know.

    @property
    def names(self) -> list[str]:
        return [node_name(node_id) for node_id in self.nodes.node_ids]

    @property
    def broker_names(self) -> list[str]:
        return [node_name(node_id) for node_id in self.nodes.broker_ids]

    @property
    def brokers(self) -> dict[str, Broker]:
        """The brokers that run now, in the order of their ids."""
        return {node_name(node_id): broker for node_id, broker in self.nodes.brokers.items()}

    @property
    def replica_managers(self) -> dict[str, ReplicaManager]:
        """The replica managers of the brokers that run; a broker that starts has none yet."""
        return {
            name: broker.replica_manager
            for name, broker in self.brokers.items()
            if hasattr(broker, "replica_manager")
        }

    @property
    def controller(self) -> Controller | None:
        """The controller that decides now; None until it listens."""
        node = self.nodes.controller
        return None if node is None or node.listener is None else node

    @property
    def controller_names(self) -> list[str]:
        return [node_name(node_id) for node_id in self.nodes.controller_ids]

    @property
    def deciding(self) -> str | None:
        """The name of the controller that decides; a single one is named in any state."""
        if len(self.nodes.controller_ids) == 1:
            return node_name(self.nodes.controller_ids[0])
        active = self.nodes.active_controller
        return None if active is None else node_name(active)

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the controllers runs."""
        return 2 * len(self.nodes.controllers) > len(self.nodes.controller_ids)

    @property
    def is_undisturbed(self) -> bool:
        """Whether every node is up, runs and can reach every other."""
        paused = any(self.world.clock(name).paused for name in self.names)
        all_up = all(self.is_running(name) for name in self.names)
        return all_up and not paused and not self.world.network.is_cut

    def is_running(self, name: str) -> bool:
        return self.nodes.is_up(node_id_of(name))

    @property
    def short_of_a_directory(self) -> list[str]:
        """The names of the brokers that run on, although one of their log directories has failed."""
        return [
            name
            for name, broker in self.brokers.items()
            if any(each.failure is not None for each in broker.logs.directories)
        ]

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that any running broker acts upon; the last seen if none runs."""
        images = [broker.metadata.image for broker in self.nodes.brokers.values()]
        self._last_image = max(images, key=lambda image: image.offset, default=self._last_image)
        return self._last_image

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        return self.image.partition(topic_partition)

    def leader(self, topic_partition: TopicPartition) -> str | None:
        """Return the name of a partition's leader; None if it has none."""
        registration = self.partition(topic_partition)
        if registration is None or registration.leader < 0:
            return None
        return node_name(registration.leader)

    def disk(self, name: str) -> FaultyFileSystem:
        """Return a view of a node's disk, to be read. Reading it neither meets nor uses up the
        faults that were injected for the node.
        """
        return self._view(self.world.disk(name).root)

    def disks(self) -> FaultyFileSystem:
        """Return a view of all nodes' disks at once, to be read."""
        root = DirectoryNode()
        for name in self.names:
            root.entries |= self.world.disk(name).root.entries
        return self._view(root)

    def log_directories(self, name: str) -> list[str]:
        """Return the paths of a node's log directories in `disks`."""
        return log_directories(self.disk(name), name)

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
        """Wait until `predicate` is true; after the time limit raise NotInTimeError, with `why`
        as a note.
        """
        try:
            await self.nodes.until(predicate, timeout_seconds=seconds, what=what)
        except NotInTimeError as error:
            if why is not None:
                error.add_note(why())
            raise

    def _until_something_may_change(self) -> float:
        """Return the time of all polls that would find what the last one has found, and one."""
        ahead = self.world.time.next_moment() - self.world.time.now
        return POLL_SECONDS * max(1, math.ceil(ahead / POLL_SECONDS))

    # What happens to them.

    async def start(self, name: str) -> None:
        """Start a node that is down; a broker is unfenced and serves when this returns."""
        await self.nodes.start_node(node_id_of(name))

    async def kill(self, name: str) -> None:
        """End a node as SIGKILL would: it writes nothing more; its kernel closes connections."""
        await self.nodes.kill_node(node_id_of(name))

    async def stop(self, name: str) -> None:
        """Shut a node down in good order, within the patience of its operator."""
        await self.nodes.stop_node(node_id_of(name), patience_seconds=STOP_PATIENCE_SECONDS)

    async def cut_power(self, name: str, fate: Fate | None = None) -> None:
        """End a node, running or not, and lose unsynced writes, whole or in part."""
        if not self.is_running(name):
            self._lose_power(name, fate)
            return
        self._machines[name].end = partial(self._lose_power, name, fate)
        await self.kill(name)

    def let_power_fail(
        self, name: str, fate: Fate | None = None, *, operation: str, names: str, after: int
    ) -> None:
        """Cut the power in the middle of what the node, or its next process, does: `PowerFailure`."""
        cut = partial(self._power_fails, name, fate)
        self.world.disk(name).faults.append(
            PowerFailure(operation=operation, names=names, after=after, cut=cut)
        )

    def _power_fails(self, name: str, fate: Fate | None) -> None:
        machine = self._machines[name]
        machine.end = partial(self._lose_power, name, fate)
        machine.is_silent = True
        self.nodes.detach_node(node_id_of(name))

    def configure(self, name: str, properties: Mapping[str, str]) -> None:
        """Change what a node's server.properties says; it counts from the node's next start."""
        config = self._configs[node_id_of(name)]
        self._configs[node_id_of(name)] = BrokerConfig.from_properties(
            {**config.given, **config.listener_keys, **properties}
        )

    def replace_disk(self, name: str, root: DirectoryNode) -> None:
        """Replace the disk of a node that is down; what was on the old one is gone."""
        assert not self.is_running(name), f"{name} is up: its disk cannot be replaced"
        self.world.replace_disk(name, root)
        self.watcher(DiskReplaced(node=name))

    async def kill_all(self) -> None:
        for name in self.names:
            if self.is_running(name):
                await self.kill(name)

    def _make_machine(self, node_id: int) -> _SimulatedMachine:
        name = node_name(node_id)
        machine = _SimulatedMachine(self.world.node(name), partial(self._kill, name))
        self._machines[name] = machine
        return machine

    def _make_sink(self, name: str) -> EventSink:
        machine, sink = self._machines[name], fan_out(self.world.sink(name), self.watcher)

        def report(event: Event) -> None:
            if not machine.is_silent:
                sink(event)

        return report

    def _kill(self, name: str) -> None:
        self.world.kill(name)
        self.watcher(NodeKilled(node=name))

    def _lose_power(self, name: str, fate: Fate | None) -> None:
        self.world.crash_disk(name, fate)
        self.watcher(PowerCut(node=name))

    def _stopped(self, name: str) -> None:
        self.world.stopped(name)
        self.watcher(NodeStopped(node=name))


@asynccontextmanager
async def open_simulated_cluster(
    world: World,
    *,
    brokers: int = 3,
    controllers: int = 1,
    combined: bool = False,
    properties: Mapping[str, str] | None = None,
    watcher: EventSink = ignore,
) -> AsyncIterator[SimulatedCluster]:
    """Open a cluster that is up when the block begins, and is gone when it ends.

    Kafka's defaults apply, session and lag times included: virtual seconds cost nothing. Only
    indexes are small.
    In a combined cluster the first brokers are the controllers.
    `properties` are further `server.properties` entries for every node; a key that begins with
    the name of a node, as `b2.broker.rack`, is for that node.
    """
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(
                world=world,
                configs=simulated_configs(
                    brokers, properties or {}, controllers=controllers, combined=combined
                ),
                watcher=watcher,
                nursery=nursery,
            )
            for name in cluster.names:  # its machine, before another node looks for it
                world.node(name)
            await cluster.nodes.start()
            yield cluster
            await cluster.kill_all()


def simulated_configs(
    brokers: int, properties: Mapping[str, str], *, controllers: int = 1, combined: bool = False
) -> dict[int, BrokerConfig]:
    """Return what each node's server.properties would say, by id."""
    every_broker = range(1, brokers + 1)
    ids = controller_ids(controllers, among=every_broker if combined else None)
    voters = [Voter(each, node_name(each), CONTROLLER_PORT) for each in ids]
    common = {
        "cluster.id": "understudy",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(map(str, voters)),
        "default.replication.factor": str(min(3, brokers)),
        # A simulated disk holds every byte in memory, those of an index's spare room too.
        "log.index.size.max.bytes": "4096",
        # The controller may be away for a whole story.
        "initial.broker.registration.timeout.ms": "86400000",
    }
    own = {
        voter.host: {
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{voter.host}:{voter.port}",
        }
        for voter in voters
    }
    for name in map(node_name, every_broker):
        role, listener = "broker", f"{LISTENER}://{name}:{BROKER_PORT}"
        other = own.get(name)
        own[name] = {
            "process.roles": f"{role},{other['process.roles']}" if other else role,
            "listeners": f"{listener},{other['listeners']}" if other else listener,
        }
    for key, value in properties.items():
        name, _, rest = key.partition(".")
        if name in own:
            own[name][rest] = value
        else:
            common[key] = value
    return {
        node_id_of(name): BrokerConfig.from_properties(
            common
            | {"node.id": str(node_id_of(name)), "log.dirs": log_directory(name)}
            | properties_of_node
        )
        for name, properties_of_node in own.items()
    }
