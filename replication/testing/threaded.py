"""A cluster in a thread of its own, for callers without trio, or with a loop of their own.

Rule 1: every call blocks until it is done, so a test reads as a list of steps. A call that waits
takes a timeout and raises NotInTimeError.

Rule 2: a killed broker writes nothing more; a frozen one answers no request and lets no session
expire; both come back as they would on another machine (`cluster.py`, `net/impaired.py`). Clients
reach the cluster over TCP, from any thread, loop or process.

Rule 3: a mistake of ours in the cluster is not dropped: the next call raises it, and so does the
end of the block.

`KafkaContainer` has the interface of testcontainers' class, so that a change of one import is
enough:

    from replication.testing import KafkaContainer
    with KafkaContainer() as kafka:
        servers = kafka.get_bootstrap_server()

The file is long because a cluster is one object to its users, and each of its methods is short.
"""

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import attrs
import trio

from replication.broker.nodes import is_controller, node_directory
from replication.cluster.cluster import POLL_SECONDS, Cluster, open_cluster
from replication.cluster.interface import NotInTimeError, NotPossibleError
from replication.events import Event, EventSink
from replication.faults.impairments import Impairments
from replication.metadata.rules.image import MetadataImage, PartitionRegistration
from replication.net.clock import LoopClock
from replication.net.pace import COLLECTIONS
from replication.testing.faults import ThreadedFaults
from replication.testing.portal import ClusterStoppedError, Portal, hides_frames
from storage.attributes import define
from storage.types import TopicPartition

KEPT = 10_000
_ADMIN: Final = {"request_timeout_ms": 10_000}
"""A broker that is frozen and not fenced yet may be asked: another is, before the call's 60 s end."""


@define(eq=False)
class Trace:
    """The last `KEPT` events of all nodes, to be read when a test has failed.

    12.031  b2   leader_elected        orders-0 leader=3 leader_epoch=2 ...

    `now` returns seconds.
    """

    now: Callable[[], float]
    _events: deque[tuple[int, float, int, Event]] = attrs.field(
        init=False, factory=lambda: deque(maxlen=KEPT)
    )
    _count: int = attrs.field(init=False, default=0)

    @property
    def mark(self) -> int:
        """The number of events so far; `lines` can begin there."""
        return self._count

    def sink(self, node_id: int) -> EventSink:
        def keep(event: Event) -> None:
            self._events.append((self._count, self.now(), node_id, event))
            self._count += 1

        return keep

    def lines(self, since: int = 0) -> Iterator[str]:
        for number, moment, node_id, event in tuple(self._events):
            if number >= since:
                node = node_directory(node_id) if is_controller(node_id) else f"b{node_id}"
                yield f"{moment:9.3f}  {node:<10}  {event.name:<24}  {_fields(event)}"


def _fields(event: Event) -> str:
    values = ((each.name, getattr(event, each.name)) for each in attrs.fields(type(event)))
    return " ".join(f"{name}={_shown(value)}" for name, value in values)


def _shown(value: object) -> str:
    if isinstance(value, TopicPartition):
        return str(value)
    return value.hex() if isinstance(value, bytes) else str(value).replace(" ", "")


T = TypeVar("T")

# pytest shows an error of ours at the test's own line, without the frames of this module.
__tracebackhide__ = hides_frames

# Small and quick: a test does not wait nine seconds until a dead broker is fenced.
FOR_TESTS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "2000",
}
WAIT_SECONDS = 30.0


@define(eq=False, repr=False)
class ThreadedCluster:
    """A cluster with a blocking interface: `with ThreadedCluster(brokers=3) as cluster:`, or
    `start` and `stop`.

    Args:
        brokers: the number of brokers; their ids are 1 to `brokers`.
        controllers: the number of controllers; a single one is node 0, several are 3001, 3002, ...
        combined: the controllers are the first of the brokers, each a node with both roles.
        config: further `server.properties` entries, over `FOR_TESTS`.
        data_dir: the directory of their data; by default a temporary one, deleted at the end.
        base_port: broker 1 listens there, broker 2 one above, ...; 0 takes any free port.
    """

    number_of_brokers: int = attrs.field(default=3, alias="brokers", kw_only=True)
    number_of_controllers: int = attrs.field(default=1, alias="controllers", kw_only=True)
    combined: bool = attrs.field(default=False, kw_only=True)
    config: Mapping[str, object] = attrs.field(factory=dict, kw_only=True)
    data_dir: str | None = attrs.field(default=None, kw_only=True)
    base_port: int = attrs.field(default=0, kw_only=True)
    trace: Trace = attrs.field(init=False, repr=False)
    """The last events of its nodes."""
    calls: int = attrs.field(init=False, repr=False, default=0)
    """The number of calls into the cluster so far: a test that made none has not used it."""
    _began: float = attrs.field(init=False, repr=False, factory=time.monotonic)
    _thread: threading.Thread | None = attrs.field(init=False, repr=False, default=None)
    _running: "_Running | None" = attrs.field(init=False, repr=False, default=None)
    _up: threading.Event = attrs.field(init=False, repr=False, factory=threading.Event)
    _mistake: BaseException | None = attrs.field(init=False, repr=False, default=None)

    @trace.default
    def _empty_trace(self) -> Trace:
        return Trace(lambda: time.monotonic() - self._began)

    def __repr__(self) -> str:
        given = f"brokers={self.number_of_brokers}, controllers={self.number_of_controllers}"
        further = {
            name: getattr(self, name) for name in ("combined", "config", "data_dir", "base_port")
        }
        words = [given, *(f"{name}={value!r}" for name, value in further.items() if value)]
        return f"{type(self).__name__}({', '.join(words)})"

    # -- from start to end

    def start(self) -> Self:
        """Start the cluster; return when every broker knows every other."""
        if self._thread is not None:
            raise ClusterStoppedError("a cluster is started once: make another")
        self._thread = threading.Thread(target=self._run, name="understudy", daemon=True)
        with COLLECTIONS.held():  # rule 3 there
            self._thread.start()
            self._up.wait()
        self._raise_mistake()
        return self

    def stop(self) -> None:
        """Shut the cluster down as SIGTERM would, and delete its temporary directory."""
        if self._thread is None:
            return
        if self._running is not None:
            with suppress(ClusterStoppedError):  # a mistake has ended it
                self._running.end()
        self._thread.join()
        self._raise_mistake()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- its address

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas, as clients take it."""
        return self._of(lambda running: running.cluster.bootstrap_servers)

    def get_bootstrap_server(self) -> str:
        """Return `bootstrap_servers`, by testcontainers' name for it."""
        return self.bootstrap_servers

    # -- its metadata

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that run, frozen ones too."""
        return self._of(lambda running: sorted(running.cluster.brokers))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the id of a partition's leader; None if it has none."""
        return self._of(lambda running: running.cluster.leader(topic, partition))

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ids of a partition's in-sync replicas; empty if there is no such partition."""
        registration = self._registration(topic, partition)
        return [] if registration is None else sorted(registration.isr)

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ids of a partition's replicas, the preferred leader first."""
        registration = self._registration(topic, partition)
        return [] if registration is None else list(registration.replicas)

    def _registration(self, topic: str, partition: int) -> PartitionRegistration | None:
        return self._of(lambda running: running.cluster.partition(topic, partition))

    def until(
        self, predicate: Callable[[], object], *, timeout: float = WAIT_SECONDS, what: str = ""
    ) -> None:
        """Wait until `predicate`, which may call this cluster, is true; raise NotInTimeError after
        `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not predicate():
            if time.monotonic() > deadline:
                raise NotInTimeError(f"not within {timeout:g} s: {what or predicate}")
            self._raise_mistake()
            threading.Event().wait(POLL_SECONDS)

    # -- topics

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; return when it is led, and every broker that is not fenced shows it."""
        configs = {key: str(value) for key, value in (config or {}).items()}
        self._call(_create_topic, topic, partitions, replication_factor, configs)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records; return when no broker shows it any more."""
        self._call(_delete_topic, topic)

    # -- its faults

    def kill_broker(self, broker_id: int) -> None:
        """End a broker as SIGKILL would: it writes nothing more and says goodbye to no peer."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.kill_node(broker_id))

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """End the leader of a partition as SIGKILL would; return its broker id.

        Raises NotPossibleError if the partition has no leader, or does not exist.
        """

        async def kill(cluster: Cluster) -> int:
            leader = cluster.leader(topic, partition)
            if leader is None:
                raise NotPossibleError(f"{topic}-{partition} has no leader")
            await cluster.kill_node(leader)
            return leader

        return self.with_cluster(kill)

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down, once other brokers have taken over its leaderships."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.stop_node(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that is down, at its port; return when it is unfenced."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.start_node(broker_id))

    def freeze_broker(self, broker_id: int) -> None:
        """Hold a broker up as SIGSTOP would, or a long garbage collection."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.freeze_node(broker_id))

    def thaw_broker(self, broker_id: int) -> None:
        """Let a frozen broker go on; what fell due meanwhile falls due at once."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.thaw_node(broker_id))

    def _must_be_a_broker(self, broker_id: int) -> None:
        self._of(lambda running: running.cluster.must_be_a_broker(broker_id))

    @property
    def controllers(self) -> list[int]:
        """The ids of the controllers that run, frozen ones too."""
        return self._of(lambda running: sorted(running.cluster.controllers))

    @property
    def active_controller(self) -> int | None:
        """The id of the controller that decides; None while there is none."""
        return self._of(lambda running: running.cluster.active_controller)

    def kill_controller(self, controller_id: int | None = None) -> None:
        """End a controller as SIGKILL would, by default the one that decides.

        Brokers go on serving what they lead; while no controller decides, no leader is elected.
        """
        self.with_cluster(lambda cluster: cluster.kill_controller(controller_id))

    def start_controller(self, controller_id: int | None = None) -> None:
        """Start a controller again, from its own log; by default every one that is down."""
        self.with_cluster(lambda cluster: cluster.start_controller(controller_id))

    def freeze_controller(self, controller_id: int | None = None) -> None:
        """Hold a controller up as SIGSTOP would, by default the one that decides."""
        self.with_cluster(lambda cluster: cluster.freeze_controller(controller_id))

    def thaw_controller(self, controller_id: int) -> None:
        """Let a frozen controller go on."""
        self.with_cluster(lambda cluster: cluster.thaw_node(controller_id))

    def partition_network(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """Cut `some` nodes off from `others`, by default from all other nodes, controllers among
        them.

        Clients still reach every broker. With `one_way` only what `some` send is lost.
        """
        self.with_cluster(lambda cluster: cluster.cut(some, others, one_way=one_way))

    def heal_network(self) -> None:
        """Undo every cut; what was held up meanwhile arrives."""
        self.with_cluster(Cluster.heal)

    @property
    def faults(self) -> ThreadedFaults:
        """The fault rules for requests; rules are added here."""
        return ThreadedFaults(self)

    def reset(self) -> None:
        """Start, thaw and connect every node, and remove every fault rule. Topics stay."""
        self.with_cluster(Cluster.make_whole)

    # -- its thread

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=LoopClock())
        except BaseException as mistake:  # noqa: BLE001 - raised where somebody sees it
            self._mistake = mistake
        finally:
            self._up.set()

    async def _main(self) -> None:
        properties = FOR_TESTS | {**self.config}
        async with (
            open_cluster(
                brokers=self.number_of_brokers,
                controllers=self.number_of_controllers,
                combined=self.combined,
                data_dir=self.data_dir,
                base_port=self.base_port,
                properties=properties,
                make_sink=self.trace.sink,
                impairments=Impairments(),
            ) as cluster,
            trio.open_nursery() as nursery,
        ):
            portal = Portal()
            await nursery.start(portal.serve)
            self._running = _Running(cluster, portal)
            self._up.set()
            await self._running.ended.wait()
            cluster.let_go()
            nursery.cancel_scope.cancel()

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        self._raise_mistake()
        self.calls += 1
        if self._running is None:
            raise ClusterStoppedError("the cluster has not been started")
        return self._running.portal.call(function, self._running, *arguments)

    def with_cluster(self, do: Callable[[Cluster], Awaitable[T]]) -> T:
        """Return the result of `do`, called with the cluster in its own thread."""

        async def there(running: _Running) -> T:
            return await do(running.cluster)

        return self._call(there)

    def _of(self, read: Callable[["_Running"], T]) -> T:
        async def there(running: "_Running") -> T:
            return read(running)

        return self._call(there)

    def _raise_mistake(self) -> None:
        if self._mistake is not None:
            raise self._mistake


@define(eq=False)
class _Running:
    """The cluster as its own thread sees it."""

    cluster: Cluster
    portal: Portal
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)

    def end(self) -> None:
        """End the cluster, called from another thread."""
        self.portal.soon(self.ended.set)


async def _create_topic(
    running: _Running,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: dict[str, str],
) -> None:
    from replication.client.admin import NewTopic  # noqa: PLC0415 - nobody waits for it at the start

    new = NewTopic(
        name=name, partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    cluster = running.cluster
    async with cluster.admin(**_ADMIN) as admin:
        (topic_id,) = (await admin.create_topics([new])).values()

    await _until_every_broker(
        cluster, lambda image: image.topic_by_id(topic_id) is not None, what=f"knows {name}"
    )


async def _delete_topic(running: _Running, name: str) -> None:
    cluster = running.cluster
    topic_id = cluster.image.topic_id(name)
    async with cluster.admin(**_ADMIN) as admin:
        await admin.delete_topics([name])
    if topic_id is not None:
        await _until_every_broker(
            cluster, lambda image: image.topic_by_id(topic_id) is None, what=f"has deleted {name}"
        )


async def _until_every_broker(
    cluster: Cluster, shows: Callable[[MetadataImage], bool], *, what: str
) -> None:
    """Wait for every broker that is not fenced; a frozen one is fenced in time."""

    def all_show() -> bool:
        newest, brokers = cluster.image, cluster.brokers
        return all(
            shows(broker.metadata.image)
            for broker_id, broker in brokers.items()
            if newest.is_alive(broker_id)
        )

    await cluster.until(all_show, what=f"every broker {what}")


class KafkaContainer(ThreadedCluster):
    """A cluster of one broker, as in its container. Image and port have no effect."""

    def __init__(self, image: str = "", port: int = 0) -> None:  # noqa: ARG002 - its signature
        super().__init__(brokers=1)

    def with_kraft(self) -> Self:
        """Do nothing: every cluster is of KRaft's kind."""
        return self

    def with_env(self, key: str, value: str) -> Self:
        """Set a key by its variable: `KAFKA_MIN_INSYNC_REPLICAS` is `min.insync.replicas`; other
        names than KAFKA_ are ignored.
        """
        name = key.removeprefix("KAFKA_")
        if name != key:
            self.config = {**self.config, name.lower().replace("_", "."): value}
        return self
