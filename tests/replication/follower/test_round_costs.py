"""What a round costs does not depend on how many partitions it leaves alone.

Counted, not timed: every call that the two sides make from the request to what becomes of its
answer. The benchmark `fetch_rounds` times the same.
"""

import sys
from functools import partial
from types import FrameType

import trio

from tests.bench import fetch_rounds

MOVING = 5


class Calls:
    """How many calls are made, of Python's functions and of C's."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event in {"call", "c_call"}


async def calls_of_a_round(follower: fetch_rounds.Follower) -> int:
    calls = Calls()
    sys.setprofile(calls.note)
    try:
        await follower.round()
    finally:
        sys.setprofile(None)
    return calls.count


async def least_calls(count: int, *, moving: int) -> int:
    """Return the fewest calls of several rounds: another task of the broker may run in one."""
    leading, following = fetch_rounds.leading(count), fetch_rounds.following(count)
    async with leading as (leader, server), following as node:
        follower = fetch_rounds.follower_of(server, count, replicas=node.manager.replicas)
        for _ in range(4):
            await follower.round()
        taken = []
        for _ in range(5):
            for number in range(moving):
                await leader.produce(to=fetch_rounds.at(number))
            taken.append(await calls_of_a_round(follower))
            for _ in range(3):
                await follower.round()
        return min(taken)


def test_an_idle_round_makes_the_same_calls_for_ten_partitions_and_for_hundreds() -> None:
    few, many = (trio.run(partial(least_calls, n, moving=0)) for n in (10, 400))
    assert abs(many - few) <= 5


def test_a_round_makes_calls_for_those_that_move_and_not_for_the_others() -> None:
    few, many = (trio.run(partial(least_calls, n, moving=MOVING)) for n in (MOVING, 400))
    assert abs(many - few) <= few / 20
