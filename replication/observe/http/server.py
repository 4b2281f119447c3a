"""A server: one listening socket, and an `HttpConnection` for each client; and what it serves.

    cancelled ─> no longer listening ─> streams and idle connections end
              ─> answers under way finish, for GRACE_SECONDS ─> the rest are cut off

Each purpose (metrics, control, the page) is a `Site` with its routes; several may share a port.

There are HTTP servers to install, such as hypercorn. Its public `serve` sends under a shield, so that
a single client that does not read would keep a cluster from stopping. h11 is the part of it that
reads and writes the protocol, and has a public API.

A page of another origin can neither read nor change anything. A browser lets any page send requests
to this machine, and hides the answers from that page unless page and answer have one origin. The
owner of a foreign name can let it resolve to this machine: then that name is the Host of the
request. So the Host of every request must be a name of this machine or the one that the server
listens on; only a scraper of /metrics may use another. For a request that changes something, the
browser also sends the page's origin, which must be that Host.

A server that listens on every address has names that it does not know. It accepts an IP address, a
name without a dot, which cannot be a public name, and its own host name.
"""

import socket
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs
import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from replication.errors import OnBug, raise_bug
from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.net.secure import ListenError
from replication.net.tcp import listening_socket
from replication.observe.http.connection import Closing, HttpConnection
from storage.attributes import define, frozen

_CHANGES_NOTHING = {"GET", "HEAD", "OPTIONS"}
_THIS_MACHINE = {"127.0.0.1", "::1", "localhost"}
_EVERY_ADDRESS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound

GRACE_SECONDS = 1.0
METRICS = "/metrics"
LOOPBACK = "127.0.0.1"


@define(eq=False)
class SameOrigin:
    """ASGI middleware that refuses the requests of a page of another origin."""

    app: ASGIApp
    host: str
    """The host that the server listens on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why_not = self._why_not(scope) if scope["type"] == "http" else ""
        if why_not:
            await PlainTextResponse(f"{why_not}\n", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _why_not(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        asked_under, origin = headers.get("host", ""), headers.get("origin")
        changes = scope["method"] not in _CHANGES_NOTHING
        if changes and origin not in (None, f"http://{asked_under}"):
            return "a page of another origin may not do that"
        if asked_under and scope["path"] != METRICS and not self._is_ours(_name_in(asked_under)):
            return (
                f"{asked_under} may be a foreign name for this machine: use its address,"
                " or serve on that name"
            )
        return ""

    def _is_ours(self, name: str) -> bool:
        if self.host not in _EVERY_ADDRESS:
            return name in {*_THIS_MACHINE, self.host.lower()}
        known = "." not in name or _is_address(name) or name == socket.gethostname().lower()
        return bool(name) and known


def _name_in(host: str) -> str:
    """Return the host without its port; an empty string if it is not valid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@frozen
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


@define(eq=False)
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


@frozen(kw_only=True)
class Site:
    """The routes of one purpose: metrics, control or the page."""

    purpose: str
    """The name that is printed before its URL, such as "metrics"."""
    port: int
    """Sites with the same port and host share a server."""
    routes: Sequence[BaseRoute]
    path: str = "/"
    """The path of its first page."""
    host: str = LOOPBACK


def http_app(routes: Sequence[BaseRoute], *, host: str = LOOPBACK) -> ASGIApp:
    """Return an application with `routes`, for a server that listens on `host`."""
    return Starlette(routes=list(routes), middleware=[Middleware(SameOrigin, host)])


async def serve_sites(
    sites: Sequence[Site], *, nursery: trio.Nursery, on_bug: OnBug = raise_bug
) -> dict[str, str]:
    """Serve `sites` in `nursery`; return the URL of each by its purpose, once all are served."""
    addresses: dict[tuple[str, int], HttpAddress] = {}
    for host, port in dict.fromkeys((site.host, site.port) for site in sites):
        sharing = [site for site in sites if (site.host, site.port) == (host, port)]
        app = http_app([route for site in sharing for route in site.routes], host=host)
        serve = partial(serve_http, on_bug=on_bug)
        with raising_only_one():
            addresses[host, port] = await nursery.start(serve, app, host, port)
    return {each.purpose: addresses[each.host, each.port].url + each.path for each in sites}
