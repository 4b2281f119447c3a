"""What `up` and `broker` serve over HTTP beside Kafka's protocol, where a port is asked for.

    --metrics 9100            on this machine alone
    --metrics 0.0.0.0:9100    to whoever can reach it

Nothing of it is imported where no port is asked for.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
import trio

from replication.events import EventSink

if TYPE_CHECKING:
    from replication.cluster.cluster import Cluster
    from replication.cluster.server import OnBug
    from replication.observe.served_metrics import ServedMetrics

_Command = TypeVar("_Command", bound=Callable[..., Any])

LOOPBACK = "127.0.0.1"
_MOST = 65535


@attrs.frozen
class HttpPort:
    """Where to serve."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class HttpPortType(click.ParamType[HttpPort]):
    """PORT, or HOST:PORT."""

    name = "[host:]port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> HttpPort:
        if isinstance(value, HttpPort):
            return value
        host, _, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= _MOST):
            self.fail(f"{value!r} is no port, nor HOST:PORT", param, ctx)
        return HttpPort(host.strip("[]") or LOOPBACK, int(port))


def metrics_option(help_text: str) -> Callable[[_Command], _Command]:
    """--metrics, of a command that serves them."""
    return click.option("--metrics", metavar="[HOST:]PORT", type=HttpPortType(), help=help_text)


@attrs.define(eq=False)
class MetricsServer:
    """`/metrics`, if it was asked for."""

    where: HttpPort | None
    metrics: "ServedMetrics | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        if self.where is not None:
            import replication.observe.http  # noqa: F401 - or it is said now what is missing
            from replication.observe.served_metrics import ServedMetrics

            self.metrics = ServedMetrics()

    def sinks(self, *, broker: int | None) -> list[EventSink]:
        """What counts a node's events."""
        return [] if self.metrics is None else [self.metrics.sink(broker=broker)]

    def on_bug(self, report: "OnBug") -> "OnBug":
        return report if self.metrics is None else self.metrics.process.counting(report)

    async def start_beside(
        self, cluster: "Cluster", nursery: trio.Nursery, on_bug: "OnBug"
    ) -> dict[str, str]:
        """Those of a cluster in this process."""
        if self.metrics is not None:
            self.metrics.of_cluster(cluster)
        return await self.start(nursery, on_bug)

    async def start(self, nursery: trio.Nursery, on_bug: "OnBug") -> dict[str, str]:
        """Its URL, by what it is."""
        if self.where is None or self.metrics is None:
            return {}
        from replication.observe.http.metrics import metrics_site
        from replication.observe.http.sites import serve_sites

        site = metrics_site(self.where.port, self.metrics, host=self.where.host)
        urls = await serve_sites([site], nursery=nursery, on_bug=on_bug)
        nursery.start_soon(self.metrics.process.probe)
        return urls
