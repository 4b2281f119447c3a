"""Runs that do not end: a limit of processor time, and where their tasks wait.

    ReplicaFetcherThread-0-1 at scenarios.world.streams:203 receive_some (2 tasks)

A loop that awaits nothing holds trio up, and virtual time with it (`World.run` limits all else).
Only a signal ends it. Processor time is counted, not wall time: a busy machine makes no run fail.
"""

import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import trio

from replication.errors import UnderstudyError

OURS = frozenset({"replication", "scenarios", "storage", "tests"})
MOST = 12


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of the run that is under way in this thread."""
    root = trio.lowlevel.current_root_task()
    assert root is not None, "asked inside a run of trio"
    left = [root]
    while left:
        task = left.pop()
        yield task
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def where_tasks_wait() -> str:
    """Return where the tasks stand, those of which there are most first."""
    found = Counter(place for task in all_tasks() if (place := _place_of(task)))
    places = [
        f"{place} ({count} task{'' if count == 1 else 's'})" for place, count in found.most_common()
    ]
    more = [f"and {len(places) - MOST} other places"] if len(places) > MOST else []
    return "; ".join(places[:MOST] + more)


def _place_of(task: trio.lowlevel.Task) -> str:
    """Return the innermost line of ours that the task is in; "" where it is in none."""
    place = ""
    for frame, line in task.iter_await_frames():
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in OURS and not task.child_nurseries:
            place = f"{module}:{line} {frame.f_code.co_name}"
    return f"{task.name} at {place}" if place else ""


PATIENCE_SECONDS = 60.0
"""The default limit; most runs take less than one."""
AGAIN_SECONDS = 1.0
ENDLESS = "a run has an end"


class EndlessRunError(UnderstudyError):
    """A run was given up because it would not have ended by itself."""

    rule = ENDLESS


class _OutOfTime(BaseException):
    """The signal's exception: no `Exception`, which a task might take for its own."""


@contextmanager
def limit_cpu_time(seconds: float) -> Iterator[None]:
    """Raise `EndlessRunError` once the block has used so many seconds of processor time.

    Outside of a process's main thread, where no signal arrives, there is no limit.
    """
    stood: list[str] = []

    def give_up(_signal: int, frame: FrameType | None) -> None:
        if not stood:
            stood.append("".join(traceback.format_stack(frame, limit=8)))
        raise _OutOfTime

    try:
        before = signal.signal(signal.SIGVTALRM, give_up)
    except ValueError:  # not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN_SECONDS)
    try:
        yield
    except BaseException as error:
        if not stood:
            raise
        raise EndlessRunError(
            f"not done after {seconds:g} s of the processor's time; it stood at\n{stood[0]}"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
