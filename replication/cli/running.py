"""What running nodes from the command line takes: signals, journals, and mistakes of ours.

SIGTERM and SIGINT ask for a controlled shutdown; a second one does not wait for it.
SIGKILL is SIGKILL. The end of standard input is a SIGTERM too, for nodes whose parent
holds the other end: so they end with it, however it ends.
"""

import contextlib
import os
import resource
import signal
import traceback
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import attrs
import click
import trio

from replication.cluster.node_scope import raising_only_one
from replication.events import BugCaught, EventSink
from replication.net.clock import TrioClock
from replication.observe.journal import JournalWriter
from storage.filesystem import OsFileSystem

if TYPE_CHECKING:  # a controller's process needs nothing of a broker's, nor the other way
    from replication.cluster.cluster import Node
    from replication.cluster.server import OnBug

STANDARD_INPUT = 0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def allow_many_files() -> None:
    """Each partition holds three files open; shells often allow 256 or 1024 in all.

    The soft limit is raised to the hard one, as the Java virtual machine does for Kafka.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # where the system has a lower one of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def journal_sink(path: str, *, node_id: int) -> EventSink:
    """Appends to the journal at `path`; it is closed with the process."""
    journal = JournalWriter.open(OsFileSystem(), path)
    return journal.sink(broker=node_id, clock=TrioClock())


def reporting_bugs(sink: EventSink) -> "OnBug":
    """Production's way with a mistake of ours: tell of it, close that one thing, go on."""

    def report(error: BaseException) -> None:
        boundary = "; ".join(getattr(error, "__notes__", ())) or "a task"
        sink(BugCaught(boundary=boundary, error=repr(error)))
        click.echo("".join(traceback.format_exception(error)), err=True)

    return report


@attrs.define(eq=False)
class Nodes:
    """Nodes of one process: started from the first to the last, stopped the other way."""

    nodes: "list[Node]"
    stop_at_end_of_input: bool = attrs.field(default=False, kw_only=True)
    _ended: list[trio.Event] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ended = [trio.Event() for _ in self.nodes]

    async def run(self) -> None:
        """Until a signal has stopped all of them; what ends one of them ends all."""
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_on_signal, signals, nursery)
                if self.stop_at_end_of_input:
                    nursery.start_soon(self._stop_at_end_of_input)
                for node, ended in zip(self.nodes, self._ended, strict=True):
                    await nursery.start(_run_one, node, ended)
                for ended in self._ended:
                    await ended.wait()
                nursery.cancel_scope.cancel()

    async def _stop_on_signal(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        await anext(signals)
        nursery.start_soon(self._stop)
        await anext(signals)
        nursery.cancel_scope.cancel()

    async def _stop_at_end_of_input(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(STANDARD_INPUT)
            if not os.read(STANDARD_INPUT, 4096):
                break
        await self._stop()

    async def _stop(self) -> None:
        for node, ended in reversed(list(zip(self.nodes, self._ended, strict=True))):
            node.shut_down()
            await ended.wait()


async def _run_one(
    node: "Node", ended: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    try:
        await node.run(task_status=task_status)
    finally:
        ended.set()
