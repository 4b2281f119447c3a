"""Server-sent events: an answer that goes on until the client leaves.

    async def feed(send: SendEvent) -> None:
        await send("{...}")

    async def endpoint(request: Request) -> EventStream:
        return EventStream(feed)

    data: {...}          a line for each line of the data; an empty line ends the event

Rule 1: the feed is cancelled when the client leaves or the server closes. When it returns, the
stream ends, and a browser connects again.

Rule 2: `send` waits for a client that reads slowly: the feed decides what to skip.

(The HTML standard, 9.2, server-sent events.)
"""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.net.seams import NodeClock

KEEP_ALIVE_SECONDS = 15.0
_LINE_ENDS = re.compile(r"\r\n|\r|\n")  # str.splitlines splits at more characters


SendEvent: TypeAlias = Callable[[str], Awaitable[None]]
"""Sends one event; its data may have several lines."""
Feed: TypeAlias = Callable[[SendEvent], Awaitable[None]]


class EventStream(Response):
    """The response of an endpoint that serves events."""

    def __init__(
        self,
        feed: Feed,
        *,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        clock: NodeClock | None = None,
    ) -> None:
        # Response without content would announce a body of 0 bytes; this one has no length.
        self.status_code = 200
        self.background = None
        self.media_type = "text/event-stream"
        self.init_headers({"cache-control": "no-store"})
        self._feed = feed
        self._keep_alive_seconds = keep_alive_seconds
        self._clock = clock or TrioClock()
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        if scope["method"] != "HEAD":
            await self._stream(receive, send)
        if not self._gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, receive: Receive, send: Send) -> None:
        with raising_only_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_gone, receive, nursery.cancel_scope)
                nursery.start_soon(self._keep_alive, send)
                await self._feed(partial(_send_event, send))
                nursery.cancel_scope.cancel()

    async def _until_gone(self, receive: Receive, scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        scope.cancel()

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await self._clock.sleep(self._keep_alive_seconds)
            await _write(send, ":\n\n")  # a comment, which clients skip


async def _send_event(send: Send, data: str) -> None:
    lines = _LINE_ENDS.split(data)
    await _write(send, "".join(f"data: {line}\n" for line in lines) + "\n")


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
