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
    """A machine: the name others connect to, and whether anybody is at home."""

    name: str
    clock: SimulatedClock
    up: bool = True
    boots: int = 1

    @property
    def paused(self) -> bool:
        return self.clock.paused


@attrs.define(eq=False)
class Link:
    """From one machine to another."""

    source: Host
    target: Host
    chance: random.Random
    least_delay: float  # seconds
    mean_extra_delay: float
    cut: bool = False
    told_late: bool = False
    """It has been told, once, that bytes came late over it."""
    # How many more messages about an API pass before it holds them: below zero it does.
    _passing: dict[int, int] = attrs.field(factory=dict)
    # About what the next message breaks off; None: about anything.
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
        """The next message breaks off; or the next about `api`."""
        self._torn.add(api)

    def tears(self, api: int | None) -> bool:
        return not self._torn.isdisjoint({api, None})

    def mend(self) -> None:
        self._torn.clear()

    def holds(self, api: int | None) -> bool:
        return api is not None and self._passing.get(api, 0) < 0

    def count(self, api: int | None) -> None:
        """Another message about `api` begins."""
        if api is not None and api in self._passing:
            self._passing[api] -= 1

    def delay(self) -> float:
        """How long the next chunk takes."""
        if self.mean_extra_delay <= 0:
            return self.least_delay
        return self.least_delay + self.chance.expovariate(1 / self.mean_extra_delay)
