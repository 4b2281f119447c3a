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
from replication.cluster.server import OnBug
from replication.net.raising import raising_only_one
from replication.observe.http.origins import SameOrigin
from replication.observe.http.server import HttpAddress, serve_http

LOOPBACK = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Site:
    """One purpose: the metrics, the control, the page."""

    purpose: str
    """How it is named when its URL is told: "metrics"."""
    port: int
    """Of two sites with the same number each has its routes on that one port."""
    routes: Sequence[BaseRoute]
    path: str = "/"
    """Where to look first."""


def http_app(routes: Sequence[BaseRoute], *, host: str = LOOPBACK) -> ASGIApp:
    """An application of those routes, for a server that listens on `host`."""
    return Starlette(routes=list(routes), middleware=[Middleware(SameOrigin, host)])


async def serve_sites(
    sites: Sequence[Site],
    *,
    nursery: trio.Nursery,
    host: str = LOOPBACK,
    on_bug: OnBug = raise_bug,
) -> dict[str, str]:
    """Serve them in `nursery`; where each is found, by its purpose, once all of them are."""
    addresses: dict[int, HttpAddress] = {}
    for port in dict.fromkeys(site.port for site in sites):
        routes = [route for site in sites if site.port == port for route in site.routes]
        serve = partial(serve_http, on_bug=on_bug)
        with raising_only_one():
            addresses[port] = await nursery.start(serve, http_app(routes, host=host), host, port)
    return {site.purpose: addresses[site.port].url + site.path for site in sites}
