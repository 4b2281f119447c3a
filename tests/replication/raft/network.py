"""Links between nodes, each in one direction, and the time in which all of it happens.

A link loses, delays and duplicates what it carries, so messages overtake each other; a link that
is cut loses all of it. Everything is drawn from one seed: a run is repeated by its seed.
"""

import heapq
import math
from collections.abc import Callable
from random import Random

import attrs

Action = Callable[[], None]


@attrs.define
class Schedule:
    """Virtual time: what will happen, in the order of its time and then of its asking."""

    now_ms: int = 0
    _queue: list[tuple[int, int, Action]] = attrs.field(factory=list)
    _count: int = 0

    def after(self, delay_ms: int, action: Action) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, action))

    @property
    def next_ms(self) -> float:
        """The time of what is next; endless where nothing is."""
        return self._queue[0][0] if self._queue else math.inf

    def run_next(self) -> None:
        """Go to the time of what is next, and do it."""
        self.now_ms, _, action = heapq.heappop(self._queue)
        action()


@attrs.frozen
class LinkQuality:
    """The troubles of all links of a run; delays are in milliseconds."""

    delay_ms: int = 10
    loss: float = 0.0
    duplicates: float = 0.0


@attrs.define
class Links:
    """The links of a run."""

    schedule: Schedule
    chance: Random
    quality: LinkQuality
    cut: set[tuple[int, int]] = attrs.field(factory=set)

    def carry(self, sender: int, receiver: int, arrive: Action) -> None:
        """Let a message arrive some time later, twice, or not at all."""
        copies = 2 if self.chance.random() < self.quality.duplicates else 1
        for _ in range(copies):
            if self.chance.random() >= self.quality.loss:
                delay = 1 + int(self.chance.expovariate(1 / self.quality.delay_ms))
                self.schedule.after(delay, self._unless_cut(sender, receiver, arrive))

    def _unless_cut(self, sender: int, receiver: int, arrive: Action) -> Action:
        def action() -> None:
            if (sender, receiver) not in self.cut:
                arrive()

        return action
