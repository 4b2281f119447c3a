"""Nodes that run from the command line: signals, journals and bugs.

SIGTERM and SIGINT ask for a controlled shutdown; a second one does not wait for it. The end of
standard input is like SIGTERM for nodes whose parent holds the other end, so that they end with it.
"""

import contextlib
import os
import resource
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:  # a controller's process imports no broker
    from replication.cluster.cluster import Node
    from replication.errors import OnBug

STANDARD_INPUT = 0

# The files of each open segment, and the connections of a small cluster.
FILES_OF_A_NODE = open_segments.FILES_OF_A_SEGMENT * open_segments.DEFAULT_LIMIT + 500
_MOST_ON_MACOS = 10_240  # OPEN_MAX, whatever getrlimit says


def allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one, as the JVM does for Kafka.

    A node has a few thousand open files; shells often allow 256 or 1024. If the hard limit is too
    low, ClickException says so now, and not when the first partition cannot be opened.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_MOST_ON_MACOS, most):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < FILES_OF_A_NODE:
        raise click.ClickException(
            f"this process may open {files} files and needs {FILES_OF_A_NODE}:"
            f" raise the hard limit (ulimit -Hn {FILES_OF_A_NODE}, or LimitNOFILE= of its service)"
        )


def journal_sink(path: str, *, node_id: int) -> EventSink:
    """Return a sink that appends to the journal at `path`, which stays open."""

    def warn(error: Exception) -> None:
        tell(f"understudy: {path} ends here: {error}")

    journal = JournalWriter.open(OsFileSystem(), path, on_refusal=warn)
    return journal.sink(broker=node_id, clock=TrioClock())


def reporting_bugs(sink: EventSink) -> "OnBug":
    """Return the handler of bugs in production: it reports them, and the node goes on."""

    def report(error: BaseException) -> None:
        boundary = "; ".join(getattr(error, "__notes__", ())) or "a task"
        sink(BugCaught(boundary=boundary, error=repr(error)))
        tell("".join(traceback.format_exception(error)))

    return report


async def run_until_stopped(
    node: "Node", *, until: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Run a node until a signal has stopped it, or the end of `until`."""
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals, raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, node, signals, nursery)
            if until is not None:
                nursery.start_soon(_stop_after, node, until)
            await node.run()
            nursery.cancel_scope.cancel()


async def _stop_on_signal(node: "Node", signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
    await anext(signals)
    node.shut_down()
    await anext(signals)
    nursery.cancel_scope.cancel()


async def _stop_after(node: "Node", until: Callable[[], Awaitable[object]]) -> None:
    await until()
    node.shut_down()


async def end_of_input() -> None:
    """Wait until the other end of standard input is closed."""
    while True:
        await trio.lowlevel.wait_readable(STANDARD_INPUT)
        if not os.read(STANDARD_INPUT, 4096):
            return
