"""Which fetcher follows which partition (AbstractFetcherManager, ReplicaFetcherManager).

    partition ──hash──> fetcher id ──with its leader──> one task, one connection

    (leader 2, fetcher 0)   orders-0, orders-4, audit-1
    (leader 2, fetcher 1)   orders-2
    (leader 3, fetcher 0)   orders-1

Rule 1: a partition is followed by one fetcher at most. Whoever moves one removes it first;
the manager does not remember who has what, it asks them all.

Rule 2: changes are plain calls and take effect before they return: what an old fetcher is
answered after a partition has left it is not acted upon. Only waiting for a task to end
takes time, and that is what the `async` ones do.

Rule 3: a fetcher without partitions goes on living until `shutdown_idle_fetchers`: the next
metadata change may give it some, and a connection is dearer than a task that sleeps.

The hash is Java's, so that a cluster's fetchers share the work as Kafka's would.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import attrs
import trio

from replication.events import EventSink, FetcherStarted, FetcherStopped, ignore
from replication.follower.fetcher import (
    FetcherConfig,
    ReplicaFetcher,
    never_throttled,
    no_broker_epoch,
)
from replication.follower.fetcher_stats import FetcherStats
from replication.follower.followed_partitions import OnBug
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.leader_endpoint import (
    LATEST_FETCH_VERSION,
    LeaderEndpoint,
    RemoteLeaderEndpoint,
)
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    FailedPartitions,
    InitialFetchState,
    PartitionFetchState,
)
from replication.metrics import MetricName, MetricsRegistry
from replication.net.seams import NodeClock, Transport
from storage.types import TopicId, TopicPartition

_INT_BITS = 32


class FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


MakeFetcher = Callable[[BrokerEndPoint, int, FailedPartitions], ReplicaFetcher]
"""A fetcher for a leader and a fetcher id, which reports what it gives up to the last."""


def java_string_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, wrapping at 32 bits, signed."""
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = 31 * value + int.from_bytes(units[at : at + 2], "big")
    return _signed(value)


def fetcher_id_for(partition: TopicPartition, num_fetchers: int) -> int:
    """Which of a leader's fetchers follows `partition` (Utils.abs: the least int becomes 0)."""
    value = _signed(31 * java_string_hash(partition.topic) + partition.partition)
    return (0 if value == -(2 ** (_INT_BITS - 1)) else abs(value)) % num_fetchers


def _signed(value: int) -> int:
    value &= 2**_INT_BITS - 1
    return value - 2**_INT_BITS if value >> (_INT_BITS - 1) else value


def _to_begin_again(
    fetcher: ReplicaFetcher, leader: BrokerEndPoint
) -> dict[TopicPartition, InitialFetchState]:
    """Take every partition from `fetcher`, to go on elsewhere where it stands."""
    return {
        tp: InitialFetchState(
            topic_id=state.topic_id,
            leader=leader,
            current_leader_epoch=state.current_leader_epoch,
            init_offset=state.fetch_offset,
        )
        for tp, state in fetcher.remove_all_partitions().items()
    }


@attrs.frozen(kw_only=True)
class RemoteFetcherFactory:
    """Makes the fetchers that follow leaders across the network."""

    replicas: FollowedReplicas
    config: FetcherConfig
    transport: Transport
    clock: NodeClock
    metrics: MetricsRegistry
    on_bug: OnBug
    sink: EventSink = ignore
    broker_epoch: Callable[[], int] = no_broker_epoch
    is_throttled: Callable[[TopicPartition], bool] = never_throttled
    fetch_version: int = LATEST_FETCH_VERSION
    connect_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000
    name: str = "ReplicaFetcherThread"

    def __call__(
        self, leader: BrokerEndPoint, fetcher_id: int, failed: FailedPartitions
    ) -> ReplicaFetcher:
        name = f"{self.name}-{fetcher_id}-{leader.id}"
        return ReplicaFetcher(
            name=name,
            leader=self.endpoint(leader, fetcher_id),
            replicas=self.replicas,
            config=self.config,
            clock=self.clock,
            failed=failed,
            stats=FetcherStats(self.metrics, name, leader),
            on_bug=self.on_bug,
            sink=self.sink,
            broker_epoch=self.broker_epoch,
            is_throttled=self.is_throttled,
        )

    def endpoint(self, leader: BrokerEndPoint, fetcher_id: int) -> LeaderEndpoint:
        """A way of its own to that leader."""
        return RemoteLeaderEndpoint(
            broker=leader,
            replica_id=self.config.replica_id,
            client_id=f"broker-{self.config.replica_id}-fetcher-{fetcher_id}",
            transport=self.transport,
            clock=self.clock,
            fetch_version=self.fetch_version,
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
        )


@attrs.define(kw_only=True)
class ReplicaFetcherManager:
    """The fetchers of one broker; their tasks run in the nursery it is given."""

    make_fetcher: MakeFetcher
    num_fetchers_per_broker: int = 1
    metrics: MetricsRegistry
    sink: EventSink = ignore
    client_id: str = "Replica"
    fetchers: dict[FetcherKey, ReplicaFetcher] = attrs.field(init=False, factory=dict)
    failed: FailedPartitions = attrs.field(init=False, factory=FailedPartitions)
    _nursery: trio.Nursery = attrs.field()

    def __attrs_post_init__(self) -> None:
        self._register_metrics()

    # -- partitions -----------------------------------------------------------

    def add_fetcher_for_partitions(
        self, initial_states: Mapping[TopicPartition, InitialFetchState]
    ) -> None:
        """Follow these, each by the fetcher that its hash and its leader say."""
        groups: dict[tuple[BrokerEndPoint, int], dict[TopicPartition, InitialFetchState]] = {}
        for tp, initial in initial_states.items():
            fetcher_id = fetcher_id_for(tp, self.num_fetchers_per_broker)
            groups.setdefault((initial.leader, fetcher_id), {})[tp] = initial
        for (leader, fetcher_id), group in groups.items():
            self._fetcher_for(leader, fetcher_id).add_partitions(group)

    def remove_fetcher_for_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionFetchState]:
        """Follow these no more; where those stood that were followed."""
        partitions = list(partitions)
        removed: dict[TopicPartition, PartitionFetchState] = {}
        for fetcher in self.fetchers.values():
            removed |= fetcher.remove_partitions(partitions)
        self.failed.remove_all(partitions)
        return removed

    def add_failed_partition(self, partition: TopicPartition) -> None:
        """One that could not even begin to be followed."""
        self.failed.add(partition)

    @property
    def failed_partitions(self) -> set[TopicPartition]:
        return self.failed.partitions()

    def maybe_update_topic_ids(
        self,
        leaders: Mapping[TopicPartition, int],
        topic_id_of: Callable[[str], TopicId | None],
    ) -> None:
        """Topic ids that have become known, for partitions that are followed already."""
        for tp, leader_id in leaders.items():
            fetcher_id = fetcher_id_for(tp, self.num_fetchers_per_broker)
            fetcher = self.fetchers.get(FetcherKey(leader_id, fetcher_id))
            topic_id = topic_id_of(tp.topic)
            if fetcher is not None and topic_id is not None:
                fetcher.maybe_update_topic_ids({tp: topic_id})

    def get_fetcher(self, partition: TopicPartition) -> ReplicaFetcher | None:
        """The one that follows `partition`."""
        for fetcher in self.fetchers.values():
            if fetcher.fetch_state(partition) is not None:
                return fetcher
        return None

    def followed_by(self, partition: TopicPartition) -> int:
        """How many fetchers have it: one at most."""
        return sum(each.fetch_state(partition) is not None for each in self.fetchers.values())

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Records have been let go of here, and not because the leader said so."""
        for fetcher in self.fetchers.values():
            fetcher.log_start_moved(partition)

    # -- fetchers -------------------------------------------------------------

    def _fetcher_for(self, leader: BrokerEndPoint, fetcher_id: int) -> ReplicaFetcher:
        key = FetcherKey(leader.id, fetcher_id)
        fetcher = self.fetchers.get(key)
        if fetcher is not None:
            if fetcher.leader.broker == leader and not fetcher.is_dead:
                return fetcher
            # The broker listens elsewhere now, or the task met a mistake of ours. What it
            # followed and nobody has removed is followed on (Kafka loses it until it is added).
            self._retire(key, fetcher, cause="dead" if fetcher.is_dead else "leader moved")
        following = _to_begin_again(fetcher, leader) if fetcher is not None else {}
        fetcher = self.make_fetcher(leader, fetcher_id, self.failed)
        fetcher.add_partitions(following)
        self.fetchers[key] = fetcher
        self._nursery.start_soon(fetcher.run, name=fetcher.name)
        self.sink(FetcherStarted(leader=leader.id, fetcher_id=fetcher_id))
        return fetcher

    def _retire(self, key: FetcherKey, fetcher: ReplicaFetcher, *, cause: str) -> None:
        """From here on it acts on nothing; its task ends when it wakes."""
        del self.fetchers[key]
        fetcher.initiate_shutdown()
        self.sink(FetcherStopped(leader=key.leader_id, fetcher_id=key.fetcher_id, cause=cause))

    async def shutdown_idle_fetchers(self) -> None:
        """Stop those without a partition, and wait until they have."""
        idle = {key: f for key, f in self.fetchers.items() if f.partition_count == 0}
        await self._stop(idle, cause="idle")

    async def close_all(self) -> None:
        """Stop all of them: first every one is told, then every one awaited."""
        await self._stop(dict(self.fetchers), cause="closed")
        for name in self._metric_names():
            self.metrics.remove(name)

    async def _stop(self, stopping: Mapping[FetcherKey, ReplicaFetcher], *, cause: str) -> None:
        for key, fetcher in stopping.items():
            self._retire(key, fetcher, cause=cause)
        for fetcher in stopping.values():
            await fetcher.shutdown()
        await trio.lowlevel.checkpoint()

    async def resize(self, num_fetchers: int) -> None:
        """Another number of fetchers per leader (num.replica.fetchers): partitions move to
        where their hash now says, and go on where they stood; failed ones stay failed.
        """
        assert num_fetchers > 0, "somebody must fetch"
        moving: dict[TopicPartition, InitialFetchState] = {}
        if num_fetchers != self.num_fetchers_per_broker:
            self.num_fetchers_per_broker = num_fetchers
            for fetcher in self.fetchers.values():
                moving |= _to_begin_again(fetcher, fetcher.leader.broker)
            self.add_fetcher_for_partitions(moving)
        await self.shutdown_idle_fetchers()

    # -- metrics --------------------------------------------------------------

    @property
    def dead_thread_count(self) -> int:
        """Fetchers that ended without being asked to."""
        return sum(fetcher.is_dead for fetcher in self.fetchers.values())

    @property
    def max_lag(self) -> int:
        """Records that the furthest behind of all followed partitions lacks."""
        return max((f.stats.max_lag() for f in self.fetchers.values()), default=0)

    @property
    def min_fetch_rate(self) -> float:
        rates = (f.stats.requests.one_minute_rate() for f in self.fetchers.values())
        return min(rates, default=0.0)

    def _metric_names(self) -> list[MetricName]:
        return [
            self._metric(name)
            for name in ("MaxLag", "MinFetchRate", "FailedPartitionsCount", "DeadThreadCount")
        ]

    def _metric(self, name: str) -> MetricName:
        tags = (("clientId", self.client_id),)
        return MetricName("kafka.server", "ReplicaFetcherManager", name, tags)

    def _register_metrics(self) -> None:
        self.metrics.gauge(self._metric("MaxLag"), lambda: max(0, self.max_lag))
        self.metrics.gauge(self._metric("MinFetchRate"), lambda: self.min_fetch_rate)
        self.metrics.gauge(self._metric("FailedPartitionsCount"), lambda: len(self.failed))
        self.metrics.gauge(self._metric("DeadThreadCount"), lambda: self.dead_thread_count)
