"""Connections and listeners around others, which do what those do unless a subclass says otherwise."""

from collections.abc import Sequence

from replication.net.seams import Connection, Listener
from storage.attributes import define
from storage.log.file_region import FileRegion
from storage.types import Buffer


@define(eq=False)
class WrappedConnection:
    """A `Connection` over another one."""

    inner: Connection

    @property
    def peer(self) -> str:
        return self.inner.peer

    @property
    def moved(self) -> int:
        return self.inner.moved

    @property
    def gathers_up_to(self) -> int:
        return self.inner.gathers_up_to

    async def receive_into(self, buffer: memoryview) -> int:
        return await self.inner.receive_into(buffer)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        await self.inner.send_buffers(buffers)

    def send_at_once(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        return self.inner.send_at_once(buffers)

    async def send_region(self, region: FileRegion) -> None:
        await self.inner.send_region(region)

    def close(self) -> None:
        self.inner.close()


@define(eq=False)
class WrappedListener:
    """A `Listener` over another one; subclasses add `accept`."""

    inner: Listener

    @property
    def host(self) -> str:
        return self.inner.host

    @property
    def port(self) -> int:
        return self.inner.port

    def close(self) -> None:
        self.inner.close()
