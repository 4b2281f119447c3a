"""A transport that counts."""

import attrs

from replication.net.seams import Connection, Listener, Transport


@attrs.define
class Counting:
    """A transport that knows how many connections it made."""

    inner: Transport
    made: int = 0

    async def connect(self, host: str, port: int) -> Connection:
        self.made += 1
        return await self.inner.connect(host, port)

    async def listen(self, host: str, port: int) -> Listener:
        return await self.inner.listen(host, port)
