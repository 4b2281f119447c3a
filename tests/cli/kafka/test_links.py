"""The relays between processes: over sockets, with a server that repeats what it is sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from replication.cli.kafka.links import Links
from replication.errors import PeerUnavailableError, ProtocolError
from replication.net import production_seams
from replication.net.framing import LENGTH_SIZE, FrameReader
from replication.net.seams import Connection
from replication.wire.apis import ApiKey


@attrs.define(eq=False)
class Echo:
    """The requests that `b1` was sent by `client`, which it repeats, without the API."""

    links: Links
    heard: list[int] = attrs.field(factory=list)
    opened: list[Connection] = attrs.field(factory=list)

    async def serve(self, connection: Connection) -> None:
        reader = FrameReader(connection)
        self.opened.append(connection)
        try:
            while (frame := await reader.receive_frame()) is not None:
                number = int.from_bytes(frame[4:8], "big")
                self.heard.append(number)
                await send(connection, number.to_bytes(4, "big") * 8)
        except PeerUnavailableError:
            connection.close()

    async def connect(self, name: str = "b1") -> "Asking":
        links = self.links
        address, port = links.address("client", name), links.ports[name]
        self.opened.append(await links.seams.transport.connect(address, port))
        return Asking(self.opened[-1])


@attrs.define(eq=False)
class Asking:
    """A client's connection to the relay."""

    connection: Connection
    reader: FrameReader = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reader = FrameReader(self.connection)

    async def ask(self, api: ApiKey, number: int) -> None:
        await send(self.connection, api.to_bytes(2, "big") + bytes(2) + number.to_bytes(4, "big"))

    async def answer(self) -> int:
        frame = await self.reader.receive_frame()
        assert frame is not None, "the relay has closed the connection"
        return int.from_bytes(frame[:4], "big")


async def send(connection: Connection, message: bytes) -> None:
    await connection.send_buffers([len(message).to_bytes(LENGTH_SIZE, "big"), message])


@asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    seams = production_seams()
    listener, gone = [await seams.transport.listen("127.0.0.1", 0) for _ in range(2)]
    gone.close()
    async with trio.open_nursery() as nursery:
        links = Links(seams, nursery, {"b1": listener.port, "b2": gone.port})
        await links.open("client")
        served = Echo(links)

        async def accept() -> None:
            while True:
                nursery.start_soon(served.serve, await listener.accept())

        nursery.start_soon(accept)
        yield served
        nursery.cancel_scope.cancel()
    listener.close()
    for each in served.opened:
        each.close()


async def test_messages_pass_in_order() -> None:
    async with echo() as b1:
        asking = await b1.connect()
        for number in range(3):
            await asking.ask(ApiKey.FETCH, number)
        assert [await asking.answer() for _ in range(3)] == [0, 1, 2]


async def test_a_cut_holds_requests_until_it_heals() -> None:
    async with echo() as b1:
        asking = await b1.connect()
        await asking.ask(ApiKey.FETCH, 1)
        await asking.answer()
        b1.links.cut("client", "b1")
        await asking.ask(ApiKey.FETCH, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert b1.heard == [1]
        b1.links.heal_all()
        assert await asking.answer() == 2


async def test_what_is_sent_to_a_frozen_process_is_cut_off_as_well() -> None:
    async with echo() as b1:
        asking = await b1.connect()
        b1.links.freeze("b1")
        await asking.ask(ApiKey.FETCH, 1)
        b1.links.cut("client", "b1")
        b1.links.thaw("b1")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert b1.heard == []
        b1.links.heal("client", "b1")
        assert await asking.answer() == 1


async def test_one_way_only_responses_are_held() -> None:
    async with echo() as b1:
        asking = await b1.connect()
        b1.links.cut("b1", "client", one_way=True)
        await asking.ask(ApiKey.FETCH, 1)
        while b1.heard != [1]:
            await trio.lowlevel.checkpoint()
        b1.links.heal("b1", "client", one_way=True)
        assert await asking.answer() == 1


async def test_a_hold_concerns_connections_of_its_api_after_some_messages() -> None:
    async with echo() as b1:
        fetching, producing = await b1.connect(), await b1.connect()
        b1.links.hold("client", "b1", ApiKey.FETCH, after=1)
        await fetching.ask(ApiKey.FETCH, 1)
        assert await fetching.answer() == 1
        await fetching.ask(ApiKey.FETCH, 2)
        await producing.ask(ApiKey.PRODUCE, 3)
        assert await producing.answer() == 3
        assert 2 not in b1.heard
        b1.links.heal("client", "b1")
        assert await fetching.answer() == 2


async def test_a_torn_response_ends_its_connection_in_its_middle() -> None:
    async with echo() as b1:
        asking, other = await b1.connect(), await b1.connect()
        b1.links.tear("b1", "client", ApiKey.PRODUCE)
        await other.ask(ApiKey.FETCH, 1)
        assert await other.answer() == 1
        await asking.ask(ApiKey.PRODUCE, 2)
        with pytest.raises((PeerUnavailableError, ProtocolError)):
            await asking.answer()
        assert b1.heard == [1, 2]
        again = await b1.connect()
        await again.ask(ApiKey.PRODUCE, 3)
        assert await again.answer() == 3


async def test_a_process_that_is_down_closes_the_connection() -> None:
    async with echo() as b1:
        asking = await b1.connect("b2")
        assert await asking.reader.receive_frame() is None
