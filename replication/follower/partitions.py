"""The partitions of one fetcher: their states, those that have failed, and the metrics of both.

(AbstractFetcherThread's `partitionStates`, `failedPartitions`, FetcherStats and FetcherLagStats.)

Rule 1: every method is a plain call. Nothing is awaited between reading a state and writing it
back, so partitions may be added and removed at any time.

Rule 2: a partition is in `states`, in `failed`, or unknown. A failed one is followed again once it
is added again: at a newer leader epoch, or because its log was created anew.
"""

from collections.abc import Iterable, Iterator, Mapping

import attrs
import trio

from replication.errors import BrokenOffError, ErrorCode, OnBug, ProtocolError, UnderstudyError
from replication.events import (
    EventSink,
    FetchRefused,
    FetchResponseUnusable,
    FollowerFetching,
    PartitionFailed,
    RareReporter,
)
from replication.follower.followed_replicas import FollowedReplicas
from replication.follower.leader_endpoint import LeaderEndpoint
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    FetchPhase,
    InitialFetchState,
    PartitionFetchState,
    PartitionStates,
    initial_state,
)
from replication.metrics import Meter, MetricName, MetricsRegistry, RatedMeter
from replication.net.seams import NodeClock
from storage.attributes import define
from storage.errors import ShortageError, StorageError
from storage.types import LeaderEpoch, TopicPartition

_GROUP = "kafka.server"
_UNKNOWN_LAG = -1


@define(eq=False)
class FetcherStats:
    """The metrics of one fetcher: registered as long as it lives.

    A partition's lag is there as long as the partition is followed.
    """

    registry: MetricsRegistry
    client_id: str
    leader: BrokerEndPoint
    requests: RatedMeter = attrs.field(init=False)
    """Fetch requests, whether or not they were answered."""
    appended_bytes: Meter = attrs.field(init=False)
    _lags: dict[TopicPartition, int] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.requests = self.registry.rated_meter(self.name("RequestsPerSec"))
        self.appended_bytes = self.registry.meter(self.name("BytesPerSec"))
        self.registry.family(self)

    def unregister(self) -> None:
        for name in ("RequestsPerSec", "BytesPerSec"):
            self.registry.remove(self.name(name))
        self.registry.remove_family(self)

    def follow(self, partition: TopicPartition) -> None:
        """Show a lag for `partition`: -1 until one is known."""
        self._lags.setdefault(partition, _UNKNOWN_LAG)

    def set_lag(self, partition: TopicPartition, lag: int) -> None:
        self._lags[partition] = lag

    def forget_lag(self, partition: TopicPartition) -> None:
        self._lags.pop(partition, None)

    # The family of lags.

    def names(self) -> list[MetricName]:
        return [self.lag_name(partition) for partition in self._lags]

    def read(self, name: MetricName) -> float | None:
        tags = dict(name.tags)
        number = tags.get("partition", "")
        partition = TopicPartition(tags.get("topic", ""), int(number) if number.isdigit() else -1)
        ours = name == self.lag_name(partition)
        return self._lags.get(partition) if ours else None

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for partition, lag in list(self._lags.items()):
            yield self.lag_name(partition), lag

    def max_lag(self) -> int:
        return max(self._lags.values(), default=0)

    def lag_name(self, partition: TopicPartition) -> MetricName:
        return MetricName(
            _GROUP,
            "FetcherLagMetrics",
            "ConsumerLag",
            (
                ("clientId", self.client_id),
                ("topic", partition.topic),
                ("partition", str(partition.partition)),
            ),
        )

    def name(self, name: str) -> MetricName:
        return MetricName(
            _GROUP,
            "FetcherStats",
            name,
            (
                ("clientId", self.client_id),
                ("brokerHost", self.leader.host),
                ("brokerPort", str(self.leader.port)),
            ),
        )


@define(kw_only=True)
class FollowedPartitions:
    """The owner of the fetch states of one fetcher's partitions."""

    leader: LeaderEndpoint
    replicas: FollowedReplicas
    clock: NodeClock
    backoff: float
    """Seconds without requests for a partition after an error."""
    failed: set[TopicPartition]
    """The partitions given up; all fetchers of a manager share it."""
    stats: FetcherStats
    on_bug: OnBug
    sink: EventSink
    as_consumer: bool
    """Whether the leader answers as to a consumer: LATEST is its high watermark, not its end."""
    states: PartitionStates = attrs.field(init=False, factory=PartitionStates)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    _unusable: RareReporter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._unusable = RareReporter(self.sink, self.clock.now_ms)

    def add(self, initial_states: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Follow these partitions, or follow them on at a new leader epoch.

        A partition that had failed is no longer in `failed`.
        """
        self.failed.difference_update(initial_states)
        for tp, initial in initial_states.items():
            try:
                latest_epoch = self.replicas.latest_epoch(tp)
            except (StorageError, UnderstudyError) as error:
                self.mark_failed(tp, f"{type(error).__name__}: {error}")
            else:
                self._add_one(tp, initial, latest_epoch)
        self._changed.set()

    def _add_one(
        self, tp: TopicPartition, initial: InitialFetchState, latest_epoch: LeaderEpoch | None
    ) -> None:
        existing = self.states.get(tp)
        state = initial_state(
            initial,
            existing=existing,
            latest_epoch=latest_epoch,
            truncation_on_fetch=self.leader.supports_truncation_on_fetch,
        )
        self.states.update_and_move_to_end(tp, state)
        self.stats.follow(tp)
        if state is not existing:
            self.report_fetching(tp, state)

    def remove(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionFetchState]:
        """Stop following these partitions, and return the states of those that were followed."""
        removed = {}
        for tp in partitions:
            state = self.states.remove(tp)
            self.stats.forget_lag(tp)
            if state is not None:
                removed[tp] = state
        return removed

    def remove_all(self) -> dict[TopicPartition, PartitionFetchState]:
        return self.remove(self.states.partitions())

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Send the new log start with the next request; no fetch response has moved it."""
        if partition in self.states:
            self.states.touch(partition)

    def wake(self) -> None:
        """End `wait_for_changes`."""
        self._changed.set()

    async def wait_for_changes(self) -> None:
        """Wait for a partition, a topic id, or `wake`.

        The caller has awaited nothing since it looked at the states, so no change is missed.
        """
        self._changed = trio.Event()
        await self._changed.wait()

    # -- errors ---------------------------------------------------------------

    def delay(self, partitions: Iterable[TopicPartition]) -> None:
        """Request nothing for these for one backoff; a delay that is running is not prolonged."""
        if delayed := list(partitions):
            now = self.clock.now()
            for tp in delayed:
                self.states.delay(tp, until=now + self.backoff, now=now)

    def mark_failed(self, partition: TopicPartition, cause: str) -> None:
        """Give the partition up until it is added again."""
        self.failed.add(partition)
        self.remove([partition])
        self.sink(PartitionFailed(partition=partition, cause=cause))

    def on_log_error(self, partition: TopicPartition, error: Exception) -> None:
        """Fail the partition whose log cannot be worked on; report a bug as such.

        After a shortage it is only delayed. A partition that was removed meanwhile, with the rest
        of its log directory, does not fail here.
        """
        if isinstance(error, ShortageError):
            self.delay([partition])
            return
        if not isinstance(error, (StorageError, UnderstudyError)):
            self.on_bug(error)
        if partition in self.states:
            self.mark_failed(partition, f"{type(error).__name__}: {error}")

    def on_fenced(self, partition: TopicPartition, request_epoch: LeaderEpoch) -> None:
        """Give the partition up: the leader has a newer leader epoch than the request had.

        A partition that is followed at another epoch by now is fetched again.
        """
        state = self.states.get(partition)
        if state is not None and state.current_leader_epoch == request_epoch:
            self.mark_failed(partition, f"fenced at leader epoch {request_epoch}")

    def report_refused(
        self, partition: TopicPartition, leader_epoch: LeaderEpoch, error_code: int
    ) -> None:
        self.sink(
            FetchRefused(
                partition=partition,
                leader=self.leader.broker.id,
                leader_epoch=leader_epoch,
                error=ErrorCode.of(error_code).name,
            )
        )

    def report_unusable(self, error: Exception) -> None:
        """Report a response that came, and cannot be used; a leader that is away is no news."""
        if isinstance(error, (ProtocolError, BrokenOffError)):
            self._unusable.report(
                lambda left_out: FetchResponseUnusable(
                    leader=self.leader.broker.id, cause=str(error), left_out=left_out
                )
            )

    def report_fetching(self, partition: TopicPartition, state: PartitionFetchState) -> None:
        if state.phase is FetchPhase.FETCHING:
            self.sink(
                FollowerFetching(
                    partition=partition,
                    leader=self.leader.broker.id,
                    leader_epoch=state.current_leader_epoch,
                    fetch_offset=state.fetch_offset,
                )
            )
