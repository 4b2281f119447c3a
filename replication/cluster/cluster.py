"""A whole cluster in this process: a controller and some brokers, each a node of its own.

    async with open_cluster(brokers=3) as cluster:
        ...  # cluster.bootstrap_servers is what a client is given
        await cluster.kill_broker(1)
        await cluster.until(lambda: cluster.leader("topic", 0) not in (None, 1))
        await cluster.start_broker(1)

    DATA/controller/log   DATA/broker-1/log   DATA/broker-2/log   DATA/broker-3/log

Rule 1: nodes share the process and nothing else. Each has its own seams, and they talk
over the transport as they would across machines.

Rule 2: a node that is killed writes nothing from that moment on. Its disk and network are
detached first and its tasks cancelled after, so no cleanup code can tidy up what a dead
process would have left lying about.

Rule 3: a node that starts again keeps its port, so that clients find it where it was.

Rule 4: what is not possible now (a node that is down cannot be killed) is refused with
NotPossibleError, and nothing has changed.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import trio

from replication.broker.broker import Broker
from replication.broker.nodes import CONTROLLER_ID, HostOf, loopback, node_configs, node_name
from replication.config import BrokerConfig, Voter
from replication.controller.node import ControllerNode
from replication.errors import UnderstudyError
from replication.events import EventSink, ignore
from replication.faults.node_faults import Faults
from replication.metadata.rules import MetadataImage, PartitionRegistration
from replication.net import production_seams
from replication.net.clock import TrioClock
from replication.net.detach import DetachableFileSystem, DetachableTransport
from replication.net.raising import raising_only_one, raising_the_first
from replication.net.seams import NodeClock, Seams
from replication.server.server import OnBug
from storage.errors import StorageError
from storage.types import TopicPartition

if TYPE_CHECKING:
    from replication.client import Admin, Consumer, Producer

POLL_SECONDS = 0.01
STOP_PATIENCE_SECONDS = 1.0  # of brokers that all leave

Node: TypeAlias = Broker | ControllerNode
MakeSeams: TypeAlias = Callable[[int], Seams]
MakeSink: TypeAlias = Callable[[int], EventSink]


class NotInTimeError(UnderstudyError):
    """What was waited for did not come to hold."""


class NotPossibleError(UnderstudyError):
    """Not in the state that the cluster is in; the message names the node."""


class KilledError(UnderstudyError):
    """A node was killed before it had started."""


@attrs.define(eq=False, repr=False, kw_only=True)
class _Incarnation:
    """One life of a node, and what to take from it when it is killed."""

    node: Node
    transport: DetachableTransport
    file_system: DetachableFileSystem
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    on_failure: Callable[[Exception], None]
    started: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self.scope:
                await self.node.run(task_status=task_status)
        except (UnderstudyError, StorageError, OSError) as error:
            # What a killed node stumbles over while it is cancelled is the kill, not news.
            if not self.transport.detached:
                if not self.started:
                    raise
                self.on_failure(error)
        finally:
            self.ended.set()


def raise_bug(error: BaseException) -> None:
    """The `on_bug` of a cluster that was given none: a mistake of ours ends the program."""
    raise error


@attrs.define(eq=False, repr=False, kw_only=True)
class Cluster:
    """Nodes by id; 0 is the controller. Made by `open_cluster`."""

    configs: dict[int, BrokerConfig]
    make_seams: MakeSeams
    make_sink: MakeSink
    on_bug: OnBug
    clock: NodeClock
    _nursery: trio.Nursery
    faults: Faults = attrs.field(init=False)
    """What is to go wrong with requests (`replication.faults`); nothing, until rules are added."""
    failures: dict[int, Exception] = attrs.field(factory=dict, init=False)
    """What ended a node that was neither killed nor stopped; a disk, most likely."""
    _alive: dict[int, _Incarnation] = attrs.field(factory=dict, init=False)

    @faults.default
    def _no_faults(self) -> Faults:
        return Faults(self.clock, node_ids=lambda: self.node_ids)

    # Where it is.

    @property
    def node_ids(self) -> list[int]:
        """The controller's and every broker's, those that are down included."""
        return sorted(self.configs)

    @property
    def broker_ids(self) -> list[int]:
        """Of all brokers, those that are down included."""
        return sorted(self.configs.keys() - {CONTROLLER_ID})

    @property
    def brokers(self) -> dict[int, Broker]:
        """Those that run now."""
        alive = ((node_id, each.node) for node_id, each in sorted(self._alive.items()))
        return {node_id: node for node_id, node in alive if isinstance(node, Broker)}

    @property
    def controller(self) -> ControllerNode | None:
        """The controller; None while it is down."""
        incarnation = self._alive.get(CONTROLLER_ID)
        node = None if incarnation is None else incarnation.node
        assert not isinstance(node, Broker), "node 0 is the controller"
        return node

    @property
    def bootstrap_list(self) -> list[str]:
        """`host:port` of every broker's first listener, those that are down included."""
        return self.addresses(self.configs[self.broker_ids[0]].listeners[0].name)

    def addresses(self, listener: str) -> list[str]:
        """The same of another listener, by its name."""
        listening = [each for broker in self.broker_ids for each in self.configs[broker].listeners]
        return [f"{each.host}:{each.port}" for each in listening if each.name == listener]

    @property
    def bootstrap_servers(self) -> str:
        """The same as one string, as clients take it."""
        return ",".join(self.bootstrap_list)

    # Clients of it, over TCP: where its nodes live on another transport, those need its seams.

    def producer(self, **config: Any) -> "Producer[Any, Any]":
        """`async with cluster.producer() as producer`; Kafka's words, underscored."""
        from replication.client import Producer  # noqa: PLC0415 - brokers start without it

        return Producer(self.bootstrap_servers, **config)

    def consumer(self, *topics: str, **config: Any) -> "Consumer":
        """`async with cluster.consumer("t", group_id="g") as consumer`."""
        from replication.client import Consumer  # noqa: PLC0415 - brokers start without it

        return Consumer(*topics, bootstrap_servers=self.bootstrap_servers, **config)

    def admin(self, **config: Any) -> "Admin":
        """`async with cluster.admin() as admin`."""
        from replication.client import Admin  # noqa: PLC0415 - brokers start without it

        return Admin(self.bootstrap_servers, **config)

    # What it knows.

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that the controller or any running broker has."""
        images = [broker.metadata.image for broker in self.brokers.values()]
        if self.controller is not None:
            images.append(self.controller.image)
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return replicas, ISR, leader and epochs of a partition; None if there is none.

        An acknowledgement depends on what the controller has committed, or on what its leader has
        heard of that from the controller before it died: neither is newer than this.
        """
        topic_partition = TopicPartition(topic, partition)
        registration = self.image.partition(topic_partition)
        if registration is None or (leader := self.brokers.get(registration.leader)) is None:
            return registration
        seen = leader.replica_manager.snapshot(topic_partition)
        if seen is None or seen.partition_epoch <= registration.partition_epoch:
            return registration
        isr = tuple(each for each in registration.replicas if each in seen.isr)
        return attrs.evolve(registration, isr=isr, partition_epoch=seen.partition_epoch)

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads it; None where nobody does."""
        registration = self.partition(topic, partition)
        return None if registration is None or registration.leader < 0 else registration.leader

    async def until(
        self, predicate: Callable[[], bool], *, timeout_seconds: float = 30.0, what: str = ""
    ) -> None:
        """Until `predicate` holds; NotInTimeError where it does not come to."""
        with self.clock.move_on_after(timeout_seconds):
            while not predicate():
                await self.clock.sleep(POLL_SECONDS)
            return
        raise NotInTimeError(f"not within {timeout_seconds:g} s: {what or predicate}")

    # What happens to it.

    async def start(self) -> None:
        """Start every node; return when all brokers know each other."""
        await self.start_node(CONTROLLER_ID)
        with raising_the_first():
            async with trio.open_nursery() as nursery:
                for broker_id in self.broker_ids:
                    nursery.start_soon(self.start_node, broker_id)
        await self.until(self.is_complete, what="every broker knows every other")

    def is_complete(self) -> bool:
        """Whether every broker that runs knows every other one alive."""
        brokers = self.brokers
        return all(
            broker.metadata.image.is_alive(other)
            for broker in brokers.values()
            for other in brokers
        )

    async def start_node(self, node_id: int) -> None:
        """Start a node that is down; a broker is unfenced when this returns.

        KilledError where somebody kills it first.
        """
        self.must_be(node_id, up=False)
        incarnation = self._incarnation(node_id)
        self._alive[node_id] = incarnation
        try:
            await self._nursery.start(incarnation.run)
            incarnation.started = True
        except RuntimeError as error:  # trio's, of what ends before it has started
            if not incarnation.transport.detached:
                raise
            raise KilledError(f"node {node_id} was killed before it had started") from error
        finally:
            if not incarnation.started and self._alive.get(node_id) is incarnation:
                del self._alive[node_id]
        self.failures.pop(node_id, None)
        self._keep_ports(node_id, incarnation.node)

    async def start_broker(self, broker_id: int) -> None:
        """Again, at the same port; returns when it is unfenced."""
        self.must_be_a_broker(broker_id)
        await self.start_node(broker_id)

    async def start_controller(self) -> None:
        """Again, from its own log."""
        await self.start_node(CONTROLLER_ID)

    async def kill_broker(self, broker_id: int) -> None:
        """As SIGKILL would: nothing is written, and nobody is told."""
        self.must_be_a_broker(broker_id)
        await self.kill_node(broker_id)

    async def kill_controller(self) -> None:
        """The same of the controller; brokers go on serving what they lead."""
        await self.kill_node(CONTROLLER_ID)

    async def kill_node(self, node_id: int) -> None:
        """As SIGKILL would: nothing is written, and nobody is told."""
        self.must_be(node_id, up=True)
        incarnation = self._alive.pop(node_id)
        incarnation.transport.detach()
        incarnation.file_system.detach()
        incarnation.scope.cancel()
        await incarnation.ended.wait()
        incarnation.file_system.abandon()

    async def stop_node(self, node_id: int) -> None:
        """A controlled shutdown, which leaves the node's logs in good order."""
        self.must_be(node_id, up=True)
        incarnation = self._alive[node_id]
        incarnation.node.shut_down()
        await incarnation.ended.wait()
        self._alive.pop(node_id, None)

    async def stop_broker(self, broker_id: int) -> None:
        """A controlled shutdown: its leaderships are taken over first."""
        self.must_be_a_broker(broker_id)
        await self.stop_node(broker_id)

    async def stop(self) -> None:
        """Every broker first, then the controller: somebody must take their leaderships.

        Nobody stays who would have to know of that. So none waits for long for the session of
        one that was killed to end, nor for a controller that was.
        """
        async with trio.open_nursery() as nursery:
            for broker_id, broker in self.brokers.items():
                broker.shut_down(patience_seconds=STOP_PATIENCE_SECONDS)
                nursery.start_soon(self.stop_node, broker_id)
        if CONTROLLER_ID in self._alive:
            await self.stop_node(CONTROLLER_ID)

    # What is possible now.

    def is_up(self, node_id: int) -> bool:
        """Whether it runs, or is about to."""
        return node_id in self._alive

    def must_be_one(self, node_id: int) -> None:
        """NotPossibleError of a node that this cluster does not have."""
        if type(node_id) is not int or node_id not in self.node_ids:
            there = ", ".join(map(str, self.node_ids))
            raise NotPossibleError(f"there is no node {node_id!r}; those of this cluster: {there}")

    def must_be_a_broker(self, broker_id: int) -> None:
        """Raise NotPossibleError for an id that is no broker's, such as the controller's."""
        if type(broker_id) is not int or broker_id not in self.broker_ids:
            there = ", ".join(map(str, self.broker_ids))
            which = " (0 is the controller)" if broker_id == CONTROLLER_ID else ""
            raise NotPossibleError(
                f"there is no broker {broker_id!r}{which}; those of this cluster: {there}"
            )

    def must_be(self, node_id: int, *, up: bool) -> None:
        """NotPossibleError of one that is down where it must be up, or the other way round."""
        self.must_be_one(node_id)
        if self.is_up(node_id) != up:
            raise NotPossibleError(f"{node_name(node_id)} is {'down' if up else 'up'} already")

    def _incarnation(self, node_id: int) -> _Incarnation:
        seams = self.make_seams(node_id)
        transport = DetachableTransport(seams.transport)
        file_system = DetachableFileSystem(seams.file_system)
        make = ControllerNode if node_id == CONTROLLER_ID else Broker
        node = make(
            config=self.configs[node_id],
            seams=attrs.evolve(seams, transport=transport, file_system=file_system),
            sink=self.make_sink(node_id),
            on_bug=self.on_bug,
            faults=self.faults,
        )
        return _Incarnation(
            node=node,
            transport=transport,
            file_system=file_system,
            on_failure=partial(self._lose, node_id),
        )

    def _lose(self, node_id: int, error: Exception) -> None:
        """A node has ended of itself. The others go on, as they would on other machines."""
        self.failures[node_id] = error
        self._alive.pop(node_id, None)

    def _keep_ports(self, node_id: int, node: Node) -> None:
        config = self.configs[node_id]
        ports = [each.port for each in node.endpoints] if isinstance(node, Broker) else [node.port]
        listeners = tuple(
            attrs.evolve(each, port=port)
            for each, port in zip(config.listeners, ports, strict=False)
        )
        if not listeners:
            return  # it was asked to stop before it listened
        self.configs[node_id] = attrs.evolve(config, listeners=listeners)
        if node_id == CONTROLLER_ID:
            voter = Voter(CONTROLLER_ID, listeners[0].host, listeners[0].port)
            for each, other in self.configs.items():
                self.configs[each] = attrs.evolve(other, controller_quorum_voters=(voter,))


@asynccontextmanager
async def open_cluster(
    *,
    brokers: int = 3,
    data_dir: str | None = None,
    base_port: int = 0,
    properties: Mapping[str, object] | None = None,
    listeners: Sequence[str] = ("PLAINTEXT",),
    host_of: HostOf = loopback,
    make_seams: MakeSeams | None = None,
    make_sink: MakeSink | None = None,
    on_bug: OnBug = raise_bug,
) -> AsyncIterator[Cluster]:
    """A cluster that is up when the block begins, and is shut down when it ends.

    Args:
        brokers: how many; their ids are 1 to `brokers`, the controller's is 0.
        data_dir: where their data lies, and is found again; by default a temporary directory.
        base_port: broker 1 listens there, broker 2 one above, ...; 0 takes any.
        properties: further `server.properties` entries, for every node.
        listeners: the names of each broker's; the first is at `base_port`, others at any port.
        host_of: the host of each node, where they are not all on this machine.
        make_seams: what each node reaches the world through; by default the real one.
        make_sink: where each node's events go.
        on_bug: what becomes of a mistake of ours; by default it is raised.
    """
    with ExitStack() as stack:
        if data_dir is None:
            data_dir = stack.enter_context(TemporaryDirectory(prefix="understudy-"))
        configs = node_configs(
            brokers=brokers,
            data_dir=data_dir,
            base_port=base_port,
            properties=properties or {},
            listeners=listeners,
            host_of=host_of,
        )
        with raising_only_one(), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                cluster = Cluster(
                    configs=configs,
                    make_seams=make_seams or (lambda _: production_seams()),
                    make_sink=make_sink or (lambda _: ignore),
                    on_bug=on_bug,
                    clock=TrioClock(),
                    nursery=nursery,
                )
                await cluster.start()
                yield cluster
                await cluster.stop()
                scope.cancel()
