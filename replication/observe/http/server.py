"""One listening socket, and hypercorn's HTTP/1.1 on every connection that it accepts.

    cancelled ─> no longer listening ─> streams are told, idle connections end
              ─> answers under way finish, for GRACE_SECONDS ─> hang up

Hypercorn brings the protocol, not the server: its `serve` sends under a shield, so that one
client which does not read would keep a cluster from stopping for as long as it likes. Here
who accepts also hangs up: a closed socket ends that send.
"""

from typing import cast

import attrs
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from hypercorn.utils import wrap_app
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from replication.cluster.cluster import raise_bug
from replication.net.clock import TrioClock
from replication.net.tcp import listening_socket
from replication.server.node_scope import ListenError
from replication.server.server import OnBug

GRACE_SECONDS = 1.0
IDLE_SECONDS = 75.0  # longer than between two scrapes


@attrs.frozen
class HttpAddress:
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Without a slash at its end; from this machine, where it listens on every address."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - read, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


async def serve_http(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    on_bug: OnBug = raise_bug,
    grace_seconds: float = GRACE_SECONDS,
    task_status: trio.TaskStatus[HttpAddress] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled; started with the address once it listens. ListenError where it cannot."""
    listener = await _listen(host, port)
    server = _HttpServer(app, on_bug, grace_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, listener)
        task_status.started(HttpAddress(host, listener.socket.getsockname()[1]))
        try:
            await server.failed.wait()
        finally:
            server.close()
    assert server.failure is not None, "a server ends of itself only with a mistake of ours"
    raise server.failure


async def _listen(host: str, port: int) -> trio.SocketListener:
    try:
        return trio.SocketListener(await listening_socket(host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ListenError(f"cannot serve HTTP on {host}:{port}: {reason}") from error


def _config() -> Config:
    config = Config()
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_SECONDS
    return config


@attrs.define(eq=False)
class _HttpServer:
    """Accepts, and hangs up."""

    app: ASGIApp
    on_bug: OnBug
    grace_seconds: float
    failed: trio.Event = attrs.field(factory=trio.Event, init=False)
    failure: BaseException | None = attrs.field(default=None, init=False)
    _closing: trio.Event = attrs.field(factory=trio.Event, init=False)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _streams: set[trio.SocketStream] = attrs.field(factory=set, init=False)
    _all_gone: trio.Event = attrs.field(factory=trio.Event, init=False)
    _hypercorn: WorkerContext = attrs.field(factory=lambda: WorkerContext(None), init=False)
    _config: Config = attrs.field(factory=_config, init=False)

    def close(self) -> None:
        self._closing.set()
        self._accepting.cancel()

    async def run(self, listener: trio.SocketListener) -> None:
        """Until `close`; shielded, so that whoever is connected is let go in good order."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as connections:
                with self._accepting:
                    await trio.serve_listeners(
                        self._serve_connection, [listener], handler_nursery=connections
                    )
                await self._let_go()
                connections.cancel_scope.cancel()

    async def _let_go(self) -> None:
        await self._hypercorn.terminated.set()
        with TrioClock().move_on_after(self.grace_seconds):
            while self._streams:
                await self._all_gone.wait()
        for stream in self._streams:
            stream.socket.close()

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        self._streams.add(stream)
        # Both say "ASGI application"; one spells the messages out.
        app = wrap_app(cast("ASGIFramework", self._answer), 0, "asgi")
        # It asks whether it is TLS, whatever its annotation says.
        any_stream = cast("trio.SSLStream[trio.SocketStream]", stream)
        try:
            await TCPServer(app, self._config, self._hypercorn, ConnectionState({}), any_stream)
        finally:
            stream.socket.close()
            self._streams.discard(stream)
            if not self._streams and self._closing.is_set():
                self._all_gone.set()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; whatever an endpoint raises stays here."""
        exchange = _Exchange(receive, send, self._closing)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - a boundary: one request, not the cluster
            error.add_note(f"answering {scope['method']} {scope['path']}")
            self._report(error)
            return
        await exchange.finish()

    def _report(self, error: Exception) -> None:
        try:
            self.on_bug(error)
        except BaseException as raised:  # noqa: BLE001 - it is raised by serve_http
            self.failure = raised
            self.failed.set()


@attrs.define(eq=False)
class _Exchange:
    """A request and its answer: tells whoever listens for the client's end of the server's too."""

    _receive: Receive
    _send: Send
    _closing: trio.Event
    _request_complete: bool = attrs.field(default=False, init=False)
    _streaming: bool = attrs.field(default=False, init=False)

    async def receive(self) -> Message:
        message: Message
        if not self._request_complete:
            message = await self._receive()
            self._request_complete = not message.get("more_body", False)
            return message
        message = {"type": "http.disconnect"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_closing, nursery.cancel_scope)
            message = await self._receive()
            nursery.cancel_scope.cancel()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._streaming = all(name != b"content-length" for name, _ in message["headers"])
        elif not message.get("more_body", False):
            self._streaming = False
        await self._send(message)

    async def finish(self) -> None:
        """A stream that ends because we do is a whole answer."""
        if self._streaming and self._closing.is_set():
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cancel_when_closing(self, scope: trio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()
