"""TCP: the transport of production.

    buffers      writev, up to IOV_MAX of them at once; what a short write left over is
                 a slice of the same memory, never joined or copied
    a region     sendfile, from the page cache to the socket, never through Python;
                 a small one is read, and goes with the buffers around it
    receiving    readv to where the caller wants the bytes

Rule 1: sockets never block; when the kernel has no room, or nothing to give, the task waits
in `wait_writable` or `wait_readable`, where it can be cancelled.

Rule 2: a send that did not finish, for whatever reason, closes its connection. Half a
frame followed by another one would be read as garbage, or worse, not as garbage.

Rule 3: one task sends and one task receives at a time; who shares a connection takes turns.

Rule 4: receiving lets other tasks run, and so does a send that has to wait; one that the kernel
takes at once does not. A request and its answer are then one round of the loop each, not two. Bytes
behind a read that filled its buffer have nearly always come too, so the next read is tried before
it waits; the one after that waits again, because a peer that never stops sending must not keep the
other tasks waiting.

Connections leave some of the descriptors of this process to the files of its nodes:

    0 ─────────────────────── N ───────────── soft limit of RLIMIT_NOFILE
      connections, and files     files alone

Rule 5: the kernel gives the lowest free number. So the number of a new connection says how many
descriptors are in use in this process.

Rule 6: each listener stands for a node, with the segments that it may have open and some other
files. All nodes together keep at most half of the descriptors.
"""

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

import attrs
import trio

from replication.errors import PeerUnavailableError, TooManyConnectionsError
from replication.net.ports import any_ports
from replication.net.regions import region_chunks, region_lost, region_readable
from storage.attributes import define, frozen
from storage.log.file_region import FileRegion
from storage.log.open_segments import FILES_OF_A_SEGMENT, limit_within
from storage.types import Buffer

IOV_MAX = os.sysconf("SC_IOV_MAX")
SENDFILE_BYTES = 4 * 1024 * 1024  # bounds one system call, for the other tasks' sake
BACKLOG = 512
PORTS_TRIED = 20
OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

# Besides the segments: locks, checkpoints, snapshots, and connections to other nodes.
_OTHER_FILES: Final = 200

_listeners: list[None] = []  # of all threads, which append and pop may be called from

T = TypeVar("T")


@define(eq=False)
class TcpConnection:
    """`Connection` over one connected socket."""

    gathers_up_to: ClassVar[int] = 32 * 1024

    _socket: trio.socket.SocketType
    peer: str
    moved: int = attrs.field(init=False, default=0)
    _descriptor: int = attrs.field(init=False)
    """The number of the socket; -1 once it is closed."""
    _may_have_more: bool = attrs.field(init=False, default=False)
    _sending: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._descriptor = self._socket.fileno()

    async def receive_into(self, buffer: memoryview) -> int:
        assert buffer, "an empty buffer would make waiting look like the end"
        at_once, self._may_have_more = self._may_have_more, False
        try:
            while True:
                # Not tried first: a peer that was answered has most often not asked again yet.
                if not at_once:
                    if self._descriptor < 0:
                        raise self._was_closed()
                    await trio.lowlevel.wait_readable(self._descriptor)
                    self._may_have_more = True
                try:
                    count = os.readv(self._descriptor, [buffer])
                except BlockingIOError:
                    at_once = False
                    continue
                self.moved += count
                if count < buffer.nbytes:
                    self._may_have_more = False
                return count
        except (trio.ClosedResourceError, OSError) as error:
            raise self._unavailable(error) from error

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        if rest := self.send_at_once(buffers):
            await self._whole_or_closed(self._send_all, rest)

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        assert not self._sending, "two tasks may not send on one connection at once"
        try:
            sent = os.writev(self._descriptor, buffers[:IOV_MAX])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._closed_by(error) from error
        self.moved += sent
        return _behind(buffers, sent)

    async def send_region(self, region: FileRegion) -> None:
        await self._whole_or_closed(self._send_region, region)

    def close(self) -> None:
        self._descriptor = -1
        self._socket.close()

    async def _send_region(self, region: FileRegion) -> None:
        if region.file.descriptor() is None:
            for chunk in region_chunks(region):
                await self._send_all([chunk])
        else:
            await self._send_file(region)

    async def _send_all(self, buffers: Sequence[Buffer]) -> None:
        while buffers:
            try:
                sent = os.writev(self._descriptor, buffers[:IOV_MAX])
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            else:
                self.moved += sent
                buffers = _behind(buffers, sent)

    async def _send_file(self, region: FileRegion) -> None:
        sent = 0
        while sent < region.size:
            await trio.lowlevel.checkpoint()
            try:
                sent += self._sendfile(region, skip=sent)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
        with region_readable(region):
            pass  # the last bytes may have been truncated meanwhile

    def _sendfile(self, region: FileRegion, *, skip: int) -> int:
        with region_readable(region):
            # Asked for each time: the number of a file closed meanwhile is soon another's.
            descriptor = region.file.descriptor()
        assert descriptor is not None, "a file has a descriptor for as long as it is open"
        position, size = region.position + skip, min(region.size - skip, SENDFILE_BYTES)
        if (sent := os.sendfile(self._descriptor, descriptor, position, size)) == 0:
            raise region_lost(region, f"ends at {position}")
        self.moved += sent
        return sent

    async def _whole_or_closed(self, send: Callable[[T], Awaitable[None]], what: T) -> None:
        assert not self._sending, "two tasks may not send on one connection at once"
        self._sending = True
        try:
            await send(what)
        except (trio.ClosedResourceError, OSError) as error:
            raise self._closed_by(error) from error
        except BaseException:
            self.close()
            raise
        finally:
            self._sending = False

    def _closed_by(self, error: Exception) -> PeerUnavailableError:
        """Close the connection, of which only a part may have been sent; return what to raise."""
        unavailable = self._unavailable(error)
        self.close()
        return unavailable

    def _unavailable(self, error: Exception) -> PeerUnavailableError:
        if self._descriptor < 0:
            return self._was_closed()
        return PeerUnavailableError(f"lost the connection to {self.peer}: {error}")

    def _was_closed(self) -> PeerUnavailableError:
        return PeerUnavailableError(f"the connection to {self.peer} was closed")


@define(eq=False)
class TcpListener:
    """`Listener` over one listening socket."""

    _socket: trio.socket.SocketType
    host: str
    port: int
    _transport: "TcpTransport"

    async def accept(self) -> TcpConnection:
        while True:
            try:
                accepted, address = await self._socket.accept()
            except (trio.ClosedResourceError, OSError) as error:
                if isinstance(error, trio.ClosedResourceError) or self._socket.fileno() < 0:
                    raise PeerUnavailableError(f"no longer listening on {self.port}") from error
                if error.errno in OUT_OF_DESCRIPTORS:
                    # The ready socket would wake us again at once; others may close meanwhile.
                    await trio.sleep(0.1)
                elif error.errno != errno.ECONNABORTED:
                    raise
                continue
            peer = _peer_name(address)
            if is_kept_for_files(accepted.fileno()):
                accepted.close()
                raise TooManyConnectionsError(peer, "the descriptors that are left are for files")
            return self._transport.adopt(accepted, peer=peer)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            _listeners.pop()
        self._socket.close()


def _behind(buffers: Sequence[Buffer], sent: int) -> Sequence[Buffer]:
    """Return the unsent rest of `buffers`, which is nearly always empty."""
    for index, buffer in enumerate(buffers):
        size = len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
        if sent < size:
            return [memoryview(buffer).cast("B")[sent:], *buffers[index + 1 :]]
        sent -= size
    return ()


async def listening_socket(host: str, port: int) -> trio.socket.SocketType:
    """Listen on the first address of a name: on two, port 0 would be two ports.

    Port 0 is one that is never given (`replication/net/ports.py`); if many of them are in use, one
    of the kernel's.
    """
    addresses = await trio.socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = addresses[0]
    for chosen in () if port else islice(any_ports(), PORTS_TRIED):
        with contextlib.suppress(OSError):
            return await _listening_at(family, kind, protocol, (address[0], chosen, *address[2:]))
    return await _listening_at(family, kind, protocol, address)


async def _listening_at(
    family: int, kind: int, protocol: int, address: tuple[Any, ...]
) -> trio.socket.SocketType:
    listening = trio.socket.socket(family, kind, protocol)
    try:
        # A server that starts again must not wait for its old connections' TIME_WAIT.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


@frozen
class TcpTransport:
    """`Transport` over the operating system; None leaves a buffer's size to the kernel."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None

    async def listen(self, host: str, port: int) -> TcpListener:
        listening = await listening_socket(host, port)
        _listeners.append(None)
        return TcpListener(listening, host, listening.getsockname()[1], self)

    async def connect(self, host: str, port: int) -> TcpConnection:
        try:
            addresses = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter: no name at all (IDNA)
            raise PeerUnavailableError(f"cannot find {host}: {error}") from error
        failures: list[str] = []
        for family, kind, protocol, _, address in addresses:
            connecting = trio.socket.socket(family, kind, protocol)
            try:
                await connecting.connect(address)
            except BaseException as error:
                connecting.close()
                if not isinstance(error, OSError):
                    raise
                failures.append(error.strerror or str(error))
            else:
                return self.adopt(connecting, peer=f"{host}:{port}")
        reason = ", ".join(dict.fromkeys(failures))
        raise PeerUnavailableError(f"cannot connect to {host}:{port}: {reason}")

    def adopt(self, connected: trio.socket.SocketType, *, peer: str) -> TcpConnection:
        """Return a connection over a socket that is connected already."""
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)
        return TcpConnection(connected, peer)


def left_for_connections(descriptors: int, listeners: int) -> int:
    """Return N of the drawing above, for that many descriptors and listeners."""
    of_a_node = FILES_OF_A_SEGMENT * limit_within(descriptors) + _OTHER_FILES
    return descriptors - min(descriptors // 2, listeners * of_a_node)


def is_kept_for_files(number: int) -> bool:
    """Return whether a connection with this descriptor takes one that files may need."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    return number >= left_for_connections(soft, len(_listeners))


def _peer_name(address: tuple[Any, ...]) -> str:
    return f"{address[0]}:{address[1]}"
