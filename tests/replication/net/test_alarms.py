"""Alarms ring at their moment, each once, and not at all where they were called off."""

from functools import partial

import trio
from trio.testing import MockClock

from replication.net.clock import TrioClock, alarms_of_this_run

CLOCK = TrioClock()


async def test_they_ring_at_their_moments_whenever_they_were_set(
    autojump_clock: MockClock,
) -> None:
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
