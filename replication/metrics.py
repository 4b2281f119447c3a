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

A registry belongs to one broker. It holds no clock: it is handed the node's.
"""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

_TICK = 5.0
_ALPHA = 1 - math.exp(-_TICK / 60)


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

    def mark(self, amount: int = 1) -> None:
        self._tick()
        self.count += amount
        self._untold += amount

    def one_minute_rate(self) -> float:
        """Events per second."""
        self._tick()
        return self._rate or 0.0

    def _tick(self) -> None:
        ticks = int((self._now() - self._last_tick) / _TICK)
        if ticks <= 0:
            return
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


@attrs.define
class MetricsRegistry:
    """One broker's meters and gauges."""

    _now: Callable[[], float]
    _gauges: dict[MetricName, Gauge] = attrs.field(factory=dict)
    _meters: dict[MetricName, Meter] = attrs.field(factory=dict)
    _families: list[Family] = attrs.field(factory=list)

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
        return self._meters.setdefault(name, Meter(self._now))

    def remove(self, name: MetricName) -> None:
        """Nothing happens where there is none."""
        self._gauges.pop(name, None)
        self._meters.pop(name, None)

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
        for name in self.names():
            yield name, self.read(name)
