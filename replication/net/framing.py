"""Frames: four bytes of length, then that many bytes.

    00 00 00 21 | 33 bytes: header and body of one request or response

Rule 1: what a peer announces costs nothing until it sends it. A length over the limit is
refused before a byte is allocated; a frame above `LAZY_BYTES` is received into an
anonymous mapping whose pages the kernel commits one by one as bytes are written to them.

Rule 2: bytes go from the socket straight to where the frame will be read, except for the first
`READ_AHEAD_BYTES`, which come with the length: a small frame is one call. Messages are
decoded into slices of that buffer, and records are written to their file from it.

Rule 3: the receiver may keep a frame, unless it set `reuse_buffer`: then the frame is valid until
the next one is received. Fetchers set it, for they have appended by then, and faulting in fresh
pages for every megabyte costs more than the copy it avoids. A buffer above `KEPT_BYTES` is freed
all the same: the connection may stay open for long. A frame that came with its length as a whole
stays where it is.
"""

import mmap
import struct
from collections.abc import Sequence

import attrs

from replication.errors import BrokenOffError, ProtocolError
from replication.net.regions import region_bytes
from replication.net.seams import Connection
from replication.wire.schema import Part
from storage.attributes import define
from storage.log.file_region import FileRegion
from storage.types import Buffer

_LENGTH = struct.Struct(">i")
LENGTH_SIZE = _LENGTH.size
LAZY_BYTES = 64 * 1024
READ_AHEAD_BYTES = 1024
KEPT_BYTES = 16 * 1024 * 1024
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024  # socket.request.max.bytes
_BUFFERS = (bytes, bytearray, memoryview)


class FrameTooLargeError(ProtocolError):
    """A peer announced more bytes than this connection takes."""


@define
class FrameReader:
    """The frames that one connection brings, in order."""

    connection: Connection
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    reuse_buffer: bool = attrs.field(default=False, kw_only=True)
    _kept: memoryview = attrs.field(init=False, factory=lambda: memoryview(b""))
    _ahead: memoryview = attrs.field(
        init=False, factory=lambda: memoryview(bytearray(READ_AHEAD_BYTES))
    )
    _begin: int = attrs.field(init=False, default=0)
    """From here to `_end`, the bytes in that room belong to no frame yet."""
    _end: int = attrs.field(init=False, default=0)

    @property
    def has_more(self) -> bool:
        """Whether the beginning of the next frame has come with the last one."""
        return self._begin < self._end

    async def receive_frame(self) -> memoryview | None:
        """Return the next frame without its length, writable; None if the peer has closed.

        After a cancellation the stream may be inside a frame: close the connection.
        """
        while self._end - self._begin < LENGTH_SIZE:
            begin, end = self._begin, self._end
            self._ahead[: end - begin] = self._ahead[begin:end]
            self._begin, self._end = 0, end - begin
            count = await self.connection.receive_into(self._ahead[self._end :])
            if count == 0:
                if self._end == 0:
                    return None
                raise self._cut_short("inside a frame's length")
            self._end += count
        (size,) = _LENGTH.unpack_from(self._ahead, self._begin)
        if not 0 <= size <= self.max_frame_bytes:
            raise self._refused(size)
        begin = self._begin + LENGTH_SIZE
        end = begin + size
        if end > self._end or not self.reuse_buffer:
            return await self._moved(begin, size)
        self._begin = end
        return self._ahead[begin:end]

    async def _moved(self, begin: int, size: int) -> memoryview:
        """Return the frame that begins there, and that has not come as a whole or will be kept."""
        frame = self._room_for(size)
        self._begin = min(begin + size, self._end)
        filled = self._begin - begin
        frame[:filled] = self._ahead[begin : self._begin]
        while filled < size:
            count = await self.connection.receive_into(frame[filled:])
            if count == 0:
                raise self._cut_short(f"after {filled} of {size} bytes")
            filled += count
        return frame

    def _room_for(self, size: int) -> memoryview:
        if not self.reuse_buffer or size > KEPT_BYTES:
            return _allocate(size)
        if len(self._kept) < size:
            self._kept = _allocate(max(size, LAZY_BYTES))
        return self._kept[:size]

    def _refused(self, size: int) -> ProtocolError:
        announced = f"{self.connection.peer} announced a frame of {size} bytes"
        if size < 0:
            return ProtocolError(announced)
        return FrameTooLargeError(f"{announced}; the limit is {self.max_frame_bytes}")

    def _cut_short(self, where: str) -> BrokenOffError:
        return BrokenOffError(f"{self.connection.peer} closed the connection {where}")


def _allocate(size: int) -> memoryview:
    if size <= LAZY_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


async def send_parts(connection: Connection, parts: Sequence[Part]) -> None:
    """Send `parts` in order: runs of buffers gathered, file regions from their files.

    Small regions go among the buffers, as far as the connection gathers them.
    """
    if FileRegion not in map(type, parts):
        await connection.send_buffers(parts)  # type: ignore[arg-type] # no region is among them
        return
    while parts:
        run = _gathered(connection, parts)
        if run:
            await connection.send_buffers(run)
        for region in parts[len(run) : len(run) + 1]:
            assert isinstance(region, FileRegion), "bytes are in memory or in a file"
            await connection.send_region(region)
        parts = parts[len(run) + 1 :]


def send_parts_at_once(connection: Connection, parts: Sequence[Part]) -> Sequence[Part]:
    """Send what needs no wait of `parts`, and return the rest, which begins where that ended."""
    if FileRegion not in map(type, parts):
        return connection.send_at_once(parts)  # type: ignore[arg-type] # no region is among them
    run = _gathered(connection, parts)
    return parts if len(run) < len(parts) else connection.send_at_once(run)


def _gathered(connection: Connection, parts: Sequence[Part]) -> list[Buffer]:
    """Return the first of `parts` as buffers, up to a region that the connection does not gather."""
    run: list[Buffer] = []
    room = connection.gathers_up_to
    for part in parts:
        if isinstance(part, _BUFFERS):
            run.append(part)
            continue
        assert isinstance(part, FileRegion), "bytes are in memory or in a file"
        if part.size > room:
            break
        run.append(region_bytes(part))
        room -= part.size
    return run
