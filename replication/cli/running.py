"""What running nodes from the command line takes: signals, journals, and mistakes of ours.

SIGTERM and SIGINT ask for a controlled shutdown; a second one does not wait for it.
SIGKILL is SIGKILL. The end of standard input is a SIGTERM too, for nodes whose parent
holds the other end: so they end with it, however it ends.
"""

import contextlib
import os
import resource
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import attrs
import click
import trio

from replication.cli.interruptions import STOP_SIGNALS
from replication.cli.output import tell
from replication.events import BugCaught, EventSink
from replication.net.clock import TrioClock
from replication.net.raising import raising_only_one
from replication.observe.journal import JournalWriter
from storage.filesystem import OsFileSystem
from storage.log import open_segments

if TYPE_CHECKING:  # a controller's process needs nothing of a broker's, nor the other way
    from replication.cluster.cluster import Node
    from replication.server.server import OnBug

STANDARD_INPUT = 0

# Each open segment's, and as many connections as a small cluster has.
FILES_OF_A_NODE = open_segments.FILES_OF_A_SEGMENT * open_segments.DEFAULT_LIMIT + 500
_MOST_ON_MACOS = 10_240  # OPEN_MAX, whatever getrlimit says


def allow_many_files(nodes: int = 1) -> None:
    """A node has some thousands of files open at most; shells often allow 256 or 1024 in all.

    The soft limit is raised to the hard one, as the Java virtual machine does for Kafka. Where
    that is too low this is said now, and not when the first partition cannot be opened.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_MOST_ON_MACOS, most):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = nodes * FILES_OF_A_NODE
    if files != resource.RLIM_INFINITY and files < needed:
        raise click.ClickException(
            f"this process may open {files} files and needs {needed}:"
            f" raise the hard limit (ulimit -Hn {needed}, or LimitNOFILE= of its service)"
        )


def journal_sink(path: str, *, node_id: int) -> EventSink:
    """Appends to the journal at `path`; it is closed with the process."""

    def warn(error: Exception) -> None:
        tell(f"understudy: {path} ends here: {error}")

    journal = JournalWriter.open(OsFileSystem(), path, on_refusal=warn)
    return journal.sink(broker=node_id, clock=TrioClock())


def reporting_bugs(sink: EventSink) -> "OnBug":
    """Production's way with a mistake of ours: tell of it, close that one thing, go on."""

    def report(error: BaseException) -> None:
        boundary = "; ".join(getattr(error, "__notes__", ())) or "a task"
        sink(BugCaught(boundary=boundary, error=repr(error)))
        tell("".join(traceback.format_exception(error)))

    return report


@attrs.define(eq=False)
class Nodes:
    """Nodes of one process: started from the first to the last, stopped the other way."""

    nodes: "list[Node]"
    until: Callable[[], Awaitable[object]] | None = attrs.field(default=None, kw_only=True)
    """What asks for a controlled shutdown too, by returning."""
    _ended: list[trio.Event] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ended = [trio.Event() for _ in self.nodes]

    async def run(self) -> None:
        """Until a signal has stopped all of them; what ends one of them ends all."""
        with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_on_signal, signals, nursery)
                if self.until is not None:
                    nursery.start_soon(self._stop_after, self.until)
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

    async def _stop_after(self, until: Callable[[], Awaitable[object]]) -> None:
        await until()
        await self._stop()

    async def _stop(self) -> None:
        for node, ended in reversed(list(zip(self.nodes, self._ended, strict=True))):
            node.shut_down()
            await ended.wait()


async def end_of_input() -> None:
    """Returns when nobody holds the other end of standard input any more."""
    while True:
        await trio.lowlevel.wait_readable(STANDARD_INPUT)
        if not os.read(STANDARD_INPUT, 4096):
            return


async def _run_one(
    node: "Node", ended: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    try:
        await node.run(task_status=task_status)
    finally:
        ended.set()
