"""What nodes and their process show beside what Kafka's brokers show, under `understudy`.

    NodeEvents      of one node, whichever incarnation of it runs: what it has told its sink
    ProcessMetrics  of the process: how late the loop wakes who is due, mistakes, memory, files

The loop is probed by a task that sleeps: what it oversleeps, everybody has waited. It runs as
long as metrics are served, and not otherwise.
"""

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from replication.events import Event, LogDeleted, LogTruncated
from replication.metrics import Histogram, MetricName, MetricsRegistry
from replication.net.seams import NodeClock
from replication.server.server import OnBug
from storage.types import Offset, TopicPartition

PROBE_SECONDS: Final = 0.05
DIVERGED: Final = frozenset({"diverging epoch", "leader epoch"})  # causes of a LogTruncated
_PROC = Path("/proc/self")


def node_metric(name: str, *tags: tuple[str, str]) -> MetricName:
    return MetricName("understudy", "Node", name, tags)


def process_metric(name: str) -> MetricName:
    return MetricName("understudy", "Process", name)


@attrs.define(eq=False)
class NodeEvents:
    """A sink that counts; and a family of what it has counted."""

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
    """Of this process; one, however many nodes it has."""

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
            _of_system("cpu_seconds_total"): time.process_time,
            _of_system("resident_memory_bytes"): _resident_bytes,
            _of_system("open_fds"): _open_files,
        }
        for name, read in gauges.items():
            self.registry.gauge(name, read)

    def counting(self, on_bug: OnBug) -> OnBug:
        def count(error: BaseException) -> None:
            self.bugs += 1
            on_bug(error)

        return count

    async def probe(self) -> None:
        while True:
            due = self.clock.now() + PROBE_SECONDS
            await self.clock.sleep_until(due)
            self.stalls.update(max(0.0, self.clock.now() - due))


def _of_system(name: str) -> MetricName:
    """As every Prometheus client names them."""
    return MetricName("process", "Process", name)


def _resident_bytes() -> int:
    try:
        pages = int((_PROC / "statm").read_text().split()[1])
    except OSError:  # no /proc: the most that it ever was
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def _open_files() -> int:
    try:
        return sum(1 for _ in (_PROC / "fd").iterdir())
    except OSError:
        return sum(1 for _ in Path("/dev/fd").iterdir())
