"""How far Spark is, on standard error: a line for each step, and a count of tasks on a terminal.

Spark runs a job inside one call that blocks, so another thread asks its status tracker.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import click

LOOK_SECONDS = 0.3
_CLEAR_LINE = "\r\x1b[K"


@attrs.define
class Progress:
    """Tells of steps, and where standard error is a terminal of tasks."""

    _watched: Any = None  # a SparkSession
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)
    _step: str = ""

    def step(self, what: str) -> None:
        """The job goes on to its next step."""
        self._step = what
        click.echo(f"{_CLEAR_LINE if sys.stderr.isatty() else ''}{what}", err=True)

    @contextlib.contextmanager
    def watching(self, session: Any) -> Iterator[None]:
        """Show the tasks of `session` while the block runs."""
        if not sys.stderr.isatty():
            yield
            return
        self._watched = session
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            click.echo(_CLEAR_LINE, err=True, nl=False)

    def _watch(self) -> None:
        assert self._watched is not None, "somebody is watched"
        tracker = self._watched.sparkContext.statusTracker()
        while not self._ended.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            done = sum(stage.numCompletedTasks for stage in known)
            total = sum(stage.numTasks for stage in known)
            if total:
                click.echo(f"{_CLEAR_LINE}{self._step}: {done}/{total} tasks", err=True, nl=False)
