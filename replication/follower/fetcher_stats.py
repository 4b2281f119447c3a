"""The metrics of one fetcher, under Kafka's names (FetcherStats, FetcherLagStats)."""

from collections.abc import Iterator

import attrs

from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.metrics import Meter, MetricName, MetricsRegistry
from storage.types import TopicPartition

_GROUP = "kafka.server"
_UNKNOWN_LAG = -1


@attrs.define(eq=False)
class FetcherStats:
    """The metrics of one fetcher: registered as long as it lives.

    A partition's lag is there as long as the partition is followed.
    """

    registry: MetricsRegistry
    client_id: str
    leader: BrokerEndPoint
    requests: Meter = attrs.field(init=False)
    """Fetch requests, whether or not they were answered."""
    appended_bytes: Meter = attrs.field(init=False)
    _lags: dict[TopicPartition, int] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.requests = self.registry.meter(self.name("RequestsPerSec"))
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
