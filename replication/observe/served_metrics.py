"""The metrics of the nodes in this process and of the process itself, served at `/metrics`.

    NodeEvents      what a node has reported to its sink, in all its incarnations
    ProcessMetrics  how late the loop is, bugs that were caught, processor, memory, files
    ServedMetrics   these and the registries of the nodes, which may come and go between scrapes

What Kafka's brokers do not have is named under `understudy`.
"""

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from replication.errors import OnBug
from replication.events import Event, EventSink, LogDeleted, LogTruncated
from replication.metrics import Histogram, MetricName, MetricsRegistry
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock
from replication.observe.exposition import CONTENT_TYPE, Labels, MetricsSource, exposition
from replication.observe.http import LOOPBACK, Site
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    from replication.broker.broker import Broker
    from replication.cluster.cluster import Cluster
    from replication.controller.controller import Controller

PATH: Final = "/metrics"
PROBE_SECONDS: Final = 0.05
DIVERGED: Final = frozenset({"diverging epoch", "leader epoch"})  # causes of a LogTruncated
_PROC = Path("/proc/self")


def node_metric(name: str, *tags: tuple[str, str]) -> MetricName:
    return MetricName("understudy", "Node", name, tags)


def process_metric(name: str) -> MetricName:
    return MetricName("understudy", "Process", name)


@attrs.define(eq=False)
class NodeEvents:
    """A sink that counts the events of one node, and the metrics of these counts."""

    counts: Counter[str] = attrs.field(factory=Counter)
    truncations: int = 0
    truncated_records: int = 0
    divergence_offsets: dict[TopicPartition, Offset] = attrs.field(factory=dict)

    def registry(self, now: Callable[[], float]) -> MetricsRegistry:
        made = MetricsRegistry(now)
        made.family(self)
        return made

    def sink(self, event: Event) -> None:
        self.counts[event.name] += 1
        if isinstance(event, LogDeleted):
            self.divergence_offsets.pop(event.partition, None)
        elif isinstance(event, LogTruncated):
            self.truncations += 1
            self.truncated_records += event.from_offset - event.to_offset
            if event.cause in DIVERGED:
                self.divergence_offsets[event.partition] = event.to_offset

    def names(self) -> list[MetricName]:
        return [name for name, _ in self.snapshot()]

    def read(self, name: MetricName) -> float | None:
        return dict(self.snapshot()).get(name)

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for event, count in list(self.counts.items()):
            yield node_metric("events_total", ("event", event)), count
        yield node_metric("truncations_total"), self.truncations
        yield node_metric("truncated_records_total"), self.truncated_records
        for partition, offset in list(self.divergence_offsets.items()):
            tags = ("topic", partition.topic), ("partition", str(partition.partition))
            yield node_metric("divergence_offset", *tags), offset


@attrs.define(eq=False)
class ProcessMetrics:
    """The metrics of this process: how late its loop is, its bugs, its processor, memory and files.

    `probe` measures the loop while metrics are served: the time that it oversleeps, every other
    task has waited too.
    """

    clock: NodeClock
    registry: MetricsRegistry = attrs.field(init=False)
    bugs: int = attrs.field(default=0, init=False)
    stalls: Histogram = attrs.field(factory=Histogram, init=False)

    def __attrs_post_init__(self) -> None:
        self.registry = MetricsRegistry(self.clock.now)
        self.registry.distribution(process_metric("loop_stall_seconds"), self.stalls)
        gauges: dict[MetricName, Callable[[], float]] = {
            process_metric("loop_stall_max_seconds"): lambda: max(self.stalls.latest(), default=0),
            process_metric("bugs_total"): lambda: self.bugs,
            _system_metric("cpu_seconds_total"): time.process_time,
            _system_metric("resident_memory_bytes"): _resident_bytes,
            _system_metric("open_fds"): _open_files,
        }
        for name, read in gauges.items():
            self.registry.gauge(name, read)

    def counting(self, on_bug: OnBug) -> OnBug:
        """Return `on_bug`, with each call counted."""

        def count(error: BaseException) -> None:
            self.bugs += 1
            on_bug(error)

        return count

    async def probe(self) -> None:
        while True:
            due = self.clock.now() + PROBE_SECONDS
            await self.clock.sleep_until(due)
            self.stalls.update(max(0.0, self.clock.now() - due))


def _system_metric(name: str) -> MetricName:
    """Return the name that every Prometheus client gives to a metric of its process."""
    return MetricName("process", "Process", name)


def _resident_bytes() -> int:
    try:
        pages = int((_PROC / "statm").read_text().split()[1])
    except OSError:  # there is no /proc: the largest size so far
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def _open_files() -> int:
    try:
        return sum(1 for _ in (_PROC / "fd").iterdir())
    except OSError:
        return sum(1 for _ in Path("/dev/fd").iterdir())


def broker_label(broker_id: int) -> Labels:
    """Return the label that separates a broker's series from another's on the same port."""
    return (("broker", str(broker_id)),)


@attrs.define(eq=False)
class ServedMetrics:
    """The metrics that one `/metrics` serves: of the nodes that run now, and of this process."""

    brokers: "Callable[[], Iterable[Broker]]" = tuple
    controllers: "Callable[[], Iterable[Controller]]" = tuple
    process: ProcessMetrics = attrs.field(factory=lambda: ProcessMetrics(TrioClock()))
    cluster: MetricsRegistry | None = None
    mirror: MetricsRegistry | None = None
    """The metrics of a mirror in this process, which belong to no broker."""
    _events: dict[Labels, NodeEvents] = attrs.field(factory=dict, init=False)

    def use_cluster(self, cluster: "Cluster") -> None:
        """Serve the metrics of the nodes of `cluster` that run, from now on."""
        self.brokers = lambda: [*cluster.brokers.values()]
        self.controllers = lambda: [each for each in [cluster.controller] if each is not None]
        self.cluster = MetricsRegistry(self.process.clock.now)
        for broker_id in cluster.broker_ids:
            name = MetricName("understudy", "Cluster", "broker_up", broker_label(broker_id))
            self.cluster.gauge(name, partial(_is_up, cluster, broker_id))

    def sink(self, *, broker: int | None) -> EventSink:
        """Return a sink that counts the events of a broker, or of the controller (None)."""
        labels = () if broker is None else broker_label(broker)
        return self._events.setdefault(labels, NodeEvents()).sink

    def sources(self) -> Sequence[MetricsSource]:
        found = [
            MetricsSource(each.metrics, broker_label(each.broker_id)) for each in self.brokers()
        ]
        found += [MetricsSource(each.metrics) for each in self.controllers()]
        now = self.process.clock.now
        found += [
            MetricsSource(each.registry(now), labels) for labels, each in self._events.items()
        ]
        found += [
            MetricsSource(each)
            for each in [self.process.registry, self.cluster, self.mirror]
            if each
        ]
        return found

    def site(self, port: int, *, host: str = LOOPBACK) -> Site:
        """Return `GET /metrics`. Only one scrape is made at a time; another one waits for its end."""
        one_at_a_time = trio.Lock()

        async def scrape(_: Request) -> Response:
            async with one_at_a_time:
                text = await exposition(self.sources())
            return Response(text, headers={"content-type": CONTENT_TYPE})

        routes = [Route(PATH, scrape)]
        return Site(purpose="metrics", host=host, port=port, path=PATH, routes=routes)


def _is_up(cluster: "Cluster", broker_id: int) -> int:
    return int(broker_id in cluster.brokers)
