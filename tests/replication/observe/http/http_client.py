"""An HTTP client over trio and h11, as small as the tests need it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
import h11
import trio


@attrs.define
class Answer:
    """One answer, whose body is read as it comes."""

    connection: h11.Connection
    stream: trio.SocketStream
    status: int = 0
    headers: dict[str, str] = attrs.field(factory=dict)

    async def chunk(self) -> bytes:
        """Return the next bytes; empty at the end. Raises h11.RemoteProtocolError if it is cut off."""
        event = await self._event()
        if isinstance(event, h11.EndOfMessage):
            return b""
        assert isinstance(event, h11.Data)
        return bytes(event.data)

    async def body(self) -> bytes:
        whole = b""
        while part := await self.chunk():
            whole += part
        return whole

    async def until(self, text: str) -> str:
        """Return everything up to `text`, inclusive."""
        received = ""
        while text not in received:
            part = await self.chunk()
            assert part, f"ended after {received!r}"
            received += part.decode()
        return received

    async def head(self) -> None:
        event = await self._event()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def _event(self) -> h11.Event:
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            try:
                self.connection.receive_data(await self.stream.receive_some())
            except trio.BrokenResourceError:  # reset
                self.connection.receive_data(b"")
        assert isinstance(event, h11.Event)
        return event


@asynccontextmanager
async def asking(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> AsyncIterator[Answer]:
    """Yield the answer once its headers have come; close the connection after the block."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    fields = {"host": parts.netloc, "content-length": str(len(body)), **(headers or {})}
    connection = h11.Connection(h11.CLIENT)
    async with await trio.open_tcp_stream(parts.hostname, parts.port) as stream:
        request = h11.Request(method=method, target=target, headers=list(fields.items()))
        whole = connection.send(request)
        whole += connection.send(h11.Data(data=body)) + connection.send(h11.EndOfMessage())
        await stream.send_all(whole)
        answer = Answer(connection, stream)
        await answer.head()
        yield answer


async def get(url: str) -> str:
    async with asking(url) as answer:
        assert answer.status == 200, f"{url} is answered with {answer.status}"
        return (await answer.body()).decode()
