"""The production clock follows trio's."""

import time

import pytest
import trio
from trio.testing import MockClock

from replication.net.clock import TrioClock
from replication.net.impaired import Gates, ImpairedClock
from replication.net.seams import NodeClock
from scenarios.world.world import World


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


async def wait(clock: NodeClock, seconds: float) -> list[float]:
    """Wait in each of the ways there are; the times after each."""
    began, times = clock.now(), []
    await clock.sleep(seconds)
    times.append(clock.now() - began)
    await clock.sleep_until(clock.now() + seconds)
    times.append(clock.now() - began)
    with clock.move_on_after(seconds):
        await trio.Event().wait()
    times.append(clock.now() - began)
    rung = trio.Event()
    clock.alarm(clock.now() + seconds, rung.set)
    await rung.wait()
    times.append(clock.now() - began)
    return times


@pytest.mark.parametrize("seconds", [-(2.0**31), -0.001, 0.0, 2.0])
async def test_a_time_that_has_passed_means_now(seconds: float, autojump_clock: MockClock) -> None:
    expected = [max(seconds, 0) * waits for waits in (1, 2, 3, 4)]
    impaired = ImpairedClock(1, Gates(), TrioClock())
    assert await wait(TrioClock(), seconds) == expected
    assert await wait(impaired, seconds) == expected


@pytest.mark.parametrize("seconds", [-(2.0**31), -0.001, 0.0, 2.0])
def test_a_time_that_has_passed_means_now_in_a_simulation_too(seconds: float) -> None:
    expected = [max(seconds, 0) * waits for waits in (1, 2, 3, 4)]
    assert World(seed=1).run(lambda world: wait(world.node("b1").clock, seconds)) == expected
