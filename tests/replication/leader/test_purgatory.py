"""A waiting task is woken once: by the change that it waits for, or by the clock."""

from functools import partial

import attrs
import pytest
import trio
import trio.testing

from replication.leader.purgatory import Purgatory
from replication.net.clock import TrioClock

CLOCK = TrioClock()


@attrs.define(eq=False)
class Threshold:
    """Waits until the total of its keys reaches `least`."""

    totals: dict[str, int]
    least: int
    asked: list[str] = attrs.Factory(list)

    def satisfied(self) -> bool:
        return sum(self.totals.values()) >= self.least

    def satisfied_by(self, key: str, /) -> bool:
        self.asked.append(key)
        return self.satisfied()


async def test_an_operation_that_is_already_satisfied_does_not_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    assert await purgatory.wait(Threshold({"a": 3}, least=3), ["a"], timeout_ms=1000)
    assert CLOCK.now() == 0
    assert (purgatory.waiting, purgatory.watched) == (0, 0)


async def test_a_check_wakes_only_whom_it_satisfies(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    totals = {"a": 0, "b": 0}
    small, large = Threshold(totals, least=1), Threshold(totals, least=2)
    outcomes: list[tuple[str, bool, float]] = []

    async def wait(name: str, operation: Threshold) -> None:
        satisfied = await purgatory.wait(operation, ["a", "b"], timeout_ms=1000)
        outcomes.append((name, satisfied, CLOCK.now()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "small", small)
        nursery.start_soon(wait, "large", large)
        await CLOCK.sleep(0.1)
        assert (purgatory.waiting, purgatory.watched) == (2, 4)
        totals["a"] = 1
        assert purgatory.check("a") == 1
        await CLOCK.sleep(0.1)
        assert (purgatory.waiting, purgatory.watched) == (1, 2)
        assert purgatory.check("elsewhere") == 0

    assert outcomes == [("small", True, 0.1), ("large", False, 1.0)]
    assert small.asked == large.asked == ["a"]
    assert (purgatory.waiting, purgatory.watched, purgatory.expired) == (0, 0, 1)


async def test_an_operation_is_woken_once_however_often_its_keys_are_checked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    totals = {"a": 0}
    async with trio.open_nursery() as nursery:
        operation = Threshold(totals, least=1)
        nursery.start_soon(partial(purgatory.wait, operation, ["a", "b"], timeout_ms=1000))
        await CLOCK.sleep(0.1)
        totals["a"] = 1
        assert [purgatory.check("a"), purgatory.check("a"), purgatory.check("b")] == [1, 0, 0]


async def test_a_cancelled_wait_leaves_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    with CLOCK.move_on_after(0.5) as scope:
        await purgatory.wait(Threshold({}, least=1), ["a", "b"], timeout_ms=10_000)
    assert scope.cancelled_caught
    assert (purgatory.waiting, purgatory.watched, purgatory.expired) == (0, 0, 0)
    assert purgatory.check("a") == 0


@pytest.mark.conformance("PT-64")
async def test_an_operation_that_raises_is_answered_and_the_others_are_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bugs: list[BaseException] = []
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK, on_bug=bugs.append)

    class Broken(Threshold):
        def satisfied_by(self, key: str, /) -> bool:
            raise RuntimeError("a bug of ours")

    totals = {"a": 0}
    async with trio.open_nursery() as nursery:
        for operation in (Broken(totals, least=1), Threshold(totals, least=1)):
            nursery.start_soon(partial(purgatory.wait, operation, ["a"], timeout_ms=1000))
            await CLOCK.sleep(0.1)
        totals["a"] = 1
        assert purgatory.check("a") == 2
    assert [str(bug) for bug in bugs] == ["a bug of ours"]
    assert CLOCK.now() < 1


async def test_a_negative_timeout_has_passed_and_a_key_named_twice_is_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    assert not await purgatory.wait(Threshold({}, least=1), ["a", "a"], timeout_ms=-5)
    assert (CLOCK.now(), purgatory.watched) == (0, 0)


async def test_of_a_check_the_clock_and_a_cancellation_the_first_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    totals = {"a": 0}
    outcomes: list[bool] = []
    scope = trio.CancelScope()

    async def wait() -> None:
        with scope:
            outcomes.append(
                await purgatory.wait(Threshold(totals, least=1), ["a"], timeout_ms=1000)
            )

    def check_and_cancel() -> None:
        totals["a"] = 1
        purgatory.check("a")
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        CLOCK.alarm(1, check_and_cancel)  # after that of the wait itself
    assert outcomes == [False]
    async with trio.open_nursery() as nursery:
        totals["a"], scope = 0, trio.CancelScope()
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        check_and_cancel()
        assert purgatory.check("a") == 0
    assert outcomes == [False, True]
    async with trio.open_nursery() as nursery:
        totals["a"], scope = 0, trio.CancelScope()
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        totals["a"] = 1
        assert purgatory.check("a") == 0
    assert scope.cancelled_caught
    assert (outcomes, purgatory.waiting, purgatory.expired) == ([False, True], 0, 1)


async def test_a_change_before_the_wait_of_what_is_watched_ends_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    totals = {"a": 0, "b": 0}
    operation = Threshold(totals, least=1)
    with purgatory.watching(operation):
        purgatory.watch(operation, "a")
        assert purgatory.check("b") == 0
        totals["a"] = 1
        assert [purgatory.check("a"), purgatory.check("a")] == [1, 0]
        assert await purgatory.wait_watched(operation, timeout_ms=1000)
    assert (CLOCK.now(), purgatory.waiting, purgatory.watched) == (0, 0, 0)


async def test_what_is_watched_waits_like_any_other_operation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    operation = Threshold({"a": 0}, least=1)
    with purgatory.watching(operation):
        purgatory.watch(operation, "a")
        assert not await purgatory.wait_watched(operation, timeout_ms=1000)
    assert (CLOCK.now(), purgatory.watched, purgatory.expired) == (1, 0, 1)


async def test_a_wait_without_a_task_calls_back_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory: Purgatory[str] = Purgatory(clock=CLOCK)
    totals = {"a": 0, "b": 0}
    done: list[float] = []
    call = partial(purgatory.call_when_done, done=lambda: done.append(CLOCK.now()))
    first = Threshold(totals, least=1)
    call(first, ["a", "b"], timeout_ms=1000)
    assert (purgatory.waiting, purgatory.watched, done) == (1, 2, [])
    totals["a"] = 1
    assert [purgatory.check("a"), purgatory.check("b")] == [1, 0]
    assert not purgatory.give_up(first)
    await CLOCK.sleep(2)
    assert done == [0]
    assert (purgatory.waiting, purgatory.watched, purgatory.expired) == (0, 0, 0)

    call(Threshold(totals, least=1), ["a"], timeout_ms=1000)
    assert done == [0, 2], "what is satisfied already does not wait"

    call(Threshold(totals, least=2), ["a"], timeout_ms=1000)
    await CLOCK.sleep(2)
    assert done == [0, 2, 3], "the time was up after a second"
    assert (purgatory.waiting, purgatory.watched, purgatory.expired) == (0, 0, 1)

    last = Threshold(totals, least=2)
    call(last, ["a"], timeout_ms=1000)
    assert purgatory.give_up(last)
    totals["a"] = 2
    assert purgatory.check("a") == 0
    await CLOCK.sleep(2)
    assert done == [0, 2, 3], "it was given up"
