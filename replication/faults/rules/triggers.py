"""Triggers: the matching requests to which a rule is applied.

call                1    2    3    4   ...
once()              x
on_call(3)                    x
times(2)            x    x
every_time()        x    x    x    x   ...
with_probability(p)  each with probability p
"""

from typing import Protocol, TypeAlias

import attrs


class TriggerRandom(Protocol):
    """The method of `random.Random` that a trigger needs."""

    def random(self) -> float:
        """Return a number of at least 0 and less than 1."""


@attrs.frozen
class EveryTime:
    def __str__(self) -> str:
        return "every time"


@attrs.frozen
class OnCall:
    number: int

    def __str__(self) -> str:
        return f"on call {self.number}"


@attrs.frozen
class Times:
    number: int

    def __str__(self) -> str:
        return "once" if self.number == 1 else f"{self.number} times"


@attrs.frozen
class WithProbability:
    probability: float

    def __str__(self) -> str:
        return f"with probability {self.probability:g}"


Trigger: TypeAlias = EveryTime | OnCall | Times | WithProbability


def once() -> Trigger:
    """Apply a rule to the first matching request."""
    return Times(1)


def on_call(number: int) -> Trigger:
    """Apply a rule only to the matching request of this number; the first is 1."""
    return OnCall(number)


def times(number: int) -> Trigger:
    """Apply a rule to the first `number` matching requests."""
    return Times(number)


def every_time() -> Trigger:
    """Apply a rule to every matching request."""
    return EveryTime()


def with_probability(probability: float) -> Trigger:
    """Apply a rule to each matching request with this probability, from 0 to 1."""
    return WithProbability(probability)


def fires(trigger: Trigger, *, call: int, chance: TriggerRandom) -> bool:
    """Return whether the trigger fires for matching request number `call`."""
    assert call >= 1, "calls are counted from 1"
    match trigger:
        case EveryTime():
            return True
        case OnCall(number):
            return call == number
        case Times(number):
            return call <= number
        case WithProbability(probability):
            return chance.random() < probability
