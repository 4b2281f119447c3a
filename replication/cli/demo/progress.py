"""How the demo tells a person how far it is."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TaskID, TextColumn


class Progress:
    """What the demo reports its progress to."""

    def step(self, what: str) -> None:
        """Note that the demo begins its next step."""

    def sent(self, done: int, total: int) -> None:
        """Note that `done` of `total` lines have been handed to the client."""


class ShownProgress(Progress):
    """A line for each step, and a bar for the records."""

    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def step(self, what: str) -> None:
        self._bars.console.print(f"  {what}", highlight=False)
        self._bars.update(self._task, description=what)

    def sent(self, done: int, total: int) -> None:
        self._bars.update(self._task, completed=done, total=total)


def bars_on(console: Console) -> Bars:
    """Return bars that are gone from `console` when the demo ends."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("lines  {task.description}"))
    return Bars(*columns, console=console, transient=True)
