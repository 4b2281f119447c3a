"""Frames: what is announced costs nothing until it comes, and nothing is lost between them."""

import struct
import tracemalloc
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.framing import (
    DEFAULT_MAX_FRAME_BYTES,
    KEPT_BYTES,
    LAZY_BYTES,
    LENGTH_SIZE,
    READ_AHEAD_BYTES,
    FrameReader,
    FrameTooLargeError,
    send_parts,
)
from storage.filesystem import OsFileSystem
from storage.log.file_region import FileRegion
from storage.types import Buffer


@attrs.define
class ScriptedConnection:
    """Gives out what it was given, at most `at_once` bytes a time, and keeps what is sent."""

    incoming: deque[bytes]
    at_once: int = 1 << 30
    peer: str = "b1:9092"
    gathers_up_to: int = 0
    sent: list[bytes] = attrs.field(factory=list)
    calls: int = 0
    moved: int = 0

    async def receive_into(self, buffer: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        self.calls += 1
        if not self.incoming:
            return 0
        first = self.incoming.popleft()
        size = min(len(buffer), len(first), self.at_once)
        buffer[:size] = first[:size]
        if size < len(first):
            self.incoming.appendleft(first[size:])
        return size

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(b"|".join(map(bytes, buffers)))

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return buffers

    async def send_region(self, region: FileRegion) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(b"region " + region.read())

    def close(self) -> None:
        self.incoming.clear()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the kernel does not report it (macOS)."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


@pytest.mark.parametrize("at_once", [1, 3, 1 << 30])
async def test_frames_come_one_by_one_however_the_bytes_come(at_once: int) -> None:
    bodies = [b"first", b"", b"x" * 1000, b"last"]
    reader = FrameReader(ScriptedConnection(deque([b"".join(map(framed, bodies))]), at_once))
    received = []
    while (frame := await reader.receive_frame()) is not None:
        received.append(bytes(frame))
    assert received == bodies


@pytest.mark.parametrize("size", [0, 1, READ_AHEAD_BYTES, READ_AHEAD_BYTES + 1])
async def test_a_small_frame_takes_one_call_and_a_large_one_two(size: int) -> None:
    connection = ScriptedConnection(deque([framed(bytes(size))]))
    reader = FrameReader(connection)
    assert bytes(await reader.receive_frame() or b"") == bytes(size)
    assert connection.calls == 1 + (LENGTH_SIZE + size > READ_AHEAD_BYTES)


async def test_the_end_between_frames_is_no_error_and_inside_one_is() -> None:
    assert await FrameReader(ScriptedConnection(deque())).receive_frame() is None
    for cut in (2, 5):
        reader = FrameReader(ScriptedConnection(deque([framed(b"abc")[:cut]])))
        with pytest.raises(PeerUnavailableError, match="b1:9092 closed the connection"):
            await reader.receive_frame()


@pytest.mark.parametrize("size", [101, 2**31 - 1])
async def test_a_length_over_the_limit_is_refused_before_its_bytes(size: int) -> None:
    reader = FrameReader(ScriptedConnection(deque([struct.pack(">i", size)])), 100)
    with pytest.raises(FrameTooLargeError, match=f"{size} bytes; the limit is 100"):
        await reader.receive_frame()


async def test_a_negative_length_is_not_the_protocol() -> None:
    reader = FrameReader(ScriptedConnection(deque([struct.pack(">i", -1)])))
    with pytest.raises(ProtocolError, match="-1 bytes"):
        await reader.receive_frame()


async def test_an_announced_frame_costs_nothing_until_its_bytes_come() -> None:
    announced = struct.pack(">i", DEFAULT_MAX_FRAME_BYTES) + b"ten bytes!"
    readers = [FrameReader(ScriptedConnection(deque([announced]))) for _ in range(10)]
    errors: list[PeerUnavailableError] = []
    resident = resident_bytes()
    tracemalloc.start()
    try:
        for reader in readers:
            try:
                await reader.receive_frame()
            except PeerUnavailableError as error:
                errors.append(error)  # its traceback keeps the frame alive
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(errors) == len(readers)
    assert "after 10 of 104857600 bytes" in str(errors[0])
    assert peak < 1_000_000
    assert resident_bytes() - resident < 20_000_000, "a thousand megabytes were announced"


async def test_a_reused_buffer_is_kept_up_to_a_size_and_a_larger_frame_is_not() -> None:
    size = KEPT_BYTES + 1
    lengths = [struct.pack(">i", 10) + b"x" * 10, struct.pack(">i", size), bytes(size)]
    reader = FrameReader(ScriptedConnection(deque(lengths)), reuse_buffer=True)
    small = await reader.receive_frame()
    large = await reader.receive_frame()
    assert small is not None
    assert large is not None
    assert bytes(small) == b"x" * 10, "its buffer is still the one that is kept"
    assert len(large) == size


async def test_a_frame_is_the_receivers_to_keep_and_to_write() -> None:
    big = b"b" * (LAZY_BYTES + 1)
    reader = FrameReader(ScriptedConnection(deque([framed(b"aa") + framed(big) + framed(b"cc")])))
    frames = [await reader.receive_frame() for _ in range(3)]
    assert [bytes(frame or b"") for frame in frames] == [b"aa", big, b"cc"]
    for frame in frames:
        assert frame is not None
        frame[0] = 0


async def test_a_reused_buffer_holds_one_frame_at_a_time() -> None:
    big = b"b" * (LAZY_BYTES * 2)
    bodies = (b"", b"aa", big, b"c")
    connection = ScriptedConnection(deque([b"".join(map(framed, bodies))]))
    reader = FrameReader(connection, reuse_buffer=True)
    for body in bodies:
        assert bytes(await reader.receive_frame() or b"") == body


async def test_parts_go_out_in_order_and_unjoined(tmp_path: Path) -> None:
    OsFileSystem().open(str(tmp_path / "log"), create=True).write(0, b"0123456789")
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    connection = ScriptedConnection(deque())
    region = FileRegion(file, 2, 3)
    await send_parts(connection, [b"a", b"b", region, memoryview(b"c"), region, region])
    assert connection.sent == [b"a|b", b"region 234", b"c", b"region 234", b"region 234"]
    file.close()


async def test_small_regions_go_with_the_buffers_around_them(tmp_path: Path) -> None:
    OsFileSystem().open(str(tmp_path / "log"), create=True).write(0, b"0123456789")
    file = OsFileSystem().open_for_reading(str(tmp_path / "log"))
    connection = ScriptedConnection(deque(), gathers_up_to=7)
    small, large = FileRegion(file, 2, 3), FileRegion(file, 0, 8)
    await send_parts(connection, [b"a", small, b"b", small, small, b"c", small, large, small])
    assert connection.sent == [
        *(b"a|234|b|234", b"region 234"),  # no more than seven bytes at once
        *(b"c|234", b"region 01234567"),
        b"234",
    ]
    cut_away = FileRegion(file, 8, 3)
    with pytest.raises(PeerUnavailableError, match="ends at 10"):
        await send_parts(connection, [cut_away])
    file.close()
