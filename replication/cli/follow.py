"""`understudy follow`: keep an exact copy of a cluster's topics while it runs.

It shows a table on a terminal, otherwise a line now and then:

    1 cluster, 3 partitions, 12 records behind, 48.2 MB/s          29 partitions not shown
    PARTITION   LEADER  EPOCH      START         END     LAG   A SECOND
    orders-0         2      7          0     123,456       0        420
    orders-1         3      7          0      98,120      12          0  its leader cannot be reached

The partitions in trouble and those furthest behind come first; the table has at most 30.
"""

import contextlib
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replication.cli.connection import server_option
from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.options import (
    AT_LEAST_ONE,
    NEW_DIRECTORY,
    NEW_FILE,
    client_config_option,
    overrides_option,
    properties_of,
)
from replication.cli.output import JSON, OUTPUT, json_line, show_line
from replication.cli.running import allow_many_files, reporting_bugs
from replication.cli.served import HttpPort, MetricsServer, http_option
from replication.client.config import ClientConfig
from replication.events import (
    Event,
    LogDirectoryWarned,
    LogRepaired,
    LogTruncated,
    PartitionFailed,
    fan_out,
    ignore,
)
from replication.metrics import MetricsRegistry
from replication.mirror import Mirror, MirrorOptions, PartitionProgress
from replication.mirror.options import UpTo
from replication.net import production_seams
from replication.net.clock import LoopClock
from replication.net.raising import raising_only_one
from replication.replica_manager.bytes_in import REPLICATION, metric
from replication.visible import visible, visible_line
from storage.attributes import define, frozen
from storage.types import Offset, TopicPartition

_ROWS = 30

LOOK_SECONDS = 0.5
LINE_SECONDS = 10.0
MISSING_SECONDS = 5.0
METADATA_MAX_AGE_MS = "10000"
"""The default interval for finding new topics; a consumer has five minutes."""
UP_TO = {"lso": UpTo.LAST_STABLE, "hw": UpTo.HIGH_WATERMARK}


@frozen(kw_only=True)
class MirrorMoment:
    """The state of a copy at one time."""

    partitions: Sequence[PartitionProgress]
    trouble: str | None
    """Why the source does not answer; None if it does."""
    missing: Sequence[str] = ()
    """Topics of the command line that the source does not have."""
    bytes_per_second: float
    offsets_per_second: Mapping[TopicPartition, float] = attrs.field(factory=dict)

    @property
    def behind(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def caught_up(self) -> bool:
        """Whether every topic is there and every partition has reached the end of the source."""
        followed = [each for each in self.partitions if each.leader is not None]
        is_whole = bool(followed) and not self.missing
        return is_whole and all(each.lag == 0 and not each.trouble for each in followed)

    def line(self) -> str:
        rate = f"{self.bytes_per_second / 1e6:,.1f} MB/s"
        counts = f"{len(self.partitions)} partitions, {self.behind:,} records behind, {rate}"
        troubled = sum(each.trouble is not None for each in self.partitions)
        if troubled:
            counts += f", {troubled} in trouble"
        if self.trouble is not None:
            return f"{counts}; the source does not answer: {self.trouble}"
        return counts + (f"; not in the source: {', '.join(self.missing)}" if self.missing else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "caught_up": self.caught_up,
            "behind": self.behind,
            "trouble": self.trouble,
            "partitions": [*map(_to_dict, self.partitions)],
        }

    def table(self) -> Table:
        title = Text(visible_line(self.line()))
        table = Table(title=title, title_justify="left", title_style="", box=None)
        for name in ("PARTITION", "LEADER", "EPOCH", "START", "END", "LAG", "A SECOND"):
            table.add_column(name, justify="left" if name == "PARTITION" else "right")
        table.add_column("")
        urgent = sorted(self.partitions, key=lambda each: (each.trouble is None, -(each.lag or 0)))
        for each in urgent[:_ROWS]:
            rate = self.offsets_per_second.get(each.topic_partition, 0.0)
            table.add_row(*map(Text, map(visible_line, _cells(each, rate))))
        if len(urgent) > _ROWS:
            table.caption = f"{len(urgent) - _ROWS} more"
        return table


def _to_dict(progress: PartitionProgress) -> dict[str, Any]:
    found = attrs.asdict(progress, recurse=False)
    name = found.pop("topic_partition")
    return {"topic": name.topic, "partition": name.partition} | found


def _cells(progress: PartitionProgress, rate: float) -> tuple[str, ...]:
    return (
        str(progress.topic_partition),
        "-" if progress.leader is None else str(progress.leader),
        str(progress.leader_epoch) if progress.leader_epoch >= 0 else "-",
        f"{progress.log_start_offset:,}",
        f"{progress.log_end_offset:,}",
        "?" if progress.lag is None else f"{progress.lag:,}",
        f"{rate:,.0f}",
        progress.trouble or "",
    )


@define
class Rates:
    """The rates since the last look: bytes in total, offsets of each partition."""

    metrics: MetricsRegistry
    _then: float
    _bytes: float = 0.0
    _ends: dict[TopicPartition, Offset] = attrs.field(factory=dict)

    def since_last(
        self, now: float, partitions: Sequence[PartitionProgress]
    ) -> tuple[float, dict[TopicPartition, float]]:
        """Return bytes and offsets per second; some time must have passed since the last look."""
        seconds = now - self._then
        name = metric(REPLICATION)
        count = self.metrics.read(name) if name in self.metrics else 0.0
        ends = {each.topic_partition: each.log_end_offset for each in partitions}
        bytes_per_second = (count - self._bytes) / seconds
        offsets = {
            partition: max(0, end - self._ends.get(partition, end)) / seconds
            for partition, end in ends.items()
        }
        self._then, self._bytes, self._ends = now, count, ends
        return bytes_per_second, offsets


def metrics_text(metrics: MetricsRegistry) -> str:
    """Return a line for each metric, sorted by name."""
    lines = sorted(f"{name} {value:g}" for name, value in metrics.snapshot())
    return "\n".join(lines) + "\n"


def follow(
    config: ClientConfig,
    options: MirrorOptions,
    directory: str,
    *,
    until_caught_up: bool,
    metrics_file: Path | None,
    metrics_at: HttpPort | None,
    output: str,
) -> bool:
    """Run a mirror until it ends; return whether it had caught up then."""
    allow_many_files()
    console = Console(stderr=True)

    def show(event: Event) -> None:
        if (line := notable(event)) is not None:
            console.print(visible(line), highlight=False, markup=False, soft_wrap=True)

    served = MetricsServer(metrics_at)
    on_bug = served.on_bug(reporting_bugs(ignore))
    mirror = Mirror(
        source_config=config,
        options=options,
        directory=directory,
        seams=production_seams(),
        sink=fan_out(show, *served.sinks(broker=None)),
        on_bug=on_bug,
    )
    if served.metrics is not None:
        served.metrics.mirror = mirror.metrics
    watch = MirrorWatch(
        mirror=mirror,
        console=console,
        until_caught_up=until_caught_up,
        metrics_file=metrics_file,
        start_serving=partial(served.start, on_bug=on_bug),
    )
    trio.run(watch.run, clock=LoopClock())
    if output == JSON:
        show_line(json_line(watch.last.to_dict() if watch.last else {"partitions": []}))
    else:
        show_line(watch.last.line() if watch.last else "the source has not answered")
    return watch.last is not None and watch.last.caught_up


def notable(event: Event) -> str | None:
    """Return a line about `event` for people; None for an event that they need not know."""
    match event:
        case LogTruncated():
            return (
                f"{event.partition}: truncated from offset {event.from_offset} to {event.to_offset}"
                f" ({event.cause}), like the source"
            )
        case PartitionFailed():
            return f"{event.partition}: no longer followed: {event.cause}"
        case LogDirectoryWarned():
            return f"{event.directory}: {event.message}"
        case LogRepaired():
            return f"{event.partition}: {event.cause} at offset {event.offset} of {event.path}"
        case _:
            return None


@define(eq=False, kw_only=True)
class MirrorWatch:
    """Shows how a mirror stands, again and again, and stops it."""

    mirror: Mirror
    console: Console
    until_caught_up: bool
    metrics_file: Path | None
    start_serving: Callable[[trio.Nursery], Awaitable[dict[str, str]]]
    last: MirrorMoment | None = attrs.field(init=False, default=None)
    _rates: Rates = attrs.field(init=False)
    _line_at: float = attrs.field(init=False, default=0.0)
    _missing_since: float = attrs.field(init=False, default=math.inf)

    async def run(self) -> None:
        self._rates = Rates(self.mirror.metrics, trio.current_time() - LOOK_SECONDS)
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                for purpose, url in (await self.start_serving(nursery)).items():
                    self.console.print(f"{purpose}: {url}", highlight=False, soft_wrap=True)
                nursery.start_soon(self._show)
                nursery.start_soon(self._stop_on_signal, signals)
                await self.mirror.run()
                nursery.cancel_scope.cancel()

    async def _stop_on_signal(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            self.mirror.stop()

    async def _show(self) -> None:
        with self._screen() as screen:
            while True:
                moment = self._look()
                if screen is not None:
                    screen.update(moment.table(), refresh=True)
                elif trio.current_time() >= self._line_at:
                    self._line_at = trio.current_time() + LINE_SECONDS
                    line = visible(moment.line())
                    self.console.print(line, highlight=False, markup=False, soft_wrap=True)
                if self.until_caught_up and (moment.caught_up or self._has_waited_too_long(moment)):
                    self.mirror.stop()
                    return  # the partitions that end while it stops are not shown
                await trio.sleep(LOOK_SECONDS)

    def _has_waited_too_long(self, moment: MirrorMoment) -> bool:
        """Return whether a topic of the command line has been missing for too long to wait for it."""
        if not moment.missing:
            self._missing_since = math.inf
        self._missing_since = min(self._missing_since, trio.current_time())
        return trio.current_time() - self._missing_since > MISSING_SECONDS

    def _look(self) -> MirrorMoment:
        partitions = self.mirror.progress()
        in_bytes, in_offsets = self._rates.since_last(trio.current_time(), partitions)
        self.last = MirrorMoment(
            partitions=partitions,
            trouble=self.mirror.trouble,
            missing=self.mirror.missing,
            bytes_per_second=in_bytes,
            offsets_per_second=in_offsets,
        )
        if self.metrics_file is not None:
            draft = self.metrics_file.with_name(f"{self.metrics_file.name}.tmp")
            draft.write_text(metrics_text(self.mirror.metrics))
            draft.replace(self.metrics_file)
        return self.last

    @contextlib.contextmanager
    def _screen(self) -> Iterator[Live | None]:
        if not self.console.is_terminal:
            yield None
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            yield live


@click.command(name="follow")
@server_option("Brokers of the cluster to follow.")
@click.option(
    "--to", "directory", required=True, type=NEW_DIRECTORY,
    help="The directory of the copy; an existing copy is continued."
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="A topic to follow; may be repeated.")
@click.option(
    "--topics-matching", "patterns", multiple=True, metavar="PATTERN",
    help="Follow all topics whose whole name matches, also future ones, but no internal ones.",
)  # fmt: skip
@click.option(
    "--groups", is_flag=True, help="Follow the offsets of consumer groups too (__consumer_offsets)."
)
@click.option(
    "--up-to", type=click.Choice(list(UP_TO)), default="lso", show_default=True,
    help="lso: up to the first open transaction. hw: up to the high watermark.",
)  # fmt: skip
@click.option(
    "--throttle", type=AT_LEAST_ONE, metavar="BYTES", help="The largest number of bytes per second."
)
@click.option(
    "--fetchers", type=AT_LEAST_ONE, default=1, show_default=True,
    help="The number of connections to each broker."
)  # fmt: skip
@client_config_option()
@click.option("--until-caught-up", is_flag=True, help="End when the copy has caught up.")
@click.option(
    "--metrics", "metrics_file", type=NEW_FILE,
    help="Write all metrics to this file twice a second, under Kafka's names."
)  # fmt: skip
@http_option(
    "--metrics-port",
    "metrics_at",
    about="Serve /metrics for Prometheus at this port; 0 takes any port.",
)
@overrides_option("Set a configuration key of the broker that keeps the copy.")
@OUTPUT
def command(
    servers: str,
    directory: Path,
    topics: tuple[str, ...],
    patterns: tuple[str, ...],
    *,
    groups: bool,
    up_to: str,
    throttle: int | None,
    fetchers: int,
    config_file: Path | None,
    until_caught_up: bool,
    metrics_file: Path | None,
    metrics_at: HttpPort | None,
    overrides: Mapping[str, str],
    output: str,
) -> None:
    """Keep an exact copy of topics of any Kafka cluster, until interrupted.

    The copy has the batches of the source, byte for byte, at their offsets and in their leader
    epochs. After a kill it continues where its log ends. `understudy up --data-dir DIR -n 1`
    serves it read-only; `understudy promote DIR` turns it into a cluster of its own.
    """
    options = MirrorOptions(
        topics=topics,
        patterns=patterns,
        groups=groups,
        up_to=UP_TO[up_to],
        bytes_per_second=throttle,
        fetchers_per_leader=fetchers,
        properties=dict(overrides),
    )
    config = ClientConfig.from_properties(source_properties(servers, config_file))
    allow_many_files()
    caught_up = follow(
        config,
        options,
        str(directory.resolve()),
        until_caught_up=until_caught_up,
        metrics_file=metrics_file,
        metrics_at=metrics_at,
        output=output,
    )
    sys.exit(0 if caught_up or not until_caught_up else 1)


def source_properties(servers: str, config_file: Path | None) -> dict[str, str]:
    """Return the client properties for the source."""
    own = {"client.id": "understudy-follow", "metadata.max.age.ms": METADATA_MAX_AGE_MS}
    return own | properties_of(config_file, {}) | {"bootstrap.servers": servers}
