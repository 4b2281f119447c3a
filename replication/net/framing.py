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
all the same: the connection may stay open for long.
"""

import mmap
from collections.abc import Sequence

import attrs

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.regions import region_bytes
from replication.net.seams import Connection
from replication.wire.schema import Part
from storage.log.file_region import FileRegion
from storage.types import Buffer

LENGTH_SIZE = 4
LAZY_BYTES = 64 * 1024
READ_AHEAD_BYTES = 1024
KEPT_BYTES = 16 * 1024 * 1024
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024  # socket.request.max.bytes


class FrameTooLargeError(ProtocolError):
    """A peer announced more bytes than this connection takes."""


@attrs.define
class FrameReader:
    """The frames that one connection brings, in order."""

    connection: Connection
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    reuse_buffer: bool = attrs.field(default=False, kw_only=True)
    _kept: memoryview = attrs.field(init=False, factory=lambda: memoryview(b""))
    _room_ahead: memoryview = attrs.field(
        init=False, factory=lambda: memoryview(bytearray(READ_AHEAD_BYTES))
    )
    _ahead: memoryview = attrs.field(init=False, factory=lambda: memoryview(b""))
    """The received bytes in that room that belong to no frame yet."""

    async def receive_frame(self) -> memoryview | None:
        """Return the next frame without its length, writable; None if the peer has closed.

        After a cancellation the stream may be inside a frame: close the connection.
        """
        size = await self._receive_length()
        if size is None:
            return None
        frame = self._room_for(size)
        filled = min(size, len(self._ahead))
        if filled:
            frame[:filled] = self._ahead[:filled]
            self._ahead = self._ahead[filled:]
        while filled < size:
            count = await self.connection.receive_into(frame[filled:])
            if count == 0:
                raise self._cut_short(f"after {filled} of {size} bytes")
            filled += count
        return frame

    async def _receive_length(self) -> int | None:
        while len(self._ahead) < LENGTH_SIZE:
            held = len(self._ahead)
            self._room_ahead[:held] = self._ahead
            count = await self.connection.receive_into(self._room_ahead[held:])
            self._ahead = self._room_ahead[: held + count]
            if count == 0:
                if held == 0:
                    return None
                raise self._cut_short("inside a frame's length")
        size = int.from_bytes(self._ahead[:LENGTH_SIZE], "big", signed=True)
        self._ahead = self._ahead[LENGTH_SIZE:]
        if size < 0:
            raise ProtocolError(f"{self.connection.peer} announced a frame of {size} bytes")
        if size > self.max_frame_bytes:
            raise FrameTooLargeError(
                f"{self.connection.peer} announced a frame of {size} bytes;"
                f" the limit is {self.max_frame_bytes}"
            )
        return size

    def _room_for(self, size: int) -> memoryview:
        if not self.reuse_buffer or size > KEPT_BYTES:
            return _allocate(size)
        if len(self._kept) < size:
            self._kept = _allocate(max(size, LAZY_BYTES))
        return self._kept[:size]

    def _cut_short(self, where: str) -> PeerUnavailableError:
        return PeerUnavailableError(f"{self.connection.peer} closed the connection {where}")


def _allocate(size: int) -> memoryview:
    if size <= LAZY_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


async def send_parts(connection: Connection, parts: Sequence[Part]) -> None:
    """Send `parts` in order: runs of buffers gathered, file regions from their files.

    Small regions go among the buffers, as far as the connection gathers them.
    """
    run: list[Buffer] = []
    room = most = connection.gathers_up_to
    for part in parts:
        if isinstance(part, bytes | bytearray | memoryview):
            run.append(part)
            continue
        assert isinstance(part, FileRegion), "bytes are in memory or in a file"
        if part.size <= room:
            run.append(region_bytes(part))
            room -= part.size
            continue
        if run:
            await connection.send_buffers(run)
            run, room = [], most
        await connection.send_region(part)
    if run:
        await connection.send_buffers(run)
