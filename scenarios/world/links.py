"""Machines and the links between them.

A link goes one way. It delays what it carries, by a least time and an exponentially
distributed rest; it may be cut, alone or together with the one that leads back; and it may
hold up the connections over which one API is asked for, while others pass.
"""

import random
from collections.abc import Callable

import attrs

from scenarios.world.clock import SimulatedClock

Received = Callable[[memoryview, "Link"], None]


@attrs.define(eq=False)
class Host:
    """A machine: the name that others connect to, and whether it is up."""

    name: str
    clock: SimulatedClock
    up: bool = True
    boots: int = 1

    @property
    def paused(self) -> bool:
        return self.clock.paused


@attrs.define(eq=False)
class Link:
    """The way from one machine to another."""

    source: Host
    target: Host
    chance: random.Random
    least_delay: float  # seconds
    mean_extra_delay: float
    cut: bool = False
    late_reported: bool = False
    """Whether late bytes have been reported for this link."""
    # The number of messages about an API that still pass; below zero they are held.
    _passing: dict[int, int] = attrs.field(factory=dict)
    # The APIs whose next message breaks off; None stands for any.
    _torn: set[int | None] = attrs.field(factory=set)

    @property
    def down(self) -> bool:
        return self.cut or not self.source.up or not self.target.up

    @property
    def holds_any(self) -> bool:
        return bool(self._passing)

    def hold(self, api: int, *, after: int = 0) -> None:
        self._passing[api] = after or -1

    def let_go(self) -> None:
        self._passing.clear()

    def tear(self, api: int | None = None) -> None:
        """Break off the next message, or the next one about `api`."""
        self._torn.add(api)

    def tears(self, api: int | None) -> bool:
        return not self._torn.isdisjoint({api, None})

    def mend(self) -> None:
        self._torn.clear()

    def holds(self, api: int | None) -> bool:
        return api is not None and self._passing.get(api, 0) < 0

    def count(self, api: int | None) -> None:
        """Count one more message about `api`."""
        if api is not None and api in self._passing:
            self._passing[api] -= 1

    def delay(self) -> float:
        """Return the delay of the next chunk, in seconds."""
        if self.mean_extra_delay <= 0:
            return self.least_delay
        return self.least_delay + self.chance.expovariate(1 / self.mean_extra_delay)
