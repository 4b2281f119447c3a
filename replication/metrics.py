"""Numbers to watch, under the names Kafka gives them.

    kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=...,topic=t,partition=0
    └─ group     └─ type                └─ name          └─ tags, in the order given

Rule 1: whoever registers a name removes it when the thing it measures is gone; a stale
gauge lies longer than a missing one.

Rule 2: reading is the reader's work. A gauge is a function that is called when somebody
looks; a meter counts, and decays its one-minute rate when somebody looks.

Rule 3: a number for each of many things (the lag of each followed partition) is one family:
whoever counts them keeps them, and makes the names when somebody looks. A name with its tags
is larger than what it names.

Rule 4: what differs from one time to the next, how long requests take, is a distribution: how
many there were, and the latest of them, which a reader sorts.

A registry belongs to one node. It holds no clock: it is handed the node's.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import attrs

_TICK = 5.0
_ALPHA = 1 - math.exp(-_TICK / 60)
KEPT = 1024
"""Of a distribution: as many as Kafka's reservoirs hold."""


@attrs.frozen
class MetricName:
    """Where a number is found; prints as Kafka's JMX object name."""

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        return f"{self.group}:type={self.type},name={self.name}{tags}"


@attrs.define
class Meter:
    """How often something happens: a count, and the rate of the last minute or so.

    The rate is an exponential average over ticks of five seconds, as in Kafka's meters.
    """

    _now: Callable[[], float]
    count: int = 0
    _rate: float | None = None
    _untold: int = 0
    _last_tick: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._last_tick = self._now()

    def mark(self, amount: int = 1, now: float | None = None) -> None:
        """Whoever marks several at once says when."""
        self._tick(self._now() if now is None else now)
        self.count += amount
        self._untold += amount

    def one_minute_rate(self) -> float:
        """Events per second."""
        self._tick(self._now())
        return self._rate or 0.0

    def _tick(self, now: float) -> None:
        since = now - self._last_tick
        if since < _TICK:
            return
        ticks = int(since / _TICK)
        self._last_tick += ticks * _TICK
        latest = self._untold / _TICK
        self._untold = 0
        rate = latest if self._rate is None else self._rate + _ALPHA * (latest - self._rate)
        # The ticks after the first saw nothing happen.
        self._rate = rate * (1 - _ALPHA) ** (ticks - 1)


Gauge = Callable[[], float]


class Family(Protocol):
    """Gauges of one kind, by names that are made when they are asked for."""

    def names(self) -> list[MetricName]: ...

    def read(self, name: MetricName) -> float | None:
        """None where `name` is none of these."""

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        """All of them, read one after the other while others may come and go."""


class Distribution(Protocol):
    """See rule 4."""

    @property
    def count(self) -> int: ...

    def latest(self) -> Sequence[float]:
        """The last of them, in any order."""


@attrs.define
class Histogram:
    """A distribution of numbers that are told one by one."""

    count: int = 0
    _latest: deque[float] = attrs.field(factory=lambda: deque(maxlen=KEPT))

    def update(self, value: float) -> None:
        self.count += 1
        self._latest.append(value)

    def latest(self) -> Sequence[float]:
        return tuple(self._latest)


def quantiles(values: Sequence[float], fractions: Iterable[float]) -> list[float]:
    """Between the two nearest, in proportion; 0 of none (com.yammer.metrics.stats.Snapshot)."""
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


@attrs.define
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
        """Nothing happens where it is not."""
        self._families = [each for each in self._families if each is not family]

    def gauge(self, name: MetricName, read: Gauge) -> None:
        """Register, or replace, a number that is read when somebody looks."""
        self._gauges[name] = read

    def meter(self, name: MetricName) -> Meter:
        """The meter of that name, made when first asked for."""
        return self._meters.setdefault(name, Meter(self.now))

    def distribution(self, name: MetricName, distribution: Distribution) -> None:
        """Show it under that name, apart from what is one number."""
        self._distributions[name] = distribution

    def distributions(self) -> Iterator[tuple[MetricName, Distribution]]:
        yield from list(self._distributions.items())

    def remove(self, name: MetricName) -> None:
        """Nothing happens where there is none."""
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
        """A gauge's value, or a meter's count; KeyError where there is neither."""
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
        """Everything that is one number, each read when it is its turn: whoever reads may let
        others run in between.
        """
        for name, read in list(self._gauges.items()):
            yield name, read()
        for name, meter in list(self._meters.items()):
            yield name, meter.count
        for family in list(self._families):
            yield from family.snapshot()
