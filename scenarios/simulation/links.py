"""Machines and the links between them.

A link goes one way. It delays what it carries, by a least time and an exponentially
distributed rest; it may be cut, alone or together with the one that leads back; and it may
hold up the connections over which one API is asked for, while others pass.
"""

import random
from collections.abc import Callable

import attrs

from replication.wire.apis import ApiKey
from scenarios.simulation.clock import SimulatedClock

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
    held: set[ApiKey] = attrs.field(factory=set)

    @property
    def down(self) -> bool:
        return self.cut or not self.source.up or not self.target.up

    def delay(self) -> float:
        """How long the next chunk takes."""
        if self.mean_extra_delay <= 0:
            return self.least_delay
        return self.least_delay + self.chance.expovariate(1 / self.mean_extra_delay)
