"""A cluster in a thread of its own, for whoever does not run trio, or has a loop already.

Rule 1: every call blocks until it is done, so a test reads like the story that it tells. What
waits for something takes a timeout and raises NotInTimeError.

Rule 2: a broker that is killed writes nothing any more, one that is frozen answers nobody and
times out nobody, and both come back as they would on another machine (`cluster.py`,
`net/impaired.py`). Clients reach it over TCP, from any thread, loop or process.

Rule 3: a mistake of ours in the cluster is not swallowed: the next call raises it, and so does
the end of the block.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs
import trio

from replication.broker.nodes import CONTROLLER_ID
from replication.cluster.cluster import POLL_SECONDS, Cluster, open_cluster
from replication.cluster.interface import NotInTimeError
from replication.faults.impairments import Impairments
from replication.metadata.rules import MetadataImage, PartitionRegistration
from replication.testing.collector import collector_put_off
from replication.testing.faults import ThreadedFaults
from replication.testing.portal import ClusterStoppedError, Portal
from replication.testing.trace import Trace

T = TypeVar("T")

# Small and quick: nobody waits nine seconds in a test for a broker to be missed.
FOR_TESTS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "2000",
}
WAIT_SECONDS = 30.0


@attrs.define(eq=False)
class ThreadedCluster:
    """`with ThreadedCluster(brokers=3) as cluster:`, or `start` and `stop`.

    Args:
        brokers: how many; their ids are 1 to `brokers`.
        config: further `server.properties` entries, over `FOR_TESTS`.
        data_dir: where their data lies; by default a temporary directory, gone at the end.
        base_port: broker 1 listens there, broker 2 one above, ...; 0 takes any.
    """

    number_of_brokers: int = attrs.field(default=3, alias="brokers", kw_only=True)
    config: Mapping[str, object] = attrs.field(factory=dict, kw_only=True)
    data_dir: str | None = attrs.field(default=None, kw_only=True)
    base_port: int = attrs.field(default=0, kw_only=True)
    trace: Trace = attrs.field(init=False, repr=False)
    """What happened in it."""
    _began: float = attrs.field(init=False, repr=False, factory=time.monotonic)
    _thread: threading.Thread | None = attrs.field(init=False, repr=False, default=None)
    _running: "_Running | None" = attrs.field(init=False, repr=False, default=None)
    _up: threading.Event = attrs.field(init=False, repr=False, factory=threading.Event)
    _mistake: BaseException | None = attrs.field(init=False, repr=False, default=None)

    @trace.default
    def _empty_trace(self) -> Trace:
        return Trace(lambda: time.monotonic() - self._began)

    # -- from start to end

    def start(self) -> Self:
        """Returns when every broker knows every other."""
        if self._thread is not None:
            raise ClusterStoppedError("a cluster is started once: make another")
        self._thread = threading.Thread(target=self._run, name="understudy", daemon=True)
        with collector_put_off():
            self._thread.start()
            self._up.wait()
        self._raise_mistake()
        return self

    def stop(self) -> None:
        """As SIGTERM would; its temporary directory goes with it."""
        if self._thread is None:
            return
        if self._running is not None:
            with suppress(ClusterStoppedError):  # it has ended by itself: of a mistake
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

    # -- where it is

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, parted by commas, as clients take it."""
        return self._of(lambda running: running.cluster.bootstrap_servers)

    def get_bootstrap_server(self) -> str:
        """The same, by the name that testcontainers has for it."""
        return self.bootstrap_servers

    # -- what it knows

    @property
    def brokers(self) -> list[int]:
        """The ids of those that run, frozen ones too."""
        return self._of(lambda running: sorted(running.cluster.brokers))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Who leads it; None where nobody does."""
        return self._of(lambda running: running.cluster.leader(topic, partition))

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Its in-sync replicas; none of a partition that is not there."""
        registration = self._registration(topic, partition)
        return [] if registration is None else sorted(registration.isr)

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """Who is to have it, the preferred leader first."""
        registration = self._registration(topic, partition)
        return [] if registration is None else list(registration.replicas)

    def _registration(self, topic: str, partition: int) -> PartitionRegistration | None:
        return self._of(lambda running: running.cluster.partition(topic, partition))

    def until(
        self, predicate: Callable[[], object], *, timeout: float = WAIT_SECONDS, what: str = ""
    ) -> None:
        """Until `predicate` holds, which may ask this cluster; NotInTimeError if it never does."""
        deadline = time.monotonic() + timeout
        while not predicate():
            if time.monotonic() > deadline:
                raise NotInTimeError(f"not within {timeout:g} s: {what or predicate}")
            self._raise_mistake()
            threading.Event().wait(POLL_SECONDS)

    # -- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic; return when it is led, and every broker that is not fenced shows it."""
        configs = {key: str(value) for key, value in (config or {}).items()}
        self._call(_create_topic, name, partitions, replication_factor, configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; return when no broker shows it any more."""
        self._call(_delete_topic, name)

    # -- what happens to it

    def kill_broker(self, broker_id: int) -> None:
        """As SIGKILL would: nothing is written, and nobody is told."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.kill_node(broker_id))

    def stop_broker(self, broker_id: int) -> None:
        """A controlled shutdown: its leaderships are taken over first."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.stop_node(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Again, at the same port; returns when it is unfenced."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.start_node(broker_id))

    def freeze_broker(self, broker_id: int) -> None:
        """As SIGSTOP would, or a long pause of a garbage collector."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.freeze_node(broker_id))

    def thaw_broker(self, broker_id: int) -> None:
        """What fell due meanwhile falls due at once."""
        self._must_be_a_broker(broker_id)
        self.with_cluster(lambda cluster: cluster.thaw_node(broker_id))

    def _must_be_a_broker(self, broker_id: int) -> None:
        self._of(lambda running: running.cluster.must_be_a_broker(broker_id))

    def kill_controller(self) -> None:
        """As SIGKILL would; brokers go on serving what they lead, and nobody is elected."""
        self.with_cluster(lambda cluster: cluster.kill_node(CONTROLLER_ID))

    def start_controller(self) -> None:
        """Again, from its own log; then it elects."""
        self.with_cluster(lambda cluster: cluster.start_node(CONTROLLER_ID))

    def partition_network(
        self, some: Iterable[int], others: Iterable[int] | None = None, *, one_way: bool = False
    ) -> None:
        """Cut `some` nodes off from `others`, by default from all other nodes, the controller
        (0) among them; clients still reach everybody. `one_way`: only what `some` send is lost.
        """
        self.with_cluster(lambda cluster: cluster.cut(some, others, one_way=one_way))

    def heal_network(self) -> None:
        """What was held up meanwhile arrives."""
        self.with_cluster(Cluster.heal)

    @property
    def faults(self) -> ThreadedFaults:
        """What is to go wrong with requests: rules are added here."""
        return ThreadedFaults(self)

    def reset(self) -> None:
        """Whole again: everybody up, thawed and connected, no fault rules. Topics stay."""
        self.with_cluster(Cluster.make_whole)

    # -- inside

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as mistake:  # noqa: BLE001 - raised where somebody sees it
            self._mistake = mistake
        finally:
            self._up.set()

    async def _main(self) -> None:
        properties = FOR_TESTS | {**self.config}
        async with (
            open_cluster(
                brokers=self.number_of_brokers,
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
        if self._running is None:
            raise ClusterStoppedError("the cluster has not been started")
        return self._running.portal.call(function, self._running, *arguments)

    def with_cluster(self, do: Callable[[Cluster], Awaitable[T]]) -> T:
        """What `do` returns, called with the cluster in its own thread."""

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


@attrs.define(eq=False)
class _Running:
    """A cluster as its own thread sees it."""

    cluster: Cluster
    portal: Portal
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)

    def end(self) -> None:
        """From another thread."""
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
    async with cluster.admin() as admin:
        (topic_id,) = (await admin.create_topics([new])).values()

    await _until_every_broker(
        cluster, lambda image: image.topic_by_id(topic_id) is not None, what=f"knows {name}"
    )


async def _delete_topic(running: _Running, name: str) -> None:
    cluster = running.cluster
    topic_id = cluster.image.topic_id(name)
    async with cluster.admin() as admin:
        await admin.delete_topics([name])
    if topic_id is not None:
        await _until_every_broker(
            cluster, lambda image: image.topic_by_id(topic_id) is None, what=f"has deleted {name}"
        )


async def _until_every_broker(
    cluster: Cluster, shows: Callable[[MetadataImage], bool], *, what: str
) -> None:
    """Wait for every broker that the controller hears of: one that is frozen is fenced in time."""

    def all_show() -> bool:
        newest, brokers = cluster.image, cluster.brokers
        return all(
            shows(broker.metadata.image)
            for broker_id, broker in brokers.items()
            if newest.is_alive(broker_id)
        )

    await cluster.until(all_show, what=f"every broker {what}")
