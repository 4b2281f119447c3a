"""A server: one listening socket, and an `HttpConnection` for each client.

    cancelled ─> no longer listening ─> streams and idle connections end
              ─> answers under way finish, for GRACE_SECONDS ─> the rest are cut off

There are HTTP servers to install, such as hypercorn. Its public `serve` sends under a shield, so that
a single client that does not read would keep a cluster from stopping. h11 is the part of it that
reads and writes the protocol, and has a public API.
"""

import attrs
import trio
from starlette.types import ASGIApp

from replication.errors import OnBug, raise_bug
from replication.net.clock import TrioClock
from replication.net.tcp import listening_socket
from replication.observe.http.connection import Closing, HttpConnection
from replication.server.node_scope import ListenError

GRACE_SECONDS = 1.0


@attrs.frozen
class HttpAddress:
    """The address at which a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL without a slash at its end; on this machine, if it listens on every address."""
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
    """Serve `app` until cancelled; the task has started once it listens, with its address.

    ListenError is raised if it cannot listen. What `on_bug` raises ends the server.
    """
    listener = await _listen(host, port)
    server = _HttpServer(app, on_bug, grace_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, listener)
        task_status.started(HttpAddress(host, listener.socket.getsockname()[1]))
        try:
            await server.failed.wait()
        finally:
            server.close()
    assert server.failure is not None, "a server ends by itself only when `on_bug` has raised"
    raise server.failure


async def _listen(host: str, port: int) -> trio.SocketListener:
    try:
        return trio.SocketListener(await listening_socket(host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ListenError(f"cannot serve HTTP on {host}:{port}: {reason}") from error


@attrs.define(eq=False)
class _HttpServer:
    """Accepts connections until it is closed, and then lets them go."""

    app: ASGIApp
    on_bug: OnBug
    grace_seconds: float
    failed: trio.Event = attrs.field(factory=trio.Event, init=False)
    failure: BaseException | None = attrs.field(default=None, init=False)
    _closing: Closing = attrs.field(factory=Closing, init=False)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def close(self) -> None:
        self._accepting.cancel()
        self._closing.set()

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve until `close`; the shield lets clients finish although the caller is cancelled."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as connections:
                with self._accepting:
                    await trio.serve_listeners(self._serve, [listener], handler_nursery=connections)
                connections.cancel_scope.deadline = TrioClock().now() + self.grace_seconds

    async def _serve(self, stream: trio.SocketStream) -> None:
        await HttpConnection(self.app, stream, self._closing, self._report).serve()

    def _report(self, error: BaseException) -> None:
        try:
            self.on_bug(error)
        except BaseException as raised:  # noqa: BLE001 - it is raised by serve_http
            self.failure = raised
            self.failed.set()
