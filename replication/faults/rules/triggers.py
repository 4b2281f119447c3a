"""At which of the requests that a rule matches it does something; the words are Kafka's.

call                1    2    3    4   ...
once()              x
on_call(3)                    x
times(2)            x    x
every_time()        x    x    x    x   ...
with_probability(p)  each for itself
"""

from typing import Protocol, TypeAlias

import attrs


class Chance(Protocol):
    """A `random.Random`, as far as it is needed."""

    def random(self) -> float:
        """At least 0 and less than 1."""


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
    """The first time."""
    return Times(1)


def on_call(number: int) -> Trigger:
    """That time alone; the first is 1."""
    return OnCall(number)


def times(number: int) -> Trigger:
    """The first `number` times."""
    return Times(number)


def every_time() -> Trigger:
    """Always."""
    return EveryTime()


def with_probability(probability: float) -> Trigger:
    """Each time with the same probability, from 0 to 1."""
    return WithProbability(probability)


def fires(trigger: Trigger, *, call: int, chance: Chance) -> bool:
    """Whether it does at the `call`th matching request."""
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
