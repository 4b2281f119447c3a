"""The HTTP servers of `up` and `broker`, if a port is given for them.

    --metrics 9100            only on this machine
    --metrics 0.0.0.0:9100    on every address
    --ui 8080                 the live page; it may share a port with the metrics
    --control 8080            the control API, without the page

Without a port, nothing of it is imported.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
import trio

from replication.events import EventSink
from storage.attributes import define, frozen

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from replication.cluster.cluster import Cluster
    from replication.cluster.interface import AnyCluster, FaultControl
    from replication.errors import OnBug
    from replication.observe.http.server import Site
    from replication.observe.journal import JournalEntry
    from replication.observe.page import LivePage
    from replication.observe.served_metrics import ServedMetrics
    from replication.observe.state_reader import StateReader

_Command = TypeVar("_Command", bound=Callable[..., Any])

LOOPBACK = "127.0.0.1"
_MOST = 65535


@frozen
class HttpPort:
    """The host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HttpPortType(click.ParamType[HttpPort]):
    """The type of an option [HOST:]PORT."""

    name = "[host:]port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> HttpPort:
        if isinstance(value, HttpPort):
            return value
        host, _, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= _MOST):
            self.fail(f"{value!r} is neither PORT nor HOST:PORT", param, ctx)
        return HttpPort(host.strip("[]") or LOOPBACK, int(port))


def http_option(*names: str, about: str) -> Callable[[_Command], _Command]:
    """Return an option for the port of a server."""
    return click.option(*names, metavar="[HOST:]PORT", type=HttpPortType(), help=about)


def check_http(*ports: HttpPort | None) -> None:
    """Raise MissingExtraError if the packages that serve HTTP are needed and missing."""
    if any(ports):
        import replication.observe.http  # noqa: F401


@define(eq=False)
class MetricsServer:
    """`/metrics`, if it has a port."""

    where: HttpPort | None
    metrics: "ServedMetrics | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        check_http(self.where)
        if self.where is not None:
            from replication.observe.served_metrics import ServedMetrics

            self.metrics = ServedMetrics()

    def sinks(self, *, broker: int | None) -> list[EventSink]:
        """Return the sinks that count a node's events."""
        return [] if self.metrics is None else [self.metrics.sink(broker=broker)]

    def on_bug(self, report: "OnBug") -> "OnBug":
        return report if self.metrics is None else self.metrics.process.counting(report)

    def sites_beside(self, cluster: "Cluster", nursery: trio.Nursery) -> "list[Site]":
        """Return the site for the metrics of a cluster in this process."""
        if self.metrics is None:
            return []
        self.metrics.use_cluster(cluster)
        return self._sites(nursery)

    async def start(self, nursery: trio.Nursery, on_bug: "OnBug") -> dict[str, str]:
        """Serve the metrics; return their URL by its purpose."""
        return await serve(self._sites(nursery), nursery, on_bug)

    def _sites(self, nursery: trio.Nursery) -> "list[Site]":
        if self.where is None or self.metrics is None:
            return []
        nursery.start_soon(self.metrics.process.probe)
        return [self.metrics.site(self.where.port, host=self.where.host)]


@define(eq=False)
class PageServer:
    """The live page, if it has a port."""

    where: HttpPort | None
    page: "LivePage | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        check_http(self.where)
        if self.where is not None:
            from replication.observe.page import LivePage

            self.page = LivePage()

    def sinks(self, node_id: int) -> list[EventSink]:
        return [] if self.page is None else [self.page.sink(node_id)]

    @property
    def on_entry(self) -> "Callable[[JournalEntry], None] | None":
        """Return what takes the events of nodes in other processes; None without a page."""
        return None if self.page is None else self.page.on_entry

    def sites(self, cluster: "Cluster", nursery: trio.Nursery) -> "list[Site]":
        """Return the page's site for a cluster in this process."""
        if self.page is None:
            return []
        from replication.observe.nodes_source import reader_of_nodes

        return self.sites_of(reader_of_nodes(cluster, self.page.reasons), cluster, nursery)

    def sites_of(
        self, reader: "StateReader", cluster: "AnyCluster", nursery: trio.Nursery
    ) -> "list[Site]":
        if self.where is None or self.page is None:
            return []
        from scenarios.classroom.routes import stories_tab

        port, host = self.where.port, self.where.host
        site = self.page.site(reader, cluster, port=port, host=host, tabs=[stories_tab()])
        nursery.start_soon(self.page.run)
        return [site]


def control_sites(where: HttpPort | None, cluster: "AnyCluster") -> "list[Site]":
    """Return the site of the control API, if it has a port."""
    if where is None:
        return []
    from replication.observe.control import control_routes

    return [_control_site(where, control_routes(cluster))]


def fault_sites(where: HttpPort | None, faulty: "FaultControl") -> "list[Site]":
    """Return the site of the control API for fault rules alone, if it has a port."""
    if where is None:
        return []
    from replication.observe.control import fault_routes

    return [_control_site(where, fault_routes(faulty))]


def _control_site(where: HttpPort, routes: "Sequence[BaseRoute]") -> "Site":
    from replication.observe.http.server import Site

    path = "/openapi.json"
    return Site(purpose="control", port=where.port, host=where.host, routes=routes, path=path)


async def serve(sites: "list[Site]", nursery: trio.Nursery, on_bug: "OnBug") -> dict[str, str]:
    """Serve `sites`; return their URLs by purpose. Sites with the same port share it."""
    if not sites:
        return {}
    from replication.observe.http.server import serve_sites

    return await serve_sites(sites, nursery=nursery, on_bug=on_bug)
