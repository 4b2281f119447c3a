"""Metrics under Kafka's names.

    kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=...,topic=t,partition=0
    └─ group     └─ type                └─ name          └─ tags, in the order given

Rule 1: the owner that registers a name removes it when the measured thing is gone, because a stale
gauge misleads longer than a missing one.

Rule 2: reading costs only the reader. A gauge is a function that is called on a read; a meter is a
count. A reader takes the rate of counts; the rate of one that we need ourselves is kept beside it,
and decays on a read.

Rule 3: a number for each of many things, such as the lag of each followed partition, is one family:
its owner keeps the numbers and creates the names on a read. A name with its tags is larger than a
number.

Rule 4: a quantity that varies, such as the time of a request, is a distribution: its count and its
latest values, which a reader sorts.

A registry belongs to one node, and uses the node's clock.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import attrs

from storage.attributes import define, frozen

_TICK = 5.0
_ALPHA = 1 - math.exp(-_TICK / 60)
KEPT = 1024
"""The number of latest values in a distribution, as in Kafka's reservoirs."""


@frozen
class MetricName:
    """The name of a metric; `str` gives Kafka's JMX object name."""

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.group}:type={self.type},name={self.name}{tags}"


@define
class Meter:
    """A count of events."""

    count: int = 0

    def mark(self, amount: int = 1) -> None:
        self.count += amount


@define
class RatedMeter(Meter):
    """A count of events, and their rate in about the last minute.

    The rate is an exponential average over ticks of five seconds, as in Kafka's meters.
    """

    _now: Callable[[], float] = attrs.field(kw_only=True)
    _rate: float | None = None
    _since_tick: int = 0
    _last_tick: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._last_tick = self._now()

    def mark(self, amount: int = 1) -> None:
        if (now := self._now()) - self._last_tick >= _TICK:
            self._tick(now)
        self.count += amount
        self._since_tick += amount

    def one_minute_rate(self) -> float:
        """Return the events per second."""
        self._tick(self._now())
        return self._rate or 0.0

    def _tick(self, now: float) -> None:
        since = now - self._last_tick
        if since < _TICK:
            return
        ticks = int(since / _TICK)
        self._last_tick += ticks * _TICK
        latest = self._since_tick / _TICK
        self._since_tick = 0
        rate = latest if self._rate is None else self._rate + _ALPHA * (latest - self._rate)
        # There were no events in the ticks after the first.
        self._rate = rate * (1 - _ALPHA) ** (ticks - 1)


Gauge = Callable[[], float]


class Family(Protocol):
    """Gauges of one kind, whose names are created on a read."""

    def names(self) -> list[MetricName]: ...

    def read(self, name: MetricName) -> float | None:
        """Return the value of a gauge; None if the family lacks it."""

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        """Yield all gauges; some may come and go meanwhile."""


class Distribution(Protocol):
    """A distribution of values (rule 4)."""

    @property
    def count(self) -> int: ...

    def latest(self) -> Sequence[float]:
        """Return the latest values, in any order."""


@define
class Histogram:
    """A distribution of numbers that are added one by one."""

    count: int = 0
    _latest: deque[float] = attrs.field(factory=lambda: deque(maxlen=KEPT))

    def update(self, value: float) -> None:
        self.count += 1
        self._latest.append(value)

    def latest(self) -> Sequence[float]:
        return tuple(self._latest)


def quantiles(values: Sequence[float], fractions: Iterable[float]) -> list[float]:
    """Return the quantiles, interpolated; 0 without values (com.yammer.metrics.stats.Snapshot)."""
    ordered = sorted(values)
    return [_quantile(ordered, fraction) for fraction in fractions]


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    if not ordered:
        return 0.0
    position = fraction * (len(ordered) + 1)
    if position < 1:
        return ordered[0]
    if position >= len(ordered):
        return ordered[-1]
    below, above = ordered[int(position) - 1], ordered[int(position)]
    return below + (position - int(position)) * (above - below)


@define(repr=False)
class MetricsRegistry:
    """One node's meters, gauges and distributions."""

    now: Callable[[], float]
    _gauges: dict[MetricName, Gauge] = attrs.field(factory=dict)
    _meters: dict[MetricName, Meter] = attrs.field(factory=dict)
    _families: list[Family] = attrs.field(factory=list)
    _distributions: dict[MetricName, Distribution] = attrs.field(factory=dict)

    def family(self, family: Family) -> None:
        self._families.append(family)

    def remove_family(self, family: Family) -> None:
        """Remove a family, if it is registered."""
        self._families = [each for each in self._families if each is not family]

    def gauge(self, name: MetricName, read: Gauge) -> None:
        """Register or replace a gauge, which is called on a read."""
        self._gauges[name] = read

    def meter(self, name: MetricName) -> Meter:
        """Return the meter of a name, which is created on first use."""
        return self._meters.setdefault(name, Meter())

    def rated_meter(self, name: MetricName) -> RatedMeter:
        """Register and return a meter with a rate."""
        self._meters[name] = meter = RatedMeter(now=self.now)
        return meter

    def distribution(self, name: MetricName, distribution: Distribution) -> None:
        """Register a distribution under a name."""
        self._distributions[name] = distribution

    def distributions(self) -> Iterator[tuple[MetricName, Distribution]]:
        yield from list(self._distributions.items())

    def remove(self, name: MetricName) -> None:
        """Remove a metric, if it is registered."""
        self._gauges.pop(name, None)
        self._meters.pop(name, None)
        self._distributions.pop(name, None)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, MetricName):
            return False
        families = any(each.read(name) is not None for each in self._families)
        return name in self._gauges or name in self._meters or families

    def names(self) -> list[MetricName]:
        families = [name for each in self._families for name in each.names()]
        return [*self._gauges, *self._meters, *families]

    def read(self, name: MetricName) -> float:
        """Return the value of a gauge or the count of a meter; raise KeyError if there is neither."""
        if name in self._gauges:
            return self._gauges[name]()
        if name in self._meters:
            return self._meters[name].count
        for family in self._families:
            value = family.read(name)
            if value is not None:
                return value
        raise KeyError(name)

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        """Yield every gauge and meter with its value; other tasks may run in between."""
        for name, read in list(self._gauges.items()):
            yield name, read()
        for name, meter in list(self._meters.items()):
            yield name, meter.count
        for family in list(self._families):
            yield from family.snapshot()
