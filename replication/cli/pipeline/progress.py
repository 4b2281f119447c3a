"""How far Spark is, on standard error: its steps and their tasks as a bar on a terminal.

Spark runs a job inside one call that blocks, so another thread asks its status tracker.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import attrs

from replication.cli.progress import Bar, progress

LOOK_SECONDS = 0.3


@attrs.define
class Progress:
    """Tells of steps, and of tasks while somebody looks."""

    _bar: Bar | None = attrs.field(init=False, default=None)
    _ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    def step(self, what: str) -> None:
        """The job goes on to its next step."""
        if self._bar is not None:
            self._bar.say(what)

    @contextlib.contextmanager
    def watching(self, session: Any) -> Iterator[None]:
        """Show the tasks of `session` while the block runs."""
        with progress("starting") as self._bar:
            thread = None
            if self._bar.is_seen:
                thread = threading.Thread(
                    target=self._watch, args=[self._bar, session], daemon=True
                )
                thread.start()
            try:
                yield
            finally:
                self._ended.set()
                if thread is not None:
                    thread.join()

    def _watch(self, bar: Bar, session: Any) -> None:
        tracker = session.sparkContext.statusTracker()
        while not self._ended.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            total = sum(stage.numTasks for stage in known)
            if total:
                bar.update(sum(stage.numCompletedTasks for stage in known), total)
