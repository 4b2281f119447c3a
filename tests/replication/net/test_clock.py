"""The production clock follows trio's."""

import time

import trio
from trio.testing import MockClock

from replication.net.clock import TrioClock


async def test_it_sleeps_on_the_runs_clock(autojump_clock: MockClock) -> None:
    clock = TrioClock()
    start = clock.now()
    await clock.sleep(1.5)
    assert clock.now() - start == 1.5
    await clock.sleep_until(start + 10)
    assert clock.now_ms() - int(start * 1000) == 10_000


async def test_move_on_after_cancels_at_its_deadline(autojump_clock: MockClock) -> None:
    clock = TrioClock()
    start = clock.now()
    with clock.move_on_after(2) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.now() - start == 2


def test_the_wall_clock_needs_no_run() -> None:
    assert abs(TrioClock().wall_ms() - time.time_ns() // 1_000_000) < 60_000
