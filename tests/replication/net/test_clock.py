"""The production clock follows trio's; alarms ring at their moment, once, unless called off."""

import time
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from replication.net.clock import TrioClock, alarms_of_this_run
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
async def test_a_time_that_has_passed_means_now(autojump_clock: MockClock, seconds: float) -> None:
    expected = [max(seconds, 0) * waits for waits in (1, 2, 3, 4)]
    impaired = ImpairedClock(1, Gates(), TrioClock())
    assert await wait(TrioClock(), seconds) == expected
    assert await wait(impaired, seconds) == expected


@pytest.mark.parametrize("seconds", [-(2.0**31), -0.001, 0.0, 2.0])
def test_a_time_that_has_passed_means_now_in_a_simulation_too(seconds: float) -> None:
    expected = [max(seconds, 0) * waits for waits in (1, 2, 3, 4)]
    assert World(seed=1).run(lambda world: wait(world.node("b1").clock, seconds)) == expected


CLOCK = TrioClock()


async def test_they_ring_at_their_moments_whenever_they_were_set(autojump_clock: MockClock) -> None:
    rung: list[tuple[str, float]] = []

    def set_alarm(name: str, moment: float) -> None:
        CLOCK.alarm(moment, lambda: rung.append((name, CLOCK.now())))

    set_alarm("late", 9)
    await CLOCK.sleep(1)
    set_alarm("sooner", 4)
    set_alarm("with it", 4)
    set_alarm("at once", 0)
    await CLOCK.sleep(10)
    assert rung == [("at once", 1), ("sooner", 4), ("with it", 4), ("late", 9)]


async def test_one_that_is_called_off_does_not_ring(autojump_clock: MockClock) -> None:
    rung: list[str] = []
    first = CLOCK.alarm(1, partial(rung.append, "first"))
    second = CLOCK.alarm(1, partial(rung.append, "second"))
    CLOCK.alarm(1, first.call_off)
    second.call_off()
    await CLOCK.sleep(2)
    first.call_off()
    assert rung == ["first"], "once it has rung there is nothing to call off"


async def test_an_alarm_may_set_another(autojump_clock: MockClock) -> None:
    rung = trio.Event()
    CLOCK.alarm(1, lambda: CLOCK.alarm(3, rung.set))
    await rung.wait()
    assert CLOCK.now() == 3


async def test_those_that_were_called_off_do_not_pile_up(autojump_clock: MockClock) -> None:
    rung: list[int] = []
    for number in range(10_000):
        alarm = CLOCK.alarm(600, partial(rung.append, number))
        if number % 1000:
            alarm.call_off()
    assert alarms_of_this_run().size < 3000
    await CLOCK.sleep(601)
    assert rung == list(range(0, 10_000, 1000))
    assert alarms_of_this_run().size == 0


def test_each_run_has_its_own() -> None:
    async def leaves_one() -> int:
        CLOCK.alarm(CLOCK.now() + 1000, lambda: None)
        await trio.lowlevel.checkpoint()
        return alarms_of_this_run().size

    assert [trio.run(leaves_one), trio.run(leaves_one)] == [1, 1]
