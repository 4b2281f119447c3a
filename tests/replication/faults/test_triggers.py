"""Triggers fire as their naive twin does, which counts down."""

import random
from collections.abc import Callable

import attrs
from hypothesis import given, strategies as st

from replication.faults import every_time, on_call, once, times, with_probability
from replication.faults.rules.rule import (
    EveryTime,
    OnCall,
    Times,
    Trigger,
    WithProbability,
    fires,
)


@attrs.define
class Naive:
    """A trigger that counts down the matching requests."""

    trigger: Trigger
    chance: random.Random
    left: int = 0

    def __attrs_post_init__(self) -> None:
        if isinstance(self.trigger, OnCall | Times):
            self.left = self.trigger.number

    def __call__(self) -> bool:
        self.left -= 1
        match self.trigger:
            case EveryTime():
                return True
            case OnCall():
                return self.left == 0
            case Times():
                return self.left >= 0
            case WithProbability(probability):
                return self.chance.random() < probability


TRIGGERS: st.SearchStrategy[Trigger] = (
    st.just(every_time())
    | st.just(once())
    | st.integers(1, 6).map(on_call)
    | st.integers(1, 6).map(times)
    | st.sampled_from([0.0, 0.25, 0.5, 1.0]).map(with_probability)
)


@given(trigger=TRIGGERS, seed=st.integers(0, 99), calls=st.integers(0, 12))
def test_a_trigger_fires_when_its_naive_twin_does(trigger: Trigger, seed: int, calls: int) -> None:
    naive: Callable[[], bool] = Naive(trigger, random.Random(seed))
    chance = random.Random(seed)
    fired = [fires(trigger, call=call, chance=chance) for call in range(1, calls + 1)]
    assert fired == [naive() for _ in range(calls)]


def test_a_trigger_describes_itself() -> None:
    texts = [str(each) for each in (once(), on_call(3), times(2), every_time())]
    assert texts == ["once", "on call 3", "2 times", "every time"]
