"""A whole cluster in this process: controllers and brokers, each a node of its own.

    async with open_cluster(brokers=3) as cluster:
        ...  # cluster.bootstrap_servers is what a client is given
        await cluster.kill_broker(1)
        await cluster.until(lambda: cluster.leader("topic", 0) not in (None, 1))
        await cluster.start_broker(1)

    DATA/controller/log   DATA/broker-1/log   DATA/broker-2/log   DATA/broker-3/log

Rule 1: nodes share the process and nothing else. Each has its own seams, and they talk
over the transport as they would across machines.

Rule 2: a node that is killed writes nothing from that moment on. Its disk and network are detached first,
and its tasks are cancelled after that, so no cleanup code can write what a killed process would not have
written. Errors of its tasks meanwhile are consequences of the kill, and are dropped.

Rule 3: a node that starts again keeps its port, so that clients find it where it was.

Rule 4: an operation that is not possible now (a node that is down cannot be killed) raises
NotPossibleError, and changes nothing.

Nodes can be frozen, and cut off from each other, in a cluster with impairments:

    async with open_cluster(impairments=Impairments()) as cluster:
        await cluster.freeze_node(2)
        await cluster.cut([1], [2, 3])
        await cluster.make_whole()

The file is long because a cluster is one object to its users, and each of its methods is short.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs
import trio

from replication.broker.broker import CONTROLLED_SHUTDOWN_SECONDS, Broker
from replication.broker.combined import CombinedNode
from replication.broker.nodes import (
    HostOf,
    loopback,
    node_configs,
    node_name,
)
from replication.cluster.interface import (
    NodeStatus,
    NodeSummary,
    NotInTimeError,
    NotPossibleError,
    PartitionSummary,
)
from replication.config import BrokerConfig
from replication.controller.controller import Controller
from replication.errors import OnBug, UnderstudyError, raise_bug
from replication.events import EventSink, ignore
from replication.faults import AddedRule, FaultRule
from replication.faults.impairments import Impairments
from replication.faults.node_faults import Faults
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.net import production_seams
from replication.net.clock import TrioClock
from replication.net.detach import DetachableFileSystem, DetachableTransport
from replication.net.raising import raising_only_one, raising_the_first
from replication.net.seams import NodeClock, Seams
from storage.attributes import define
from storage.errors import StorageError
from storage.types import TopicPartition

if TYPE_CHECKING:
    from replication.client import Admin, Consumer, Producer

POLL_SECONDS = 0.01
STOP_PATIENCE_SECONDS = 1.0  # of brokers that all leave

Node: TypeAlias = Broker | Controller | CombinedNode
MakeSink: TypeAlias = Callable[[int], EventSink]


class Machine(Protocol):
    """The disk and the network of one incarnation of a node."""

    @property
    def seams(self) -> Seams: ...

    def detach(self) -> None:
        """Take disk and network away; every later call on them fails."""

    def abandon(self) -> None:
        """Close the files that the dead incarnation left open, after its tasks have ended."""


@define(eq=False, init=False)
class DetachableMachine:
    """A machine on any seams."""

    seams: Seams
    _transport: DetachableTransport
    _file_system: DetachableFileSystem

    def __init__(self, seams: Seams) -> None:
        self._transport = DetachableTransport(seams.transport)
        self._file_system = DetachableFileSystem(seams.file_system)
        self.seams = attrs.evolve(seams, transport=self._transport, file_system=self._file_system)

    def detach(self) -> None:
        self._transport.detach()
        self._file_system.detach()

    def abandon(self) -> None:
        self._file_system.abandon()


MakeMachine: TypeAlias = Callable[[int], Machine]
MakeSeams: TypeAlias = Callable[[int], Seams]


class KilledError(UnderstudyError):
    """A node was killed before it had started."""


@define(eq=False, repr=False, kw_only=True)
class _Incarnation:
    """One incarnation of a node, and the machine on which it runs."""

    node: Node
    machine: Machine
    on_failure: Callable[["_Incarnation", Exception], None]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    killed: bool = False
    started: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def roles(self) -> list[Broker | Controller]:
        """The controller and the broker of a node with both roles; else the node itself."""
        node = self.node
        return [node.controller, node.broker] if isinstance(node, CombinedNode) else [node]

    @property
    def ports(self) -> list[int]:
        """The ports of its listeners, those of a broker first; 0 before it listens."""
        of_brokers = [
            each.port for node in self.roles if isinstance(node, Broker) for each in node.endpoints
        ]
        return of_brokers + [each.port for each in self.roles if isinstance(each, Controller)]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self.scope:
                await self.node.run(task_status=task_status)
        except Exception as error:
            if not self.killed:
                if not self.started:
                    raise
                self.on_failure(self, error)
        finally:
            self.ended.set()


@define(eq=False, repr=False, kw_only=True)
class Cluster:
    """Nodes in this process, by id. Made by `open_cluster`."""

    configs: dict[int, BrokerConfig]
    make_machine: MakeMachine
    make_sink: MakeSink
    on_bug: OnBug
    on_end: Callable[[int], None] = lambda _: None
    """Called for a node that has ended and was not killed."""
    failures_of_a_node: tuple[type[Exception], ...] = (UnderstudyError, StorageError, OSError)
    """The errors that end a node and leave the others running; any other ends the cluster."""
    poll_seconds: Callable[[], float] = lambda: POLL_SECONDS
    """The pause before `until` looks again."""
    clock: NodeClock
    impairments: Impairments | None = None
    """The impairments, by which nodes can be frozen and cut off, if the cluster was opened with them."""
    _nursery: trio.Nursery
    faults: Faults = attrs.field(init=False)
    """The fault rules for requests (`replication.faults`); none until some are added."""
    failures: dict[int, Exception] = attrs.field(factory=dict, init=False)
    """The error that ended a node which was neither killed nor stopped, most likely of a disk."""
    _alive: dict[int, _Incarnation] = attrs.field(factory=dict, init=False)

    @faults.default
    def _no_faults(self) -> Faults:
        return Faults(self.clock, node_ids=lambda: self.node_ids)

    def __attrs_post_init__(self) -> None:
        if self.impairments is not None:
            self.impairments.know(self._node_at)

    # Where it is.

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not, the controllers' first."""
        return list(dict.fromkeys([*self.controller_ids, *self.broker_ids]))

    @property
    def controller_ids(self) -> list[int]:
        """The ids of all controllers, running or not."""
        return sorted(each for each, config in self.configs.items() if config.is_controller)

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return sorted(each for each, config in self.configs.items() if config.is_broker)

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers that run now, by id."""
        return {node_id: each for node_id, each in self._running if isinstance(each, Broker)}

    @property
    def controllers(self) -> dict[int, Controller]:
        """The controllers that run now, by id."""
        return {node_id: each for node_id, each in self._running if isinstance(each, Controller)}

    @property
    def _running(self) -> Iterator[tuple[int, Broker | Controller]]:
        for node_id, incarnation in sorted(self._alive.items()):
            for each in incarnation.roles:
                yield node_id, each

    @property
    def controller(self) -> Controller | None:
        """The controller that decides; None while there is none."""
        active = [each for each in self.controllers.values() if each.port and each.is_active]
        return max(active, key=lambda each: each.log.leading_epoch or 0, default=None)

    @property
    def active_controller(self) -> int | None:
        """The id of the controller that decides; None while there is none."""
        return None if self.controller is None else self.controller.config.node_id

    @property
    def bootstrap_list(self) -> list[str]:
        """`host:port` of the first listener of every broker, running or not."""
        return self.addresses(self.configs[self.broker_ids[0]].listeners[0].name)

    def addresses(self, listener: str) -> list[str]:
        """Return `host:port` of every broker's listener of that name."""
        listening = [each for broker in self.broker_ids for each in self.configs[broker].listeners]
        return [f"{each.host}:{each.port}" for each in listening if each.name == listener]

    @property
    def bootstrap_servers(self) -> str:
        """`bootstrap_list` as one string, as clients take it."""
        return ",".join(self.bootstrap_list)

    # Clients over TCP. Where nodes listen on another transport, a client needs its seams.

    def producer(self, **config: Any) -> "Producer[Any, Any]":
        """Make a producer for `async with`; `config` is Kafka's keys, underscored."""
        from replication.client import Producer  # noqa: PLC0415 - brokers start without it

        return Producer(self.bootstrap_servers, **config)

    def consumer(self, *topics: str, **config: Any) -> "Consumer":
        """Make a consumer for `async with`: `cluster.consumer("t", group_id="g")`."""
        from replication.client import Consumer  # noqa: PLC0415 - brokers start without it

        return Consumer(*topics, bootstrap_servers=self.bootstrap_servers, **config)

    def admin(self, **config: Any) -> "Admin":
        """Make an admin client for `async with`."""
        from replication.client import Admin  # noqa: PLC0415 - brokers start without it

        return Admin(self.bootstrap_servers, **config)

    # What it knows.

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, as a running node knows it; None where none does."""
        known = [broker.logs.cluster_id for broker in self.brokers.values()]
        if self.controller is not None and self.controller.port:
            known.append(self.controller.cluster_id)
        return next(filter(None, known), None)

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that any running node has."""
        images = [broker.metadata.image for broker in self.brokers.values()]
        images += [controller.synced_image for controller in self.controllers.values()]
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return replicas, ISR, leader and epochs of a partition; None if there is none.

        This is at least as new as the metadata on which any acknowledgement has depended: what the
        controller has committed, or what a leader received of it before the controller died.
        """
        topic_partition = TopicPartition(topic, partition)
        registration = self.image.partition(topic_partition)
        if registration is None or (leader := self.brokers.get(registration.leader)) is None:
            return registration
        seen = leader.replica_manager.hosted.snapshot(topic_partition)
        if seen is None or seen.partition_epoch <= registration.partition_epoch:
            return registration
        isr = tuple(each for each in registration.replicas if each in seen.isr)
        return attrs.evolve(registration, isr=isr, partition_epoch=seen.partition_epoch)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the id of a partition's leader; None if it has none."""
        registration = self.partition(topic, partition)
        return None if registration is None or registration.leader < 0 else registration.leader

    async def until(
        self, predicate: Callable[[], bool], *, timeout_seconds: float = 30.0, what: str = ""
    ) -> None:
        """Wait until `predicate` is true; raise NotInTimeError after the time limit."""
        with self.clock.move_on_after(timeout_seconds):
            while not predicate():
                await self.clock.sleep(self.poll_seconds())
            return
        raise NotInTimeError(f"not within {timeout_seconds:g} s: {what or predicate}")

    # What happens to it.

    async def start(self) -> None:
        """Start every node that is down, controllers first; return when all know each other."""
        await self._choose_ports_of_voters()
        await self._start_all(self.controller_ids)
        await self._start_all(self.broker_ids)
        await self.until(self.is_complete, what="every broker knows every other")

    async def _start_all(self, node_ids: Iterable[int]) -> None:
        """Start those of these nodes that are down, side by side."""
        with raising_the_first():
            async with trio.open_nursery() as nursery:
                for node_id in node_ids:
                    if not self.is_up(node_id):
                        nursery.start_soon(self.start_node, node_id)

    async def _choose_ports_of_voters(self) -> None:
        """Give several controllers free ports before the first one starts: each must know all."""
        if len(self.controller_ids) == 1:
            return
        with ExitStack() as held:
            for node_id in self.controller_ids:
                config = self.configs[node_id]
                (own,) = config.controller_listeners
                if own.port == 0:
                    transport = self.make_machine(node_id).seams.transport
                    taken = await transport.listen(own.host, 0)
                    held.callback(taken.close)
                    others = [each.port for each in config.broker_listeners]
                    self._set_ports(node_id, [*others, taken.port])

    def is_complete(self) -> bool:
        """Return whether every running broker sees every other one alive."""
        brokers = self.brokers
        return all(
            broker.metadata.image.is_alive(other)
            for broker in brokers.values()
            for other in brokers
        )

    async def start_node(self, node_id: int, *, timeout_seconds: float | None = None) -> None:
        """Start a node that is down; a broker is unfenced when this returns.

        Raises:
            KilledError: it was killed before it had started.
            NotPossibleError: it runs already, or it did not start within the time limit; then it
                is down again.
        """
        self.must_be(node_id, up=False)
        if timeout_seconds is None:
            await self._start_node(node_id)
            return
        with self.clock.move_on_after(timeout_seconds):
            await self._start_node(node_id)
            return
        raise NotPossibleError(
            f"not started within {timeout_seconds:g} s: is the controller up, and reachable?"
        )

    async def _start_node(self, node_id: int) -> None:
        incarnation = self._incarnation(node_id)
        self._alive[node_id] = incarnation
        try:
            await self._nursery.start(incarnation.run)
            incarnation.started = True
        except RuntimeError as error:  # trio's, of what ends before it has started
            if not incarnation.killed:
                raise
            raise KilledError(f"node {node_id} was killed before it had started") from error
        finally:
            if not incarnation.started:
                self._has_ended(node_id, incarnation)
        self.failures.pop(node_id, None)
        if any(incarnation.ports):  # otherwise it was stopped before it listened
            self._set_ports(node_id, incarnation.ports)

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker that is down, at its port; return when it is unfenced."""
        self.must_be_a_broker(broker_id)
        await self.start_node(broker_id)

    async def start_controller(self, controller_id: int | None = None) -> None:
        """Start a controller again, from its own log; by default every one that is down."""
        if controller_id is None and len(self.controller_ids) > 1:
            await self._start_all(self.controller_ids)
        else:
            await self.start_node(self._controller_id(controller_id))

    async def kill_broker(self, broker_id: int) -> None:
        """End a broker as SIGKILL would: it writes and sends nothing more."""
        self.must_be_a_broker(broker_id)
        await self.kill_node(broker_id)

    async def kill_controller(self, controller_id: int | None = None) -> None:
        """End a controller as SIGKILL would, by default the one that decides.

        Brokers go on serving what they lead.
        """
        await self.kill_node(self._controller_id(controller_id))

    def _controller_id(self, controller_id: int | None) -> int:
        """Return the id of a controller; by default of the one that decides."""
        if controller_id is None:
            if len(self.controller_ids) == 1:
                return self.controller_ids[0]
            if self.active_controller is None:
                raise NotPossibleError("no controller decides now")
            return self.active_controller
        if type(controller_id) is not int or controller_id not in self.controller_ids:
            there = ", ".join(map(str, self.controller_ids))
            raise NotPossibleError(
                f"there is no controller {controller_id!r}; those of this cluster: {there}"
            )
        return controller_id

    async def kill_node(self, node_id: int) -> None:
        """End a node as SIGKILL would: it writes nothing more and says goodbye to no peer."""
        self.must_be(node_id, up=True)
        incarnation = self._alive[node_id]
        self.detach_node(node_id)
        await incarnation.ended.wait()
        incarnation.machine.abandon()

    def detach_node(self, node_id: int) -> None:
        """Begin to kill a node that is up: its disk and network are gone, and its tasks end soon."""
        incarnation = self._alive.pop(node_id)
        incarnation.killed = True
        incarnation.machine.detach()
        incarnation.scope.cancel()

    async def stop_node(
        self, node_id: int, *, patience_seconds: float = CONTROLLED_SHUTDOWN_SECONDS
    ) -> None:
        """Shut a node down, with its logs in good order; a frozen node is thawed first.

        A broker waits `patience_seconds` for the controller to move its leaderships.
        """
        self.must_be(node_id, up=True)
        if self.impairments is not None:
            self.impairments.thaw(node_id)
        incarnation = self._alive[node_id]
        if isinstance(incarnation.node, Controller):
            incarnation.node.shut_down()
        else:
            incarnation.node.shut_down(patience_seconds=patience_seconds)
        await incarnation.ended.wait()
        self._has_ended(node_id, incarnation)

    async def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down, once other brokers have taken over its leaderships."""
        self.must_be_a_broker(broker_id)
        await self.stop_node(broker_id)

    async def stop(self) -> None:
        """Stop the brokers, then the controllers, which have to move their leaderships.

        No broker remains, so none waits long for the session of a killed broker to expire, or for a
        controller that is down.
        """
        async with trio.open_nursery() as nursery:
            for broker_id in self.brokers:
                stop = partial(self.stop_node, patience_seconds=STOP_PATIENCE_SECONDS)
                nursery.start_soon(stop, broker_id)
        async with trio.open_nursery() as nursery:
            for controller_id in self.controllers:
                nursery.start_soon(self.stop_node, controller_id)

    # Frozen nodes, cuts and fault rules (`interface.AnyCluster`).

    @property
    def frozen(self) -> frozenset[int]:
        """The ids of the nodes that are frozen."""
        return frozenset() if self.impairments is None else self.impairments.frozen

    async def freeze_node(self, node_id: int) -> None:
        """Freeze a node as SIGSTOP would."""
        self.must_be(node_id, up=True)
        self._impairments().freeze(node_id)

    async def freeze_controller(self, controller_id: int | None = None) -> None:
        """Freeze a controller as SIGSTOP would, by default the one that decides."""
        await self.freeze_node(self._controller_id(controller_id))

    async def thaw_node(self, node_id: int) -> None:
        """Let a frozen node continue; timers that expired meanwhile fire at once."""
        self.must_be(node_id, up=True)
        self._impairments().thaw(node_id)

    def cuts(self) -> Sequence[tuple[int, int]]:
        """Return the pairs (sender, receiver) between which nothing arrives."""
        return [] if self.impairments is None else sorted(self.impairments.cuts)

    async def cut(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """Cut `some` nodes off from `others`, by default from all other nodes.

        Clients still reach every node. With `one_way` only what `some` send is lost.
        """
        some = self._checked_ids(some)
        rest = [each for each in self.node_ids if each not in some]
        others = rest if others is None else self._checked_ids(others)
        self._impairments().cut(some, others, one_way=one_way)

    async def heal(self) -> None:
        """Undo every cut; delayed bytes arrive."""
        self._impairments().heal()

    def let_go(self) -> None:
        """Remove every fault rule and cut, and thaw every node."""
        self.faults.clear()
        if self.impairments is not None:
            self.impairments.heal()
            for node_id in self.impairments.frozen:
                self.impairments.thaw(node_id)

    async def make_whole(self) -> None:
        """Start, thaw and connect every node, and remove every fault rule. Topics stay."""
        self.let_go()
        await self.start()

    async def add_fault(self, rule: FaultRule) -> AddedRule:
        """Put a fault rule in force."""
        return self.faults.add(rule)

    async def remove_fault(self, rule: AddedRule) -> None:
        """Remove a fault rule; requests that it holds go on."""
        self.faults.remove(rule)

    async def clear_faults(self) -> None:
        """Remove every fault rule."""
        self.faults.clear()

    def _impairments(self) -> Impairments:
        if self.impairments is None:
            raise NotPossibleError(
                "this cluster was opened without impairments: its nodes can neither be frozen nor"
                " cut off"
            )
        return self.impairments

    def _checked_ids(self, nodes: Iterable[int]) -> list[int]:
        if not isinstance(nodes, Iterable):
            raise NotPossibleError(f"{nodes!r} is not a list of node ids, such as [1, 2]")
        node_ids = list(nodes)
        for node_id in node_ids:
            self.must_be_one(node_id)
        return node_ids

    def _node_at(self, port: int) -> int | None:
        for node_id, config in self.configs.items():
            if any(listener.port == port for listener in config.listeners):
                return node_id
        return None

    # Summaries, and what is possible now.

    def nodes(self) -> list[NodeSummary]:
        """Return every node, the controllers first."""
        return [self._node_summary(node_id) for node_id in self.node_ids]

    def _node_summary(self, node_id: int) -> NodeSummary:
        listener = self.configs[node_id].listeners[0]
        status = NodeStatus.FROZEN if node_id in self.frozen else NodeStatus.RUNNING
        return NodeSummary(
            id=node_id,
            status=status if self.is_up(node_id) else NodeStatus.DOWN,
            address=f"{listener.host}:{listener.port}",
            roles=self.configs[node_id].process_roles,
        )

    async def topics(self) -> Mapping[str, Sequence[PartitionSummary]]:
        """Return the partitions of every topic, by its name."""
        return {
            name: [
                PartitionSummary(
                    partition=number,
                    leader=None if each.leader < 0 else each.leader,
                    leader_epoch=each.leader_epoch,
                    replicas=list(each.replicas),
                    isr=sorted(each.isr),
                )
                for number, each in sorted(topic.partitions.items())
            ]
            for name, topic in sorted(self.image.topics.items())
        }

    def is_up(self, node_id: int) -> bool:
        """Return whether a node runs or is starting."""
        return node_id in self._alive

    def must_be_one(self, node_id: int) -> None:
        """Raise NotPossibleError for a node that this cluster does not have."""
        if type(node_id) is not int or node_id not in self.node_ids:
            there = ", ".join(map(str, self.node_ids))
            raise NotPossibleError(f"there is no node {node_id!r}; those of this cluster: {there}")

    def must_be_a_broker(self, broker_id: int) -> None:
        """Raise NotPossibleError for an id that is no broker's, such as the controller's."""
        if type(broker_id) is not int or broker_id not in self.broker_ids:
            there = ", ".join(map(str, self.broker_ids))
            which = f" ({broker_id} is a controller)" if broker_id in self.controller_ids else ""
            raise NotPossibleError(
                f"there is no broker {broker_id!r}{which}; those of this cluster: {there}"
            )

    def must_be(self, node_id: int, *, up: bool) -> None:
        """Raise NotPossibleError if a node that must be up is down, or the other way round."""
        self.must_be_one(node_id)
        if self.is_up(node_id) != up:
            raise NotPossibleError(f"{node_name(node_id)} is {'down' if up else 'up'} already")

    def _incarnation(self, node_id: int) -> _Incarnation:
        def on_bug(error: BaseException) -> None:
            if not incarnation.killed:
                self.on_bug(error)

        machine = self.make_machine(node_id)
        config = self.configs[node_id]
        make: type[Node] = Controller if config.is_controller else Broker
        if config.is_controller and config.is_broker:
            make = CombinedNode
        node = make(
            config=config,
            seams=machine.seams,
            sink=self.make_sink(node_id),
            on_bug=on_bug,
            faults=self.faults,
        )
        on_failure = partial(self._has_failed, node_id)
        incarnation = _Incarnation(node=node, machine=machine, on_failure=on_failure)
        return incarnation

    def _has_failed(self, node_id: int, incarnation: _Incarnation, error: Exception) -> None:
        """Record the error that ended a node; the other nodes continue, as they would on other machines."""
        if not isinstance(error, self.failures_of_a_node):
            raise error
        self.failures[node_id] = error
        self._has_ended(node_id, incarnation)

    def _has_ended(self, node_id: int, incarnation: _Incarnation) -> None:
        """Forget an incarnation that has ended, unless a kill was first."""
        if self._alive.get(node_id) is incarnation:
            del self._alive[node_id]
            self.on_end(node_id)

    def _set_ports(self, node_id: int, ports: Sequence[int]) -> None:
        """Keep the ports of a node, those for brokers last, and make these known to all."""
        config = self.configs[node_id]
        listeners = tuple(
            attrs.evolve(each, port=port)
            for each, port in zip(config.listeners, ports, strict=False)
        )
        if listeners == config.listeners:
            return
        voters = config.controller_quorum_voters
        if config.is_controller:
            voters = tuple(
                attrs.evolve(each, port=listeners[-1].port) if each.node_id == node_id else each
                for each in voters
            )
            for each, other in self.configs.items():
                if each != node_id:
                    self.configs[each] = attrs.evolve(other, controller_quorum_voters=voters)
        self.configs[node_id] = attrs.evolve(
            config, listeners=listeners, controller_quorum_voters=voters
        )


def _production(_: int) -> Seams:
    return production_seams()


@asynccontextmanager
async def open_cluster(
    *,
    brokers: int = 3,
    controllers: int = 1,
    combined: bool = False,
    data_dir: str | None = None,
    base_port: int = 0,
    properties: Mapping[str, object] | None = None,
    listeners: Sequence[str] = ("PLAINTEXT",),
    host_of: HostOf = loopback,
    make_seams: MakeSeams | None = None,
    make_sink: MakeSink | None = None,
    impairments: Impairments | None = None,
    on_bug: OnBug = raise_bug,
) -> AsyncIterator[Cluster]:
    """Open a cluster that is up when the block begins, and is shut down when it ends.

    Args:
        brokers: the number of brokers; their ids are 1 to `brokers`.
        controllers: the number of controllers; a single one is node 0, several are 3001, 3002, ...
        combined: the controllers are the first of the brokers, each a node with both roles.
        data_dir: the directory of their data, which is kept; by default a temporary one.
        base_port: broker 1 listens there, broker 2 one above, ...; 0 takes any free port.
        properties: further `server.properties` entries, for every node.
        listeners: the names of each broker's listeners; the first is at `base_port`, the others
            at any free port.
        host_of: the host of each node, if they are not all on this machine.
        make_seams: the seams of each node; by default those of `impairments`, or else production's.
        make_sink: the sink of each node's events.
        impairments: the impairments that freeze nodes and cut them off; without them that is refused.
        on_bug: called with an error that is a bug of understudy; by default it is raised.
    """
    if make_seams is None:
        make_seams = _production if impairments is None else impairments.seams
    with ExitStack() as stack:
        if data_dir is None:
            data_dir = stack.enter_context(TemporaryDirectory(prefix="understudy-"))
        configs = node_configs(
            brokers=brokers,
            controllers=controllers,
            combined=combined,
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
                    make_machine=lambda node_id: DetachableMachine(make_seams(node_id)),
                    make_sink=make_sink or (lambda _: ignore),
                    on_bug=on_bug,
                    clock=TrioClock(),
                    impairments=impairments,
                    nursery=nursery,
                )
                await cluster.start()
                yield cluster
                await cluster.stop()
                scope.cancel()
