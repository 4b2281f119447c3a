"""What is served on which port: each purpose has its routes, and several may share a port."""

from collections.abc import Sequence
from functools import partial

import attrs
import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from replication.errors import OnBug, raise_bug
from replication.net.raising import raising_only_one
from replication.observe.http.origins import SameOrigin
from replication.observe.http.server import HttpAddress, serve_http

LOOPBACK = "127.0.0.1"


@attrs.frozen(kw_only=True)
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
