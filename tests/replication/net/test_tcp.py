"""TCP over loopback: bytes arrive whole and in order, and files keep their descriptors."""

import hashlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from pathlib import Path

import pytest
import trio

from replication.errors import PeerUnavailableError, TooManyConnectionsError
from replication.net.ports import NEVER_GIVEN
from replication.net.seams import Connection
from replication.net.tcp import (
    IOV_MAX,
    TcpConnection,
    TcpListener,
    TcpTransport,
    left_for_connections,
)
from storage.filesystem import OsFileSystem
from storage.log.file_region import FileRegion
from storage.log.open_segments import DEFAULT_LIMIT, limit_within
from storage.types import Buffer

TINY = TcpTransport(send_buffer_bytes=4096)
ROOMY = TcpTransport()


@asynccontextmanager
async def connected(transport: TcpTransport) -> AsyncIterator[tuple[Connection, Connection]]:
    """Both ends of one loopback connection: who connected, who accepted."""
    listener = await transport.listen("127.0.0.1", 0)
    here = await transport.connect("127.0.0.1", listener.port)
    there = await listener.accept()
    listener.close()
    try:
        yield here, there
    finally:
        here.close()
        there.close()


async def receive_all(connection: Connection) -> bytes:
    """Return all bytes until the end."""
    received = bytearray()
    room = memoryview(bytearray(64 * 1024))
    while count := await connection.receive_into(room):
        received += room[:count]
    return bytes(received)


async def test_the_port_of_a_server_that_is_down_is_not_given_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the kernel's can be; the next test's server had it, and its clients met both."""
    with ExitStack() as held:
        listeners = [held.enter_context(await listening_anywhere()) for _ in range(50)]
        assert {each.port for each in listeners} <= set(NEVER_GIVEN)
        taken = listeners[0].port
        monkeypatch.setattr("replication.net.ports.NEVER_GIVEN", range(taken, taken + 1))
        assert held.enter_context(await listening_anywhere()).port not in NEVER_GIVEN


async def listening_anywhere() -> AbstractContextManager[TcpListener]:
    return closing(await ROOMY.listen("127.0.0.1", 0))


@pytest.mark.parametrize("transport", [TINY, ROOMY], ids=["short writes", "roomy"])
async def test_buffers_arrive_whole_and_in_order(transport: TcpTransport) -> None:
    buffers: list[Buffer] = [os.urandom(size % 700) for size in range(3 * IOV_MAX)]
    buffers += [b"", bytearray(os.urandom(300_000)), memoryview(os.urandom(5))[1:4]]
    async with connected(transport) as (here, there), trio.open_nursery() as nursery:

        async def send() -> None:
            await here.send_buffers(buffers)
            here.close()

        nursery.start_soon(send)
        received = await receive_all(there)
    assert received == b"".join(buffers)


@pytest.mark.parametrize("transport", [TINY, ROOMY], ids=["short writes", "roomy"])
async def test_a_region_goes_from_its_file_to_the_wire(
    transport: TcpTransport, tmp_path: Path
) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(content)
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    async with connected(transport) as (here, there), trio.open_nursery() as nursery:

        async def send() -> None:
            await here.send_region(FileRegion(file, 1000, 2_500_000))
            here.close()

        nursery.start_soon(send)
        received = await receive_all(there)
    file.close()
    assert hashlib.sha256(received).digest() == hashlib.sha256(content[1000:2_501_000]).digest()


async def test_a_file_that_ends_inside_a_region_closes_the_connection(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 100)
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    async with connected(ROOMY) as (here, there):
        with pytest.raises(PeerUnavailableError, match="ends at 100"):
            await here.send_region(FileRegion(file, 50, 51))
        assert await receive_all(there) == b"x" * 50
        with pytest.raises(PeerUnavailableError):
            await here.send_buffers([b"more"])
    file.close()


async def test_a_file_closed_under_a_region_closes_the_connection(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 10_000_000)
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    async with connected(TINY) as (here, there), trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(PeerUnavailableError, match="cannot be read"):
                await here.send_region(FileRegion(file, 0, 10_000_000))

        nursery.start_soon(send)
        await there.receive_into(memoryview(bytearray(10)))
        file.close()
        rest = await receive_all(there)
    assert len(rest) < 10_000_000 - 10


@pytest.mark.parametrize("what", ["buffers", "region"])
async def test_a_send_cancelled_in_the_middle_closes_the_connection(
    what: str, tmp_path: Path
) -> None:
    size = 8_000_000
    (tmp_path / "log").write_bytes(bytes(size))
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    async with connected(TINY) as (here, there):
        async with trio.open_nursery() as nursery:
            if what == "buffers":
                nursery.start_soon(here.send_buffers, [bytes(size)])
            else:
                nursery.start_soon(here.send_region, FileRegion(file, 0, size))
            await there.receive_into(memoryview(bytearray(1)))
            nursery.cancel_scope.cancel()
        assert 0 < len(await receive_all(there)) + 1 < size
        with pytest.raises(PeerUnavailableError, match="was closed"):
            await here.send_buffers([b"next frame"])
    file.close()


async def test_closing_wakes_the_tasks_that_wait() -> None:
    async with connected(TINY) as (here, there), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(PeerUnavailableError, match="was closed"):
                await here.receive_into(memoryview(bytearray(1)))

        async def send() -> None:
            with pytest.raises(PeerUnavailableError, match="was closed"):
                await here.send_buffers([bytes(50_000_000)])

        nursery.start_soon(receive)
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        here.close()
        here.close()
    assert there.peer.startswith("127.0.0.1:")


async def test_every_other_read_of_a_peer_that_never_stops_lets_other_tasks_run() -> None:
    turns, reads = 0, 64

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with connected(ROOMY) as (here, there), trio.open_nursery() as nursery:
        await here.send_buffers([bytes(reads * 1024)])
        nursery.start_soon(count_turns)
        for _ in range(reads):
            assert await there.receive_into(memoryview(bytearray(1024))) == 1024
        nursery.cancel_scope.cancel()
    assert reads // 3 <= turns < reads, "what has come already is read at once"


async def test_two_tasks_cannot_interleave_their_frames() -> None:
    async with connected(TINY) as (here, _), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_buffers, [bytes(50_000_000)])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AssertionError, match="two tasks"):
            await here.send_buffers([b"a second frame"])
        nursery.cancel_scope.cancel()


async def test_a_port_without_a_listener_is_a_peer_unavailable() -> None:
    listener = await ROOMY.listen("127.0.0.1", 0)
    listener.close()
    with pytest.raises(PeerUnavailableError, match=f"127.0.0.1:{listener.port}: .*refused"):
        await ROOMY.connect("127.0.0.1", listener.port)


async def test_an_invalid_host_name_is_a_peer_unavailable() -> None:
    for host in ("a" * 80 + ".org", "x..y"):
        with pytest.raises(PeerUnavailableError, match="cannot find"):
            await ROOMY.connect(host, 9092)


async def test_a_taken_port_is_an_os_error() -> None:
    listener = await ROOMY.listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await ROOMY.listen("127.0.0.1", listener.port)
    listener.close()


async def test_closing_a_listener_ends_accept() -> None:
    listener = await ROOMY.listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            with pytest.raises(PeerUnavailableError, match="no longer listening"):
                await listener.accept()

        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked()
        listener.close()


LIMIT = 256


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 2500, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("listeners", [1, 4, 50])
def test_files_have_the_descriptors_they_need_or_half_of_all(
    descriptors: int, listeners: int
) -> None:
    left = left_for_connections(descriptors, listeners)
    assert descriptors // 2 <= left < descriptors
    needed = listeners * 4 * limit_within(descriptors)
    assert descriptors - left >= min(needed, descriptors // 2)


def test_a_node_opens_fewer_segments_where_there_are_few_descriptors() -> None:
    assert limit_within(None) == limit_within(1 << 20) == DEFAULT_LIMIT
    assert [limit_within(each) for each in (64, 256, 1024, 4096)] == [8, 8, 32, 128]


@contextmanager
def few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_connection_is_closed_while_files_can_still_be_opened() -> None:
    listener = await TcpTransport().listen("127.0.0.1", 0)
    address = ("127.0.0.1", listener.port)
    held: list[trio.SocketStream | TcpConnection] = []

    async def connect() -> TcpConnection:
        held.append(await trio.open_tcp_stream(*address))
        held.append(await listener.accept())
        found = held[-1]
        assert isinstance(found, TcpConnection)
        return found

    async def connect_as_many_as_there_are() -> None:
        while True:
            await connect()

    with few_descriptors():
        with pytest.raises(TooManyConnectionsError):
            await connect_as_many_as_there_are()
        assert len(held) > LIMIT // 8
        os.close(os.open(os.devnull, os.O_RDONLY))
        for each in held:
            await each.aclose() if isinstance(each, trio.SocketStream) else each.close()
        (await connect()).close()
    listener.close()
    listener.close()
    with pytest.raises(PeerUnavailableError):
        await listener.accept()
    assert isinstance(held[-2], trio.SocketStream)
    await held[-2].aclose()
