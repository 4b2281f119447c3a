"""Wrappers that take a node's disk and network away before its tasks are cancelled.

A process that is killed writes nothing more. A broker inside this process that is "killed"
is cancelled, and cancellation runs `finally` blocks that would flush, write checkpoints,
leave a clean-shutdown marker or say goodbye to peers. So a kill detaches first:

    transport.detach()      every connection closes; later calls fail; nothing is sent
    file_system.detach()    later calls fail; nothing is written; locks are released
    nursery.cancel()        cleanup code runs, and can do no harm
    file_system.abandon()   files that it left open are closed, as the kernel would do

Rule 1: the wrappers belong to one incarnation. A node that starts again gets new ones over the
same disk and network.

Rule 2: closing always works. It changes nothing that lasts, and cleanup does it most.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

import attrs

from replication.errors import PeerUnavailableError
from replication.net.seams import Connection, Listener, Transport
from replication.net.wrapped import WrappedListener
from storage.attributes import define
from storage.filesystem import File, FileSystem, Lock, Space
from storage.log.file_region import FileRegion
from storage.types import Buffer

P = ParamSpec("P")
T = TypeVar("T")


class DetachedDiskError(OSError):
    """The error of a killed node's disk, which is gone for this incarnation."""


@define(eq=False)
class DetachableTransport:
    """The network of one incarnation, until `detach`."""

    _transport: Transport
    detached: bool = attrs.field(init=False, default=False)
    # Ordered, so that detaching closes in the same order in every run of a simulation.
    _open: dict["_Connection | _Listener", None] = attrs.field(init=False, factory=dict)

    def detach(self) -> None:
        self.detached = True
        for opened in list(self._open):
            opened.close()

    async def listen(self, host: str, port: int) -> Listener:
        self.check()
        return self._adopt(_Listener(await self._transport.listen(host, port), self))

    async def connect(self, host: str, port: int) -> Connection:
        self.check()
        return self.adopt_connection(await self._transport.connect(host, port))

    def adopt_connection(self, connection: Connection) -> Connection:
        return self._adopt(_Connection(connection, self))

    def check(self) -> None:
        if self.detached:
            raise PeerUnavailableError("this node's network is detached")

    def forget(self, closed: "_Connection | _Listener") -> None:
        self._open.pop(closed, None)

    def _adopt(self, opened: "_AnyOpen") -> "_AnyOpen":
        self._open[opened] = None
        if self.detached:  # while it was being opened
            opened.close()
            self.check()
        return opened


@define(eq=False, init=False)
class _Connection:
    """A connection that its transport closes; the bytes go straight to the one inside.

    After `detach` that one is closed, and can neither send nor receive.
    """

    inner: Connection
    peer: str
    gathers_up_to: int
    receive_into: Callable[[memoryview], Coroutine[Any, Any, int]]
    send_buffers: Callable[[Sequence[Buffer]], Coroutine[Any, Any, None]]
    send_at_once: Callable[[Sequence[Buffer]], Sequence[Buffer]]
    send_region: Callable[[FileRegion], Coroutine[Any, Any, None]]
    _transport: DetachableTransport

    def __init__(self, inner: Connection, transport: DetachableTransport) -> None:
        self.inner, self._transport = inner, transport
        self.peer, self.gathers_up_to = inner.peer, inner.gathers_up_to
        self.receive_into = inner.receive_into
        self.send_buffers, self.send_region = inner.send_buffers, inner.send_region
        self.send_at_once = inner.send_at_once

    @property
    def moved(self) -> int:
        return self.inner.moved

    def close(self) -> None:
        self._transport.forget(self)
        self.inner.close()


@define(eq=False)
class _Listener(WrappedListener):
    _transport: DetachableTransport

    async def accept(self) -> Connection:
        self._transport.check()
        return self._transport.adopt_connection(await self.inner.accept())

    def close(self) -> None:
        self._transport.forget(self)
        self.inner.close()


_AnyOpen = TypeVar("_AnyOpen", _Connection, _Listener)


@define(eq=False)
class DetachableFileSystem:
    """The disk of one incarnation, until `detach`."""

    _file_system: FileSystem
    detached: bool = attrs.field(init=False, default=False)
    _files: dict["_File", None] = attrs.field(init=False, factory=dict)
    _locks: dict["_Lock", None] = attrs.field(init=False, factory=dict)

    def detach(self) -> None:
        """Let later calls fail. Files stay open: a worker thread may be using one."""
        self.detached = True
        for lock in list(self._locks):
            lock.release()

    def abandon(self) -> None:
        """Close the files that the dead incarnation left open, when its tasks are gone."""
        assert self.detached, "a living node closes its own files"
        for file in list(self._files):
            file.close()

    def check(self) -> None:
        if self.detached:
            raise DetachedDiskError("this node's disk is detached")

    def open(self, path: str, *, create: bool = False) -> File:
        return self._opened(self._call(self._file_system.open, path, create=create))

    def open_for_reading(self, path: str) -> File:
        return self._opened(self._call(self._file_system.open_for_reading, path))

    def exists(self, path: str) -> bool:
        return self._call(self._file_system.exists, path)

    def is_directory(self, path: str) -> bool:
        return self._call(self._file_system.is_directory, path)

    def is_link(self, path: str) -> bool:
        return self._call(self._file_system.is_link, path)

    def list_directory(self, path: str) -> list[str]:
        return self._call(self._file_system.list_directory, path)

    def make_directory(self, path: str) -> None:
        self._call(self._file_system.make_directory, path)

    def rename(self, source: str, target: str) -> None:
        self._call(self._file_system.rename, source, target)

    def remove(self, path: str) -> None:
        self._call(self._file_system.remove, path)

    def remove_tree(self, path: str) -> None:
        self._call(self._file_system.remove_tree, path)

    def modified_ms(self, path: str) -> int:
        return self._call(self._file_system.modified_ms, path)

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        self._call(self._file_system.set_modified_ms, path, wall_ms)

    def space(self, path: str) -> Space:
        return self._call(self._file_system.space, path)

    def sync_directory(self, path: str) -> None:
        self._call(self._file_system.sync_directory, path)

    def lock(self, path: str) -> Lock:
        lock = _Lock(self._call(self._file_system.lock, path), self._locks)
        self._locks[lock] = None
        return lock

    def descriptors(self) -> int | None:
        return self._file_system.descriptors()

    def take_cost(self) -> float:
        return self._file_system.take_cost()

    def _opened(self, inner: File) -> File:
        file = _File(inner, self, self._files)
        self._files[file] = None
        return file

    def _call(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.check()
        return method(*args, **kwargs)


@define(eq=False)
class _File:
    _inner: File
    _file_system: DetachableFileSystem
    _open: dict["_File", None]

    @property
    def path(self) -> str:
        return self._inner.path

    def read(self, position: int, size: int) -> bytes:
        if self._file_system.detached:  # asked here, since it is called for each record
            self._file_system.check()
        return self._inner.read(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._file_system.check()
        return self._inner.read_into(position, buffer)

    def write(self, position: int, buffer: Buffer) -> None:
        if self._file_system.detached:  # asked here, since it is called for each record
            self._file_system.check()
        self._inner.write(position, buffer)

    def truncate(self, size: int) -> None:
        self._file_system.check()
        self._inner.truncate(size)

    def allocate(self, size: int) -> None:
        self._file_system.check()
        self._inner.allocate(size)

    def size(self) -> int:
        self._file_system.check()
        return self._inner.size()

    def sync(self) -> None:
        self._file_system.check()
        self._inner.sync()

    def descriptor(self) -> int | None:
        self._file_system.check()
        return self._inner.descriptor()

    def close(self) -> None:
        self._open.pop(self, None)
        self._inner.close()


@define(eq=False)
class _Lock:
    _inner: Lock
    _held: dict["_Lock", None]

    def release(self) -> None:
        self._held.pop(self, None)
        self._inner.release()
