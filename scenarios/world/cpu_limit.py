"""A limit of processor time for one run, which virtual time cannot end.

A loop that awaits nothing holds trio up, and virtual time with it (`World.run` limits all else).
Only a signal ends it. Processor time is counted, not wall time: a busy machine makes no run fail.
"""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from replication.errors import UnderstudyError

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
