"""What is served on which port: each purpose brings its routes, and several may share a port."""

from collections.abc import Sequence
from functools import partial

import attrs
import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from replication.cluster.cluster import raise_bug
from replication.net.raising import raising_only_one
from replication.observe.http.origins import SameOrigin
from replication.observe.http.server import HttpAddress, serve_http
from replication.server.server import OnBug

LOOPBACK = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Site:
    """One purpose: the metrics, the control, the page."""

    purpose: str
    """How it is named when its URL is told: "metrics"."""
    port: int
    """Of two sites with the same number (and host) each has its routes on that one port."""
    routes: Sequence[BaseRoute]
    path: str = "/"
    """Where to look first."""
    host: str = LOOPBACK


def http_app(routes: Sequence[BaseRoute], *, host: str = LOOPBACK) -> ASGIApp:
    """An application of those routes, for a server that listens on `host`."""
    return Starlette(routes=list(routes), middleware=[Middleware(SameOrigin, host)])


async def serve_sites(
    sites: Sequence[Site], *, nursery: trio.Nursery, on_bug: OnBug = raise_bug
) -> dict[str, str]:
    """Serve them in `nursery`; where each is found, by its purpose, once all of them are."""
    addresses: dict[tuple[str, int], HttpAddress] = {}
    for host, port in dict.fromkeys((site.host, site.port) for site in sites):
        sharing = [site for site in sites if (site.host, site.port) == (host, port)]
        app = http_app([route for site in sharing for route in site.routes], host=host)
        serve = partial(serve_http, on_bug=on_bug)
        with raising_only_one():
            addresses[host, port] = await nursery.start(serve, app, host, port)
    return {each.purpose: addresses[each.host, each.port].url + each.path for each in sites}
