"""The metrics of the nodes in this process and of the process itself, served at `/metrics`.

    NodeEvents      what a node has reported to its sink, in all its incarnations
    ProcessMetrics  how late the loop is, bugs that were caught, processor, memory, files
    ServedMetrics   these and the registries of the nodes, which may come and go between scrapes

What Kafka's brokers do not have is named under `understudy`. The text is Prometheus's format 0.0.4,
with the names that dashboards use:

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t
    kafka_server_brokertopicmetrics_messagesin_total{broker="1",topic="t"} 3

Rule 1: a name follows the rules of jmx_exporter's kafka-2_0_0.yml, and of Strimzi, which derive
from them: group, type and name, lowercase, joined by underscores; `PerSec` becomes a counter that
ends in `_total`; a distribution is a gauge for each quantile, and a counter that ends in `_count`.
Tags become labels. Names in the groups `understudy` and `process` leave out the type, and are
counters if they end in `_total`.

Rule 2: every series of a broker has the label `broker`, because one port may serve several brokers.
Where one port serves several controllers, theirs have the label `controller`; other series have none.

Rule 3: after SLICE lines, other tasks of the loop have their turn. A scrape is as consistent as that
of a JVM: each number is right when it is read.

The text is written here, in about 40 lines. prometheus_client would be a run-time dependency for
them, and renders everything in one call, which holds up the loop. It reads the text back in tests.
"""

import math
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from replication.errors import OnBug
from replication.events import Event, EventSink, LogDeleted, LogTruncated
from replication.metrics import Distribution, Histogram, MetricName, MetricsRegistry, quantiles
from replication.net.clock import TrioClock
from replication.net.seams import NodeClock
from replication.observe.http import LOOPBACK, Site
from replication.observe.metric_catalogue import help_of
from storage.attributes import define, frozen
from storage.types import Offset, TopicPartition

if TYPE_CHECKING:
    from replication.broker.broker import Broker
    from replication.cluster.cluster import Cluster
    from replication.controller.controller import Controller


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE = 64
OURS = frozenset({"understudy", "process"})

# kafka-2_0_0.yml exports these attributes of a histogram.
QUANTILES = {
    "0.50": 0.50,
    "0.75": 0.75,
    "0.95": 0.95,
    "0.98": 0.98,
    "0.99": 0.99,
    "0.999": 0.999,
}
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_:]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_PER_SECOND = "PerSec"
_ATTRIBUTE = "attribute"  # the tag that names one number of a distribution

Labels = tuple[tuple[str, str], ...]

PATH: Final = "/metrics"
PROBE_SECONDS: Final = 0.05
DIVERGED: Final = frozenset({"diverging epoch", "leader epoch"})  # causes of a LogTruncated
_PROC = Path("/proc/self")


@frozen
class MetricsSource:
    """A registry, and the labels of all its series."""

    registry: MetricsRegistry
    labels: Labels = ()


@frozen
class Spelling:
    """The name and the type of a metric in Prometheus."""

    name: str
    type: str


def spelling(name: MetricName) -> Spelling:
    """Return the spelling of a number, or of the quantiles of a distribution."""
    return _spelling(name.group, name.type, name.name, dict(name.tags).get(_ATTRIBUTE))


@lru_cache(maxsize=1024)
def _spelling(group: str, kind: str, name: str, attribute: str | None) -> Spelling:
    if group in OURS:
        return Spelling(_joined(group, name), "counter" if name.endswith("_total") else "gauge")
    if name.endswith(_PER_SECOND):
        counted = name.removesuffix(_PER_SECOND)
        return Spelling(_joined(group, kind, counted, "total"), "counter")
    if attribute is not None:
        return Spelling(
            _joined(group, kind, name, attribute), "counter" if attribute == "Count" else "gauge"
        )
    return Spelling(_joined(group, kind, name), "gauge")


def _joined(*words: str) -> str:
    return _FORBIDDEN.sub("_", "_".join(words)).lower()


@define
class Exposition:
    """The lines of one scrape; the lines of one metric stand together."""

    _lines: dict[str, list[str]] = attrs.field(factory=dict)

    def number(self, name: MetricName, value: float, labels: Labels) -> None:
        self._add(spelling(name), name, labels + name.tags, value)

    def distribution(self, name: MetricName, found: Distribution, labels: Labels) -> None:
        spelled, labels = spelling(name), labels + name.tags
        values = quantiles(found.latest(), QUANTILES.values())
        for fraction, value in zip(QUANTILES, values, strict=True):
            self._add(spelled, name, (*labels, ("quantile", fraction)), value)
        counted = Spelling(f"{spelled.name}_count", "counter")
        self._add(counted, name, labels, found.count)

    def _add(self, spelled: Spelling, name: MetricName, labels: Labels, value: float) -> None:
        lines = self._lines.get(spelled.name)
        if lines is None:
            head = f"# HELP {spelled.name} {help_of(name).translate(_HELP_ESCAPES)}\n"
            lines = self._lines[spelled.name] = [head + f"# TYPE {spelled.name} {spelled.type}\n"]
        pairs = ",".join([_pair(label) for label in labels if label[0] != _ATTRIBUTE])
        lines.append(f"{spelled.name}{'{' + pairs + '}' if pairs else ''} {_number(value)}\n")

    def chunks(self) -> Iterable[str]:
        """Yield the whole text in pieces of at most SLICE lines."""
        for lines in self._lines.values():
            for start in range(0, len(lines), SLICE):
                yield "".join(lines[start : start + SLICE])


@lru_cache(maxsize=4096)
def _pair(label: tuple[str, str]) -> str:
    key, value = label
    return f'{_FORBIDDEN.sub("_", key)}="{value.translate(_ESCAPES)}"'


def _number(value: float) -> str:
    value = float(value)
    if value.is_integer():
        return str(int(value))
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value).replace("nan", "NaN"))


async def exposition(sources: Sequence[MetricsSource]) -> bytes:
    """Return the text of one scrape."""
    made, since_turn = Exposition(), 0
    for source in sources:
        for name, value in source.registry.snapshot():
            made.number(name, value, source.labels)
            if (since_turn := since_turn + 1) >= SLICE:
                since_turn = await _turn()
        for name, found in source.registry.distributions():
            await _turn()  # a distribution sorts a thousand numbers
            made.distribution(name, found, source.labels)
    whole = bytearray()
    for chunk in made.chunks():
        whole += chunk.encode()
        await _turn()
    return bytes(whole)


async def _turn() -> int:
    await trio.lowlevel.checkpoint()
    return 0


def node_metric(name: str, *tags: tuple[str, str]) -> MetricName:
    return MetricName("understudy", "Node", name, tags)


def process_metric(name: str) -> MetricName:
    return MetricName("understudy", "Process", name)


@define(eq=False)
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


@define(eq=False)
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
            _system_metric("resident_memory_bytes"): resident_bytes,
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


def resident_bytes() -> int:
    """Return how many bytes of this process are in memory."""
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


@define(eq=False)
class ServedMetrics:
    """The metrics that one `/metrics` serves: of the nodes that run now, and of this process."""

    brokers: "Callable[[], Iterable[Broker]]" = tuple
    controllers: "Callable[[], Iterable[Controller]]" = tuple
    several_controllers: bool = False
    process: ProcessMetrics = attrs.field(factory=lambda: ProcessMetrics(TrioClock()))
    cluster: MetricsRegistry | None = None
    mirror: MetricsRegistry | None = None
    """The metrics of a mirror in this process, which belong to no broker."""
    _events: dict[Labels, NodeEvents] = attrs.field(factory=dict, init=False)

    def use_cluster(self, cluster: "Cluster") -> None:
        """Serve the metrics of the nodes of `cluster` that run, from now on."""
        self.brokers = lambda: [*cluster.brokers.values()]
        self.controllers = lambda: [*cluster.controllers.values()]
        self.several_controllers = len(cluster.controller_ids) > 1
        self.cluster = MetricsRegistry(self.process.clock.now)
        for broker_id in cluster.broker_ids:
            name = MetricName("understudy", "Cluster", "broker_up", broker_label(broker_id))
            self.cluster.gauge(name, partial(_is_up, cluster, broker_id))

    def sink(self, *, broker: int | None) -> EventSink:
        """Return a sink that counts the events of a broker, or of the controller (None)."""
        labels = () if broker is None else broker_label(broker)
        return self._events.setdefault(labels, NodeEvents()).sink

    def _controller_label(self, node_id: int) -> Labels:
        return (("controller", str(node_id)),) if self.several_controllers else ()

    def sources(self) -> Sequence[MetricsSource]:
        found = [
            MetricsSource(each.metrics, broker_label(each.broker_id)) for each in self.brokers()
        ]
        found += [
            MetricsSource(each.metrics, self._controller_label(each.config.node_id))
            for each in self.controllers()
        ]
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
