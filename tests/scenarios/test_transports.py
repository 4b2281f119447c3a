"""Sockets and memory carry the same bytes, and break in the same way."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from replication.errors import PeerUnavailableError
from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection, Transport
from replication.net.tcp import TcpTransport
from replication.net.tls import TlsConnection, TlsTransport, client_context, server_context
from replication.wire.schema import Part
from scenarios.world.world import World
from storage.filesystem import File, OsFileSystem
from storage.log.file_region import FileRegion
from tests.replication.net.certificates import broker_keys

CONTENT = random.Random(5).randbytes(2_000_000)

Story = Callable[[Transport, str, File], Awaitable[None]]
Carry = Callable[[Story], None]


def in_tls(transport: Transport) -> Transport:
    return TlsTransport(transport, client_context(broker_keys()), server_context(broker_keys()))


@pytest.fixture(
    params=[
        *("sockets", "sockets with short writes", "memory"),
        *("TLS", "TLS with short writes", "TLS in memory"),
    ]
)
def carry(request: pytest.FixtureRequest, tmp_path: Path) -> Carry:
    """Runs a story over one kind of transport, with a file that holds CONTENT."""

    def over_sockets(story: Story) -> None:
        short = request.param.endswith("short writes")
        file = OsFileSystem().open(str(tmp_path / "log"), create=True)
        file.write(0, CONTENT)
        transport = TcpTransport(send_buffer_bytes=4096 if short else None)
        trio.run(story, in_tls(transport) if tls else transport, "127.0.0.1", file)
        file.close()

    def over_memory(story: Story) -> None:
        async def in_world(world: World) -> None:
            seams = world.node("127.0.0.1")
            file = seams.file_system.open("/log", create=True)
            file.write(0, CONTENT)
            transport = in_tls(seams.transport) if tls else seams.transport
            await story(transport, "127.0.0.1", file)

        World(1).run(in_world)

    tls = "TLS" in request.param
    return over_memory if request.param.endswith("memory") else over_sockets


async def connected(transport: Transport, host: str) -> tuple[Connection, Connection]:
    """Who connected, who accepted; under TLS both have shaken hands."""
    listener = await transport.listen(host, 0)
    accepted: list[Connection] = []

    async def accept() -> None:
        accepted.append(await listener.accept())
        if isinstance(accepted[0], TlsConnection):
            await accepted[0].shake_hands()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        here = await transport.connect(host, listener.port)
    listener.close()
    return here, accepted[0]


def frames(file: File) -> list[list[Part]]:
    """Frames of buffers and regions, from nothing to more than a socket holds."""
    return [
        [b"one small buffer"],
        [],
        [b"before ", FileRegion(file, 10, 100), b" after", memoryview(CONTENT)[:5]],
        [FileRegion(file, 0, 1), FileRegion(file, 1, 1), FileRegion(file, 1_999_999, 1)],
        [bytes([i % 256]) * (i % 50) for i in range(3000)],
        [b"", FileRegion(file, 123, 1_500_000), b"x" * 300_000],
    ]


def content(parts: list[Part]) -> bytes:
    return b"".join(
        part.read() if isinstance(part, FileRegion) else bytes(part)  # type: ignore[arg-type]
        for part in parts
    )


def test_every_frame_arrives_as_it_was_sent(carry: Carry) -> None:
    async def story(transport: Transport, host: str, file: File) -> None:
        here, there = await connected(transport, host)
        reader = FrameReader(there)

        async def send() -> None:
            for parts in frames(file):
                length = len(content(parts)).to_bytes(4, "big")
                await send_parts(here, [length, *parts])
            here.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            for parts in frames(file):
                assert bytes(await reader.receive_frame() or b"") == content(parts)
            assert await reader.receive_frame() is None
        reader.connection.close()

    carry(story)


def test_cancelled_inside_a_frame_the_peer_sees_it_cut_short_and_no_other(carry: Carry) -> None:
    async def story(transport: Transport, host: str, file: File) -> None:
        here, there = await connected(transport, host)
        reader = FrameReader(there)
        size = 40 * len(CONTENT)
        region = FileRegion(file, 0, len(CONTENT))
        parts: list[Part] = [size.to_bytes(4, "big"), *[region] * 40]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_parts, here, parts)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        with pytest.raises(PeerUnavailableError):
            await send_parts(here, [b"\0\0\0\1x"])
        with pytest.raises(PeerUnavailableError, match=f"of {size} bytes"):
            await reader.receive_frame()
        reader.connection.close()

    carry(story)
