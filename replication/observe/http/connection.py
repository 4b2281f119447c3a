"""One HTTP/1.1 connection of a server: h11 reads and writes the protocol, an ASGI application answers.

    bytes ──h11──> Request ──scope──> application ──messages──> Response, Data, EndOfMessage ──> bytes

Rule 1: a connection that waits for a request, and a stream that waits for its client to leave, end
as soon as the server closes (`Closing`). An answer under way is finished.

Rule 2: a stream that ends because the server closes is a complete answer, not one that was cut off.

Rule 3: the rest of a request that nothing has read is read away, up to MOST_UNREAD_BYTES, before
the next request or the end: a connection closed with unread data could lose the answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias
from urllib.parse import unquote

import attrs
import h11
import trio
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Scope

from replication.errors import OnBug
from replication.net.clock import TrioClock
from storage.attributes import define

IDLE_SECONDS = 75.0  # longer than between two scrapes
MOST_UNREAD_BYTES = 1 << 20
_RECEIVED_BYTES = 1 << 16

_Event: TypeAlias = h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed


@define(eq=False)
class Closing:
    """Whether the server closes, and the waits that end when it does."""

    is_set: bool = attrs.field(default=False, init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    def set(self) -> None:
        self.is_set = True
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def ends_wait(self) -> Iterator[None]:
        """Leave the block when the server closes."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_set:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)


@define(eq=False)
class HttpConnection:
    """A connection, which `serve` answers until its client or the server ends it."""

    app: ASGIApp
    stream: trio.SocketStream
    closing: Closing
    on_bug: OnBug
    _http: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.SERVER), init=False)
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _is_whole: bool = attrs.field(default=True, init=False)
    """Whether everything that h11 has encoded is sent."""
    _method: bytes = attrs.field(default=b"", init=False)

    async def serve(self) -> None:
        try:
            while (request := await self._next_request()) is not None:
                await self._answer(request)
                if not await self._is_reusable():
                    return
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone

    async def _next_request(self) -> h11.Request | None:
        event: _Event | None = None
        with self.closing.ends_wait(), TrioClock().move_on_after(IDLE_SECONDS):
            event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def _answer(self, request: h11.Request) -> None:
        self._method = request.method
        try:
            await self.app(self._scope(request), self._receive, self._send)
        except (ClientDisconnect, trio.BrokenResourceError):
            return
        except Exception as error:  # noqa: BLE001 - a boundary: one request, not the cluster
            error.add_note(f"answering {request.method.decode()} {request.target.decode()}")
            self.on_bug(error)
            return
        if self._http.our_state is h11.SEND_BODY and self._is_whole and self.closing.is_set:
            await self._write(h11.EndOfMessage())

    async def _is_reusable(self) -> bool:
        """Read the rest of the request; return whether another one can follow."""
        unread = 0
        with self.closing.ends_wait(), TrioClock().move_on_after(IDLE_SECONDS):
            while self._http.their_state is h11.SEND_BODY and unread < MOST_UNREAD_BYTES:
                event = await self._next_event()
                unread += len(event.data) if isinstance(event, h11.Data) else 0
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _refuse(self, status: int) -> None:
        """Answer what is not HTTP."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("content-length", "0"), ("connection", "close")]
            await self._write(h11.Response(status_code=status, headers=headers))
            await self._write(h11.EndOfMessage())

    # -- the messages of ASGI

    def _scope(self, request: h11.Request) -> Scope:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": self.stream.socket.getpeername()[:2],
            "server": self.stream.socket.getsockname()[:2],
        }

    async def _receive(self) -> Message:
        if self._http.their_state is h11.SEND_BODY:
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            match await self._next_event():
                case h11.Data(data=data):
                    return {"type": "http.request", "body": bytes(data), "more_body": True}
                case h11.EndOfMessage():
                    return {"type": "http.request", "body": b"", "more_body": False}
                case _:
                    pass
        else:
            await self._until_gone()
        return {"type": "http.disconnect"}

    async def _until_gone(self) -> None:
        """Wait until the client or the server leaves; h11 keeps a request that is sent meanwhile."""
        with self.closing.ends_wait():
            while len(self._http.trailing_data[0]) < MOST_UNREAD_BYTES:
                if not await self._read():
                    return

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            await self._write(h11.Response(status_code=message["status"], headers=headers))
            return
        if message.get("body") and self._method != b"HEAD":
            await self._write(h11.Data(data=message["body"]))
        if not message.get("more_body", False):
            await self._write(h11.EndOfMessage())

    # -- the bytes

    async def _next_event(self) -> _Event:
        while True:
            event = self._http.next_event()
            if event is h11.PAUSED:
                return h11.ConnectionClosed()
            if isinstance(event, _Event):
                return event
            await self._read()

    async def _read(self) -> bool:
        """Receive what comes next; return whether the client is still there."""
        try:
            data = await self.stream.receive_some(_RECEIVED_BYTES)
        except trio.BrokenResourceError:
            data = b""
        self._http.receive_data(data)
        return bool(data)

    async def _write(self, event: h11.Event) -> None:
        async with self._sending:
            data = self._http.send(event)
            if data:
                self._is_whole = False
                await self.stream.send_all(data)
                self._is_whole = True
