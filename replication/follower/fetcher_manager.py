"""The assignment of partitions to fetchers (AbstractFetcherManager, ReplicaFetcherManager).

    partition ──hash──> fetcher id ──with its leader──> one task, one connection

    (leader 2, fetcher 0)   orders-0, orders-4, audit-1
    (leader 2, fetcher 1)   orders-2
    (leader 3, fetcher 0)   orders-1

Rule 1: a partition is followed by one fetcher at most; it is removed before another one gets it.
Only the fetchers know their partitions, so the manager looks through all of them.

Rule 2: changes are plain calls and take effect before they return: a response that arrives after
a partition was removed changes nothing. The `async` methods wait for tasks to end.

Rule 3: a fetcher without partitions lives until `shutdown_idle_fetchers`: the next metadata
change may give it some, and a new connection costs more than a task that sleeps.

The hash is Java's, so that the partitions are spread over the fetchers as in Kafka.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import attrs
import trio

from replication.errors import OnBug
from replication.events import EventSink, FetcherStarted, FetcherStopped, ignore
from replication.follower.fetcher import (
    FetcherConfig,
    ReplicaFetcher,
    never_throttled,
    no_broker_epoch,
)
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.leader_endpoint import (
    LATEST_FETCH_VERSION,
    LeaderEndpoint,
    RemoteLeaderEndpoint,
)
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    InitialFetchState,
    PartitionFetchState,
)
from replication.java_hash import java_pair_hash, place_of
from replication.metrics import Gauge, MetricName, MetricsRegistry
from replication.net.seams import NodeClock, Transport
from storage.attributes import define, frozen
from storage.types import TopicPartition


class FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


MakeFetcher = Callable[[BrokerEndPoint, int, set[TopicPartition]], ReplicaFetcher]
"""Makes the fetcher for a leader and a fetcher id; it adds the partitions that fail to the set."""


def fetcher_id_for(partition: TopicPartition, num_fetchers: int) -> int:
    """Return the number of the fetcher that follows `partition`."""
    return place_of(java_pair_hash(partition.topic, partition.partition), num_fetchers)


def _to_begin_again(
    fetcher: ReplicaFetcher, leader: BrokerEndPoint
) -> dict[TopicPartition, InitialFetchState]:
    """Take every partition from `fetcher`; return where another one goes on with each."""
    return {
        tp: InitialFetchState(
            topic_id=state.topic_id,
            leader=leader,
            current_leader_epoch=state.current_leader_epoch,
            init_offset=state.fetch_offset,
        )
        for tp, state in fetcher.partitions.remove_all().items()
    }


@frozen(kw_only=True)
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
        self, leader: BrokerEndPoint, fetcher_id: int, failed: set[TopicPartition]
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
        """Return a new endpoint, with a connection of its own, for that leader."""
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


@define(kw_only=True)
class ReplicaFetcherManager:
    """The fetchers of one broker."""

    make_fetcher: MakeFetcher
    num_fetchers_per_broker: int = 1
    metrics: MetricsRegistry
    sink: EventSink = ignore
    client_id: str = "Replica"
    nursery: trio.Nursery | None = None
    """The nursery of the fetchers' tasks; it must be set before a partition is followed."""
    fetchers: dict[FetcherKey, ReplicaFetcher] = attrs.field(init=False, factory=dict)
    failed: set[TopicPartition] = attrs.field(init=False, factory=set)
    """The partitions that a fetcher gave up, or that could not be followed at all."""

    def __attrs_post_init__(self) -> None:
        for name, read in self._gauges().items():
            self.metrics.gauge(name, read)

    # -- partitions -----------------------------------------------------------

    def add_fetcher_for_partitions(
        self, initial_states: Mapping[TopicPartition, InitialFetchState]
    ) -> None:
        """Give each partition to the fetcher for its leader and its hash."""
        groups: dict[tuple[BrokerEndPoint, int], dict[TopicPartition, InitialFetchState]] = {}
        for tp, initial in initial_states.items():
            fetcher_id = fetcher_id_for(tp, self.num_fetchers_per_broker)
            groups.setdefault((initial.leader, fetcher_id), {})[tp] = initial
        for (leader, fetcher_id), group in groups.items():
            self._fetcher_for(leader, fetcher_id).partitions.add(group)

    def remove_fetcher_for_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionFetchState]:
        """Stop following these partitions, and return the states of those that were followed."""
        partitions = list(partitions)
        removed: dict[TopicPartition, PartitionFetchState] = {}
        for fetcher in self.fetchers.values():
            removed |= fetcher.partitions.remove(partitions)
        self.failed.difference_update(partitions)
        return removed

    def add_failed_partition(self, partition: TopicPartition) -> None:
        self.failed.add(partition)

    def fetch_state(self, partition: TopicPartition) -> PartitionFetchState | None:
        """Return how far `partition` has come; None if no fetcher follows it."""
        states = (each.partitions.states.get(partition) for each in self.fetchers.values())
        return next((state for state in states if state is not None), None)

    def followed_by(self, partition: TopicPartition) -> int:
        """Return how many fetchers follow `partition`: one at most."""
        return sum(partition in each.partitions.states for each in self.fetchers.values())

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Send the new log start to the leader; records were deleted here, not by a fetch."""
        for fetcher in self.fetchers.values():
            fetcher.partitions.log_start_moved(partition)

    # -- fetchers -------------------------------------------------------------

    def _fetcher_for(self, leader: BrokerEndPoint, fetcher_id: int) -> ReplicaFetcher:
        key = FetcherKey(leader.id, fetcher_id)
        fetcher = self.fetchers.get(key)
        if fetcher is not None:
            if fetcher.leader.broker == leader and not fetcher.is_dead:
                return fetcher
            # The leader listens elsewhere now, or a bug ended the task. Its partitions are
            # followed on (Kafka follows them only once they are added again).
            self._retire(key, fetcher, cause="dead" if fetcher.is_dead else "leader moved")
        following = _to_begin_again(fetcher, leader) if fetcher is not None else {}
        assert self.nursery is not None, "partitions are followed once the replica manager runs"
        fetcher = self.make_fetcher(leader, fetcher_id, self.failed)
        fetcher.partitions.add(following)
        self.fetchers[key] = fetcher
        self.nursery.start_soon(fetcher.run, name=fetcher.name)
        self.sink(FetcherStarted(leader=leader.id, fetcher_id=fetcher_id))
        return fetcher

    def _retire(self, key: FetcherKey, fetcher: ReplicaFetcher, *, cause: str) -> None:
        """Forget the fetcher; its task ends when it wakes, and changes nothing until then."""
        del self.fetchers[key]
        fetcher.initiate_shutdown()
        self.sink(FetcherStopped(leader=key.leader_id, fetcher_id=key.fetcher_id, cause=cause))

    async def shutdown_idle_fetchers(self) -> None:
        """Stop the fetchers without partitions, and wait until they have ended."""
        idle = {key: f for key, f in self.fetchers.items() if not f.partitions.states}
        await self._stop(idle, cause="idle")

    async def close_all(self) -> None:
        """Stop all fetchers: first ask every one, then wait for every one."""
        await self._stop(dict(self.fetchers), cause="closed")
        for name in self._gauges():
            self.metrics.remove(name)

    async def _stop(self, stopping: Mapping[FetcherKey, ReplicaFetcher], *, cause: str) -> None:
        for key, fetcher in stopping.items():
            self._retire(key, fetcher, cause=cause)
        for fetcher in stopping.values():
            await fetcher.shutdown()
        await trio.lowlevel.checkpoint()

    async def resize(self, num_fetchers: int) -> None:
        """Change the number of fetchers per leader (num.replica.fetchers).

        Partitions move to the fetcher for their hash and go on where they were; failed
        partitions stay failed.
        """
        assert num_fetchers > 0, "a leader needs at least one fetcher"
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
        """The number of fetchers that a bug ended."""
        return sum(fetcher.is_dead for fetcher in self.fetchers.values())

    @property
    def max_lag(self) -> int:
        """The records that the partition furthest behind lacks."""
        return max((f.stats.max_lag() for f in self.fetchers.values()), default=0)

    @property
    def min_fetch_rate(self) -> float:
        rates = (f.stats.requests.one_minute_rate() for f in self.fetchers.values())
        return min(rates, default=0.0)

    def _gauges(self) -> dict[MetricName, Gauge]:
        gauges: dict[str, Gauge] = {
            "MaxLag": lambda: max(0, self.max_lag),
            "MinFetchRate": lambda: self.min_fetch_rate,
            "FailedPartitionsCount": lambda: len(self.failed),
            "DeadThreadCount": lambda: self.dead_thread_count,
        }
        tags = (("clientId", self.client_id),)
        return {
            MetricName("kafka.server", "ReplicaFetcherManager", name, tags): read
            for name, read in gauges.items()
        }
