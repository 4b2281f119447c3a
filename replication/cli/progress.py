"""The progress of a command on standard error: a bar on a terminal, nothing in a pipe.

Rule 1: a command that ends within a second shows no bar, and does not import rich.

Rule 2: a command that prints its answer on the same terminal meanwhile shows no bar.

Rule 3: `update` and `say` may be called from any thread.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from replication.visible import visible_line
from storage.attributes import define

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOWN_AFTER_SECONDS = 1.0


@define(eq=False)
class Bar:
    """A progress bar; a call of `update` costs a look at the clock, and nothing without a terminal."""

    what: str
    is_seen: bool
    """Whether it is shown on a terminal."""
    _now: Callable[[], float]
    _began: float = attrs.field(init=False)
    _shown: "tuple[Progress, TaskID] | None" = attrs.field(init=False, default=None)
    _drawn: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._began = self._now()

    def update(self, done: int, total: int | None = None) -> None:
        """Show that `done` items are done, of `total` if that is known."""
        if (shown := self._show()) is not None:
            progress, task = shown
            progress.update(task, completed=done, total=total)
            self._draw_first()

    def say(self, what: str) -> None:
        """Show what is being done now."""
        self.what = what
        if (shown := self._show()) is not None:
            progress, task = shown
            progress.update(task, description=what)
            self._draw_first()

    def _show(self) -> "tuple[Progress, TaskID] | None":
        if not self.is_seen or self._now() < self._began + SHOWN_AFTER_SECONDS:
            return None
        if self._shown is None:
            progress = _bar()
            progress.start()
            self._shown = progress, progress.add_task(self.what, total=None)
        return self._shown

    def _draw_first(self) -> None:
        """Draw the first state at once; after that rich draws regularly."""
        if not self._drawn and self._shown is not None:
            self._drawn = True
            self._shown[0].refresh()

    def end(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()
            self._shown, self.is_seen = None, False


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Description(ProgressColumn):
        """The description as plain text: a topic's name is not markup."""

        def render(self, task: Any) -> Text:
            return Text(visible_line(task.description))

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Description(),
        console=Console(stderr=True),
        transient=True,
        # A redirected standard output must not go to the terminal.
        redirect_stdout=_is_terminal(sys.stdout),
    )


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())


@contextmanager
def progress(
    what: str, *, beside_output: bool = False, now: Callable[[], float] = time.monotonic
) -> Iterator[Bar]:
    """Show a bar for a block; with `beside_output`, not on a terminal with the command's answer."""
    is_seen = _is_terminal(sys.stderr) and not (beside_output and _is_terminal(sys.stdout))
    bar = Bar(what, is_seen, now)
    try:
        yield bar
    finally:
        bar.end()
