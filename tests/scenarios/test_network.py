"""Simulated connections behave as TCP does, faults included."""

import random
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from replication.errors import PeerUnavailableError
from replication.net.seams import Connection, Seams
from replication.wire.apis import ApiKey
from scenarios.world.streams import WINDOW_BYTES
from scenarios.world.trace import LateBytes, MessageTorn
from scenarios.world.world import StuckError, World
from storage.log.file_region import FileRegion
from storage.types import Buffer

Story = Callable[[World], Awaitable[None]]


def run(story: Story, seed: int = 1) -> World:
    world = World(seed)
    world.run(story)
    return world


async def connect(a: Seams, b: Seams, *, host: str = "b") -> tuple[Connection, Connection]:
    """Both ends of a connection that `a` makes to `b`."""
    listener = await b.transport.listen("0.0.0.0", 0)
    here = await a.transport.connect(host, listener.port)
    there = await listener.accept()
    listener.close()
    return here, there


async def receive(connection: Connection, size: int) -> bytes:
    room = memoryview(bytearray(size))
    filled = 0
    while filled < size and (count := await connection.receive_into(room[filled:])):
        filled += count
    return bytes(room[:filled])


async def receive_all(connection: Connection) -> bytes:
    return await receive(connection, 1 << 24)


def test_bytes_arrive_in_order_and_later() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        here, there = await connect(a, b)
        assert (here.peer.split(":")[0], there.peer.split(":")[0]) == ("b", "a")
        sent = random.Random(3).randbytes(WINDOW_BYTES * 5)
        async with trio.open_nursery() as nursery:
            buffers: list[Buffer] = [sent[:7], b"", memoryview(sent)[7:]]
            nursery.start_soon(here.send_buffers, buffers)
            before = a.clock.now()
            assert await receive(there, len(sent)) == sent
            assert a.clock.now() > before + 5 * world.network.least_delay
        here.close()
        assert await receive_all(there) == b""
        with pytest.raises(PeerUnavailableError, match="closed the connection"):
            await there.send_buffers([b"x"])

    world = run(story)
    assert world.trace.received_bytes == WINDOW_BYTES * 5


def test_a_sender_waits_for_room() -> None:
    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        done = trio.Event()

        async def send() -> None:
            await here.send_buffers([bytes(WINDOW_BYTES + 1)])
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await world.clock("a").sleep(100)
            assert not done.is_set()
            await receive(there, 1)
            await done.wait()
            assert len(await receive(there, WINDOW_BYTES)) == WINDOW_BYTES

    run(story)


def test_a_region_is_read_in_bounded_chunks() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        file = a.file_system.open("/log", create=True)
        content = random.Random(3).randbytes(1_000_000)
        file.write(0, content)
        here, there = await connect(a, b)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send_region, FileRegion(file, 1000, 900_000))
            assert await receive(there, 900_000) == content[1000:901_000]

    run(story)


def test_a_send_cancelled_in_the_middle_closes_the_connection() -> None:
    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.send_buffers, [bytes(WINDOW_BYTES * 2)])
            await world.clock("a").sleep(1)
            nursery.cancel_scope.cancel()
        with pytest.raises(PeerUnavailableError, match="was closed"):
            await here.send_buffers([b"next frame"])
        assert len(await receive_all(there)) == WINDOW_BYTES

    run(story)


def test_closing_wakes_the_tasks_that_wait() -> None:
    async def story(world: World) -> None:
        here, _ = await connect(world.node("a"), world.node("b"))

        async def expect_closed(wait: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(PeerUnavailableError, match="was closed"):
                await wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_closed, lambda: receive(here, 1))
            nursery.start_soon(expect_closed, lambda: here.send_buffers([bytes(1 << 20)]))
            await wait_all_tasks_blocked()
            here.close()

    run(story)


def test_a_port_without_a_listener_refuses_and_is_taken_once() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        with pytest.raises(PeerUnavailableError, match="b:9: connection refused"):
            await a.transport.connect("b", 9)
        with pytest.raises(PeerUnavailableError, match="cannot find nowhere"):
            await a.transport.connect("nowhere", 9)
        listener = await b.transport.listen("b", 9)
        with pytest.raises(OSError, match="in use"):
            await b.transport.listen("b", 9)
        await b.transport.connect("localhost", 9)
        listener.close()
        with pytest.raises(PeerUnavailableError, match="no longer listening"):
            await listener.accept()
        await b.transport.listen("b", 9)

    run(story)


def test_bytes_on_a_link_that_is_cut_arrive_when_it_heals() -> None:
    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        clock = world.clock("b")
        await here.send_buffers([b"before "])
        await clock.sleep(1)
        world.network.cut("a", "b")
        await here.send_buffers([b"meanwhile"])
        here.close()
        with clock.move_on_after(50) as scope:
            assert await receive(there, 7) == b"before "
            await receive(there, 1)
        assert scope.cancelled_caught, "a cut link says nothing, not even the end"
        world.network.heal("a", "b")
        assert await receive_all(there) == b"meanwhile"

    run(story)


def test_a_link_cut_one_way_still_carries_the_other() -> None:
    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        world.network.cut("a", "b", one_way=True)
        await here.send_buffers([b"lost for now"])
        await there.send_buffers([b"heard"])
        assert await receive(here, 5) == b"heard"
        with world.clock("b").move_on_after(50) as scope:
            await receive(there, 1)
        assert scope.cancelled_caught
        world.network.heal_all()
        assert await receive(there, 12) == b"lost for now"

    run(story)


def test_a_hold_affects_one_api_in_one_direction() -> None:
    def request(api: ApiKey) -> bytes:
        return bytes(4) + api.to_bytes(2, "big") + bytes(2)

    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        asks, answers = await connect(a, b)
        fetches, gives = await connect(a, b)
        for connection, api in ((asks, ApiKey.ALTER_PARTITION), (fetches, ApiKey.FETCH)):
            await connection.send_buffers([request(api)])
        assert await receive(answers, 8) == request(ApiKey.ALTER_PARTITION)
        world.network.hold("b", "a", ApiKey.ALTER_PARTITION)
        await answers.send_buffers([b"yes"])
        await gives.send_buffers([b"records"])
        assert await receive(fetches, 7) == b"records"
        await asks.send_buffers([request(ApiKey.ALTER_PARTITION)])
        assert await receive(answers, 8) == request(ApiKey.ALTER_PARTITION)
        with world.clock("a").move_on_after(50) as scope:
            await receive(asks, 1)
        assert scope.cancelled_caught
        world.network.heal_all()
        assert await receive(asks, 3) == b"yes"

    run(story)


def test_a_link_holds_up_what_is_said_after_so_many_messages() -> None:
    def framed(said: bytes) -> bytes:
        return len(said).to_bytes(4, "big") + said

    async def story(world: World) -> None:
        asks, answers = await connect(world.node("a"), world.node("b"))
        world.network.hold("b", "a", ApiKey.FETCH, after=2)
        asked = framed(ApiKey.FETCH.to_bytes(2, "big") + bytes(2))
        for said in (b"one", b"two", b"three"):
            await asks.send_buffers([asked])
            assert await receive(answers, len(asked)) == asked
            head, rest = framed(said)[:5], framed(said)[5:]
            await answers.send_buffers([head, rest])  # one message, however it is sent
            if said != b"three":
                assert await receive(asks, 4 + len(said)) == framed(said)
        with world.clock("a").move_on_after(50) as scope:
            await receive(asks, 1)
        assert scope.cancelled_caught
        world.network.heal("a", "b")
        assert await receive(asks, 9) == framed(b"three")

    run(story)


def test_connecting_over_a_cut_link_waits_until_it_heals() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        await b.transport.listen("b", 9)
        world.network.isolate("b")
        with a.clock.move_on_after(30) as scope:
            await a.transport.connect("b", 9)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.transport.connect, "b", 9)
            await a.clock.sleep(5)
            world.network.heal_all()
        assert a.clock.now() < 36

    run(story)


def test_a_message_breaks_off_in_its_middle_and_both_ends_know() -> None:
    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        again, answers = await connect(world.node("a"), world.node("b"))
        world.network.tear("a", "b")
        with pytest.raises(PeerUnavailableError, match="reset"):
            await here.send_buffers([b"some", b"message"])
        arrived = bytearray(4)
        count = await there.receive_into(memoryview(arrived))
        assert arrived[:count] == b"some"[:count]
        assert 0 < count < 4
        with pytest.raises(PeerUnavailableError, match="reset"):
            await receive(there, 1)
        await again.send_buffers([b"whole"])
        assert await receive(answers, 5) == b"whole", "it was the one message"
        assert MessageTorn(source="a", target="b") in [each.event for each in world.trace.entries]

    run(story)


def test_the_next_message_about_one_thing_breaks_off_and_others_do_not() -> None:
    def asking_for(api: ApiKey) -> bytes:
        return b"\x00\x00\x00\x04" + int(api).to_bytes(2, "big") + b"\x00\x01"

    async def story(world: World) -> None:
        here, there = await connect(world.node("a"), world.node("b"))
        other, others_there = await connect(world.node("a"), world.node("b"))
        world.network.tear("b", "a", ApiKey.FETCH)
        for each, at, api in (
            (other, others_there, ApiKey.PRODUCE),
            (here, there, ApiKey.FETCH),
        ):
            await each.send_buffers([asking_for(api)])
            assert await receive(at, 8)
        await others_there.send_buffers([b"whole"])
        assert await receive(other, 5) == b"whole"
        with pytest.raises(PeerUnavailableError, match="reset"):
            await there.send_buffers([b"never whole"])
        world.network.heal_all()
        await other.send_buffers([asking_for(ApiKey.FETCH)])
        await receive(others_there, 8)
        await others_there.send_buffers([b"again"])
        assert await receive(other, 5) == b"again", "it was the one message"

    run(story)


def test_late_bytes_of_an_old_connection_arrive_after_a_new_one_is_made() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        listener = await b.transport.listen("b", 9)
        old = await a.transport.connect("b", 9)
        old_there = await listener.accept()
        world.network.set_delay("a", "b", least=10.0, one_way=True)
        await old.send_buffers([b"late"])
        old.close()
        world.network.set_delay("a", "b", least=0.001)
        new = await a.transport.connect("b", 9)
        new_there = await listener.accept()
        await new.send_buffers([b"early"])
        assert await receive(new_there, 5) == b"early"
        assert a.clock.now() < 1
        assert await receive_all(old_there) == b"late"
        assert a.clock.now() > 10
        assert world.trace.entries[-1].event == LateBytes(source="a", target="b")

    run(story)


def test_a_power_cut_says_no_goodbye_and_a_restart_resets_who_sends() -> None:
    async def story(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        idle, _ = await connect(a, b)
        busy, _ = await connect(a, b)
        world.crash_disk("b")
        await busy.send_buffers([b"anyone?"])
        with a.clock.move_on_after(100) as scope:
            await receive(idle, 1)
        assert scope.cancelled_caught, "half a connection: silence"
        world.node("b")
        with pytest.raises(PeerUnavailableError, match="reset"):
            await receive(busy, 1)
        with a.clock.move_on_after(100) as scope:
            await receive(idle, 1)
        assert scope.cancelled_caught, "a client that sends nothing receives nothing"
        await idle.send_buffers([b"hello?"])
        with pytest.raises(PeerUnavailableError, match="reset"):
            await receive(idle, 1)

    run(story)


def test_a_run_in_which_nothing_can_happen_is_stuck() -> None:
    async def story(_world: World) -> None:
        await trio.sleep_forever()

    with pytest.raises(StuckError, match="3600 virtual seconds; seed 1"):
        run(story)
