"""A mirror in this process, until a signal or until it has caught up."""

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import trio
from rich.console import Console
from rich.live import Live

from replication.cli.follow.view import MirrorMoment, Rates, metrics_text
from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.output import JSON, json_line, show_line
from replication.cli.running import allow_many_files, reporting_bugs
from replication.cli.served import HttpPort, MetricsServer
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
from replication.mirror import Mirror, MirrorOptions
from replication.net import production_seams
from replication.net.raising import raising_only_one
from replication.visible import visible

LOOK_SECONDS = 0.5
LINE_SECONDS = 10.0
HEAR_SECONDS = 5.0


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
    trio.run(watch.run)
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


@attrs.define(eq=False, kw_only=True)
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
                if self.until_caught_up and (moment.caught_up or self._in_vain(moment)):
                    self.mirror.stop()
                    return  # the partitions that end while it stops are not shown
                await trio.sleep(LOOK_SECONDS)

    def _in_vain(self, moment: MirrorMoment) -> bool:
        """Return whether a topic of the command line has been missing for too long to wait for it."""
        if not moment.missing:
            self._missing_since = math.inf
        self._missing_since = min(self._missing_since, trio.current_time())
        return trio.current_time() - self._missing_since > HEAR_SECONDS

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
