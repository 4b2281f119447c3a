"""Turns: one at a time, first come, first served, at once where nobody has one."""

import trio
from trio.testing import wait_all_tasks_blocked

from replication.net.pace import Turns


async def test_who_comes_first_is_served_first_and_who_gives_up_is_passed_over() -> None:
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


async def test_who_is_cancelled_as_the_turn_comes_hands_it_on() -> None:
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
