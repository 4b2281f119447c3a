"""The metrics of a consumer under Kafka's names (FetchMetricsManager, FetchMetricsRegistry).

    kafka.consumer:type=consumer-fetch-manager-metrics,name=records-lag-max,client-id=c
    kafka.consumer:type=consumer-fetch-manager-metrics,name=records-lag,client-id=c,topic=t,partition=0

Rule 1: averages and extremes are over the last two windows of thirty seconds, as in Kafka
(metrics.sample.window.ms, metrics.num.samples). Without a value they are NaN.

Rule 2: a fetch is counted when all its partitions have been read to their end, or dropped;
dropped records count as nothing.

Rule 3: `FETCH_METRICS` and `PARTITION_METRICS` declare every name there is.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from replication.metrics import MetricName, MetricsRegistry
from storage.attributes import define
from storage.types import TopicPartition

GROUP, TYPE = "kafka.consumer", "consumer-fetch-manager-metrics"
WINDOW_SECONDS = 30.0
WINDOWS = 2

FETCH_METRICS = {
    "fetch-size-avg": "The average number of bytes fetched per request.",
    "fetch-size-max": "The largest number of bytes fetched per request.",
    "bytes-consumed-rate": "The number of bytes consumed per second.",
    "bytes-consumed-total": "The number of bytes consumed.",
    "records-per-request-avg": "The average number of records per request.",
    "records-consumed-rate": "The number of records consumed per second.",
    "records-consumed-total": "The number of records consumed.",
    "fetch-latency-avg": "The average time of a fetch in milliseconds.",
    "fetch-latency-max": "The longest time of a fetch in milliseconds.",
    "fetch-rate": "The number of fetches per second.",
    "fetch-total": "The number of fetches.",
    "fetch-throttle-time-avg": "The average time that brokers throttled, in milliseconds.",
    "fetch-throttle-time-max": "The longest time that brokers throttled, in milliseconds.",
    "records-lag-max": "The largest lag of any partition in records.",
    "records-lead-min": "The smallest lead of any partition in records.",
}
PARTITION_METRICS = {
    "records-lag": "The records between the position and the readable end.",
    "records-lag-avg": "The average lag in records.",
    "records-lag-max": "The largest lag in records.",
    "records-lead": "The records between the start of the log and the position.",
    "records-lead-avg": "The average lead in records.",
    "records-lead-min": "The smallest lead in records.",
    "preferred-read-replica": "The replica that is read from; -1 for the leader.",
}


@define
class _Window:
    start: float
    count: int = 0
    total: float = 0.0
    most: float = -math.inf
    least: float = math.inf


@define(eq=False)
class Sensor:
    """Recent values, and the total of all values (Kafka's SampledStat)."""

    now: Callable[[], float]
    count: int = 0
    total: float = 0.0
    last: float = math.nan
    _windows: list[_Window] = attrs.field(init=False, factory=list)

    def record(self, value: float) -> None:
        now = self.now()
        if not self._windows or now - self._windows[-1].start >= WINDOW_SECONDS:
            self._windows.append(_Window(now))
        window = self._windows[-1]
        window.count += 1
        window.total += value
        window.most, window.least = max(window.most, value), min(window.least, value)
        self.count, self.total, self.last = self.count + 1, self.total + value, value

    def avg(self) -> float:
        windows = self._recent()
        count = sum(each.count for each in windows)
        return sum(each.total for each in windows) / count if count else math.nan

    def max(self) -> float:
        return max((each.most for each in self._recent()), default=math.nan)

    def min(self) -> float:
        return min((each.least for each in self._recent()), default=math.nan)

    def rate(self) -> float:
        """Return the sum of the recorded values per second."""
        windows = self._recent()
        # As Kafka: a lone young window is taken for a whole one, or the rate would leap.
        elapsed = max(
            self.now() - windows[0].start if windows else 0.0, WINDOW_SECONDS * (WINDOWS - 1)
        )
        return sum(each.total for each in windows) / elapsed

    def _recent(self) -> list[_Window]:
        horizon = self.now() - WINDOW_SECONDS * WINDOWS
        while self._windows and self._windows[0].start <= horizon:
            del self._windows[0]
        return self._windows


@define(eq=False)
class _PartitionSensors:
    lag: Sensor
    lead: Sensor
    preferred: int = -1


_PARTITION_VALUES: Mapping[str, Callable[[_PartitionSensors], float]] = {
    "records-lag": lambda each: each.lag.last,
    "records-lag-avg": lambda each: each.lag.avg(),
    "records-lag-max": lambda each: each.lag.max(),
    "records-lead": lambda each: each.lead.last,
    "records-lead-avg": lambda each: each.lead.avg(),
    "records-lead-min": lambda each: each.lead.min(),
    "preferred-read-replica": lambda each: each.preferred,
}


@define(eq=False)
class FetchMetrics:
    """The fetch metrics of one consumer; they are read through `registry`."""

    registry: MetricsRegistry
    now: Callable[[], float]
    client_id: str = ""
    fetch_size: Sensor = attrs.field(init=False)
    records_per_request: Sensor = attrs.field(init=False)
    latency: Sensor = attrs.field(init=False)
    fetches: Sensor = attrs.field(init=False)
    throttle: Sensor = attrs.field(init=False)
    lag: Sensor = attrs.field(init=False)
    lead: Sensor = attrs.field(init=False)
    _partitions: dict[TopicPartition, _PartitionSensors] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.fetch_size, self.records_per_request = self._sensor(), self._sensor()
        self.latency, self.fetches, self.throttle = self._sensor(), self._sensor(), self._sensor()
        self.lag, self.lead = self._sensor(), self._sensor()
        read = {
            "fetch-size-avg": self.fetch_size.avg,
            "fetch-size-max": self.fetch_size.max,
            "bytes-consumed-rate": self.fetch_size.rate,
            "bytes-consumed-total": lambda: self.fetch_size.total,
            "records-per-request-avg": self.records_per_request.avg,
            "records-consumed-rate": self.records_per_request.rate,
            "records-consumed-total": lambda: self.records_per_request.total,
            "fetch-latency-avg": self.latency.avg,
            "fetch-latency-max": self.latency.max,
            "fetch-rate": self.fetches.rate,
            "fetch-total": lambda: self.fetches.total,
            "fetch-throttle-time-avg": self.throttle.avg,
            "fetch-throttle-time-max": self.throttle.max,
            "records-lag-max": self.lag.max,
            "records-lead-min": self.lead.min,
        }
        for name, gauge in read.items():
            self.registry.gauge(self.name(name), gauge)
        self.registry.family(self)

    def name(self, name: str, tp: TopicPartition | None = None) -> MetricName:
        tags: tuple[tuple[str, str], ...] = (("client-id", self.client_id),)
        if tp is not None:
            tags = (*tags, ("topic", tp.topic), ("partition", str(tp.partition)))
        return MetricName(GROUP, TYPE, name, tags)

    def record_response(self, *, latency_ms: float, throttled_ms: int) -> None:
        self.latency.record(latency_ms)
        self.fetches.record(1)
        self.throttle.record(throttled_ms)

    def record_fetch(self, *, size: float, records: int) -> None:
        """Count one request, when all of it has been read or dropped."""
        self.fetch_size.record(size)
        self.records_per_request.record(records)

    def record_position(self, tp: TopicPartition, *, lag: int | None, lead: int | None) -> None:
        if lag is not None:
            self.lag.record(lag)
            self._partition(tp).lag.record(lag)
        if lead is not None:
            self.lead.record(lead)
            self._partition(tp).lead.record(lead)

    def record_preferred(self, tp: TopicPartition, node_id: int | None) -> None:
        self._partition(tp).preferred = -1 if node_id is None else node_id

    def retain(self, assigned: Iterable[TopicPartition]) -> None:
        """Drop the metrics of partitions that are no longer assigned."""
        for tp in self._partitions.keys() - set(assigned):
            del self._partitions[tp]

    # Metrics of partitions are named when they are read: a thousand would be megabytes.

    def names(self) -> list[MetricName]:
        return [self.name(name, tp) for tp in self._partitions for name in PARTITION_METRICS]

    def read(self, name: MetricName) -> float | None:
        tags = dict(name.tags)
        if name.group != GROUP or name.name not in _PARTITION_VALUES or "partition" not in tags:
            return None
        found = self._partitions.get(TopicPartition(tags["topic"], int(tags["partition"])))
        return None if found is None else _PARTITION_VALUES[name.name](found)

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for tp, found in list(self._partitions.items()):
            for name in PARTITION_METRICS:
                yield self.name(name, tp), _PARTITION_VALUES[name](found)

    def _partition(self, tp: TopicPartition) -> _PartitionSensors:
        if (found := self._partitions.get(tp)) is not None:
            return found
        made = self._partitions[tp] = _PartitionSensors(self._sensor(), self._sensor())
        return made

    def _sensor(self) -> Sensor:
        return Sensor(self.now)


@define(eq=False)
class FetchTotal:
    """The sum over one response, recorded with its last partition (FetchMetricsAggregator)."""

    metrics: FetchMetrics
    open_partitions: set[TopicPartition]
    size: float = 0.0
    records: int = 0

    def done(self, tp: TopicPartition, *, size: float, records: int) -> None:
        self.open_partitions.discard(tp)
        self.size += size
        self.records += records
        if not self.open_partitions:
            self.metrics.record_fetch(size=self.size, records=self.records)
