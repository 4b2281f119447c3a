"""What is held up comes later, whole and in order; what is closed meanwhile is closed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from replication.errors import PeerUnavailableError
from replication.net.clock import TrioClock
from replication.net.impaired import Gates, ImpairedClock, ImpairedTransport
from replication.net.seams import Connection, Listener
from replication.net.tcp import TcpTransport


@attrs.define
class Pair:
    """Node 1 has connected to node 2, both through what may hold them up."""

    gates: Gates
    first: Connection
    second: Connection
    listener: Listener

    async def heard_by(self, connection: Connection, heard: list[bytes]) -> None:
        room = memoryview(bytearray(100))
        while count := await connection.receive_into(room):
            heard.append(bytes(room[:count]))


@asynccontextmanager
async def connected() -> AsyncIterator[Pair]:
    gates = Gates()
    listener = await ImpairedTransport(2, gates, TcpTransport()).listen("127.0.0.1", 0)
    gates.node_at = {listener.port: 2}.get
    first = await ImpairedTransport(1, gates, TcpTransport()).connect("127.0.0.1", listener.port)
    second = await listener.accept()
    try:
        yield Pair(gates, first, second, listener)
    finally:
        first.close()
        second.close()
        listener.close()


def freeze(gates: Gates, node: int) -> None:
    gates.frozen.add(node)
    gates.wake()


def release(gates: Gates) -> None:
    gates.frozen.clear()
    gates.cut.clear()
    gates.wake()


async def test_to_a_frozen_node_bytes_come_when_it_thaws() -> None:
    heard: list[bytes] = []
    async with connected() as pair, trio.open_nursery() as nursery:
        nursery.start_soon(pair.heard_by, pair.second, heard)
        await wait_all_tasks_blocked()
        freeze(pair.gates, 2)
        await pair.first.send_buffers([b"while it stands still"])
        await wait_all_tasks_blocked()
        assert heard == []
        release(pair.gates)
        await wait_all_tasks_blocked()
        assert heard == [b"while it stands still"]
        nursery.cancel_scope.cancel()


async def knock(pair: Pair) -> None:
    transport = ImpairedTransport(1, pair.gates, TcpTransport())
    (await transport.connect("127.0.0.1", pair.listener.port)).close()


async def test_a_frozen_node_sends_and_connects_when_it_thaws() -> None:
    heard: list[bytes] = []
    async with connected() as pair, trio.open_nursery() as nursery:
        freeze(pair.gates, 1)
        nursery.start_soon(pair.heard_by, pair.second, heard)
        nursery.start_soon(pair.first.send_buffers, [b"late"])
        nursery.start_soon(knock, pair)
        await wait_all_tasks_blocked()
        assert heard == []
        release(pair.gates)
        (await pair.listener.accept()).close()
        await wait_all_tasks_blocked()
        assert heard == [b"late"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cut", [(1, 2), (2, 1)])
async def test_a_cut_holds_one_direction_of_a_connection(cut: tuple[int, int]) -> None:
    to_second: list[bytes] = []
    to_first: list[bytes] = []
    async with connected() as pair, trio.open_nursery() as nursery:
        nursery.start_soon(pair.heard_by, pair.second, to_second)
        nursery.start_soon(pair.heard_by, pair.first, to_first)
        pair.gates.cut.add(cut)
        nursery.start_soon(pair.first.send_buffers, [b"there"])
        nursery.start_soon(pair.second.send_buffers, [b"back"])
        await wait_all_tasks_blocked()
        assert (to_second, to_first) == (([], [b"back"]) if cut == (1, 2) else ([b"there"], []))
        release(pair.gates)
        await wait_all_tasks_blocked()
        assert (to_second, to_first) == ([b"there"], [b"back"])
        nursery.cancel_scope.cancel()


async def test_a_client_is_never_cut_off() -> None:
    heard: list[bytes] = []
    async with connected() as pair, trio.open_nursery() as nursery:
        pair.gates.cut |= {(1, 2), (2, 1)}
        client = await TcpTransport().connect("127.0.0.1", pair.listener.port)
        accepted = await pair.listener.accept()
        nursery.start_soon(pair.heard_by, accepted, heard)
        await client.send_buffers([b"hello"])
        await wait_all_tasks_blocked()
        assert heard == [b"hello"]
        nursery.cancel_scope.cancel()
        client.close()
        accepted.close()


async def test_closing_wakes_a_task_that_is_held_up() -> None:
    async with connected() as pair, trio.open_nursery() as nursery:
        freeze(pair.gates, 1)

        async def held() -> None:
            with pytest.raises(PeerUnavailableError):
                await pair.first.send_buffers([b"never"])

        nursery.start_soon(held)
        await wait_all_tasks_blocked()
        pair.first.close()


async def test_bytes_that_came_before_their_reader_was_cancelled_are_not_lost() -> None:
    heard: list[bytes] = []
    async with connected() as pair:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.heard_by, pair.second, heard)
            await wait_all_tasks_blocked()
            freeze(pair.gates, 2)
            await pair.first.send_buffers([b"abc"])
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        release(pair.gates)
        room = memoryview(bytearray(2))
        assert await pair.second.receive_into(room) == 2
        assert bytes(room) == b"ab"
        assert await pair.second.receive_into(room) == 1
        assert bytes(room[:1]) == b"c"
        assert heard == []


# -- time


def frozen_and_thawed(gates: Gates, clock: ImpairedClock) -> None:
    clock.thaw()
    release(gates)


async def test_timers_due_in_a_freeze_fire_at_its_end(autojump_clock: MockClock) -> None:
    gates = Gates()
    clock = ImpairedClock(1, gates, TrioClock())
    ended: dict[str, float] = {}

    async def sleeps() -> None:
        await clock.sleep(1)
        ended["sleep"] = clock.now()

    async def times_out() -> None:
        with clock.move_on_after(2) as scope:
            await trio.Event().wait()
        assert scope.cancelled_caught
        ended["timeout"] = clock.now()

    async def is_woken() -> None:
        woken = trio.Event()
        clock.alarm(clock.now() + 2, woken.set)
        await woken.wait()
        ended["alarm"] = clock.now()

    async def times_out_later() -> None:
        with clock.move_on_after(9):
            await trio.Event().wait()
        ended["later"] = clock.now()

    start = clock.now()
    async with trio.open_nursery() as nursery:
        for task in (sleeps, times_out, is_woken, times_out_later):
            nursery.start_soon(task)
        clock.alarm(clock.now() + 3, lambda: ended.update(never=0)).call_off()
        called_off_frozen = clock.alarm(clock.now() + 3, lambda: ended.update(never=0))
        await wait_all_tasks_blocked()
        gates.frozen.add(1)
        clock.freeze()
        await TrioClock().sleep(5)
        assert ended == {}
        called_off_frozen.call_off()
        frozen_and_thawed(gates, clock)
    assert {name: moment - start for name, moment in ended.items()} == {
        "sleep": 5,
        "timeout": 5,
        "alarm": 5,
        "later": 9,
    }


async def test_a_timeout_that_begins_in_a_freeze_waits_for_its_end(
    autojump_clock: MockClock,
) -> None:
    gates = Gates(frozen={1})
    clock = ImpairedClock(1, gates, TrioClock())
    start = clock.now()

    async def thaws() -> None:
        await TrioClock().sleep(5)
        frozen_and_thawed(gates, clock)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(thaws)
        with clock.move_on_after(1):
            await trio.Event().wait()
        assert clock.now() - start == 5
