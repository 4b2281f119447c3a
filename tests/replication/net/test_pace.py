"""Turns are in order; long work pauses, and all of it takes one step in a turn of the loop."""

import gc

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from replication.net.pace import (
    COLLECTIONS,
    LONG,
    MOST_PAUSES,
    WORK,
    RequestWork,
    Turns,
    in_steps,
)
from replication.steps import STEP, Steps, each_of


@pytest.mark.parametrize("count", [0, 1, STEP, STEP + 1, 10 * STEP + 7])
async def test_each_item_comes_to_its_result(count: int) -> None:
    assert await in_steps(each_of(str, range(count))) == [str(each) for each in range(count)]


async def test_short_work_goes_through_without_a_pause() -> None:
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await in_steps(each_of(abs, range(STEP - 2)))
        assert not ran
        await in_steps(each_of(abs, range(STEP + 1)))
        assert ran


class Turned(trio.abc.Instrument):
    """The number of steps of long work in each turn of the loop."""

    def __init__(self) -> None:
        self.steps = [0]

    def after_io_wait(self, timeout: float) -> None:
        self.steps.append(0)


@pytest.mark.parametrize("workers", [1, 7])
async def test_a_turn_of_the_loop_has_one_step_however_much_long_work_there_is(
    workers: int,
) -> None:
    turned, finished = Turned(), list[int]()

    def work(number: int) -> Steps[int]:
        for _ in range(5):
            turned.steps[-1] += 1
            yield STEP
        return number

    async def worker(number: int) -> None:
        await in_steps(work(-1))  # begins with a step that is nobody's turn
        finished.append(await in_steps(work(number)))

    trio.lowlevel.add_instrument(turned)
    async with trio.open_nursery() as nursery:
        for number in range(workers):
            nursery.start_soon(worker, number)
    trio.lowlevel.remove_instrument(turned)
    assert sorted(finished) == list(range(workers))
    # The first step of each piece of work is taken at once.
    assert sum(turned.steps) == workers * 10
    assert max(turned.steps[3:]) <= 2


async def test_work_that_is_cancelled_leaves_the_turn_to_the_others() -> None:
    def endless() -> Steps[None]:
        while True:
            yield STEP

    with trio.CancelScope() as scope:
        scope.cancel()
        await in_steps(endless())
    assert scope.cancelled_caught
    assert len(await in_steps(each_of(str, range(3 * STEP)))) == 3 * STEP


async def test_an_error_of_the_work_goes_through() -> None:
    def failing() -> Steps[None]:
        for _ in range(3):
            yield STEP
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_steps(failing())


async def test_while_work_is_long_garbage_is_not_collected() -> None:
    seen: list[bool] = []

    def long() -> Steps[None]:
        for _ in range(LONG + 2):
            seen.append(gc.isenabled())
            yield STEP

    work, other = RequestWork(), RequestWork()
    WORK.set(work)
    assert gc.isenabled()
    await in_steps(long())
    # A pause is counted before the step after it.
    assert seen == [True] * LONG + [False, False]
    other.pauses = LONG - 1
    other.paused()
    work.ended()
    assert not gc.isenabled(), "another request is being answered"
    other.ended()
    assert gc.isenabled()
    work.ended()
    assert gc.isenabled(), "a request without long work changes nothing"


async def test_long_work_that_never_ends_does_not_put_off_collections_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(None))
    work = RequestWork()
    for _ in range(LONG + 2 * MOST_PAUSES):
        work.paused()
    work.ended()
    assert len(collected) == 2


async def test_turns_are_in_order_and_a_cancelled_task_is_skipped() -> None:
    turns, served = Turns(), list[str]()

    async def take(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with turns:
                assert turns.taken
                served.append(name)
                await trio.lowlevel.checkpoint()

    impatient = trio.CancelScope()
    async with trio.open_nursery() as nursery, turns:
        for name, scope in (("a", trio.CancelScope()), ("b", impatient)):
            nursery.start_soon(take, name, scope)
            await wait_all_tasks_blocked()
        nursery.start_soon(take, "c", trio.CancelScope())
        await wait_all_tasks_blocked()
        impatient.cancel()
        await wait_all_tasks_blocked()
        assert served == []
    assert served == ["a", "c"]
    assert not turns.taken


async def test_a_task_cancelled_as_its_turn_comes_passes_it_on() -> None:
    turns, served = Turns(), list[str]()

    async def take(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with turns:
                await trio.lowlevel.checkpoint()
                served.append(name)

    late = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        async with turns:
            for name, scope in (("a", late), ("b", trio.CancelScope())):
                nursery.start_soon(take, name, scope)
                await wait_all_tasks_blocked()
        late.cancel()  # it has been handed the turn, and has not run yet
    assert served == ["b"]
    assert not turns.taken


async def test_a_free_turn_is_taken_without_giving_way() -> None:
    turns, turned = Turns(), list[str]()

    async def other() -> None:
        turned.append("other")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with turns:
            assert turned == []


@pytest.mark.parametrize("were_on", [True, False])
def test_the_collector_is_as_it_was_after_the_last_holder(were_on: bool) -> None:
    def fail() -> None:
        with COLLECTIONS.held():
            with COLLECTIONS.held():
                assert not gc.isenabled()
            assert not gc.isenabled(), "another one still holds it"
            raise ValueError("no cluster")

    (gc.enable if were_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="no cluster"):
            fail()
        assert gc.isenabled() == were_on
    finally:
        gc.enable()
