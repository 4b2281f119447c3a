"""A bound on the processor's time of one run, for what virtual time cannot end.

A loop that awaits nothing holds trio up, and virtual time with it (`World.run` bounds all else).
Only a signal ends it. The processor's time is counted, not the wall's: on a busy machine a run
is not given up any sooner.
"""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from replication.errors import UnderstudyError

PATIENCE_SECONDS = 60.0
"""Most runs take less than one."""
AGAIN_SECONDS = 1.0
ENDLESS = "a run has an end"


class EndlessRunError(UnderstudyError):
    """A run was given up, because it would not have ended by itself."""

    rule = ENDLESS


class _OutOfPatience(BaseException):
    """Raised wherever the run is: not an `Exception`, which a task might take for its own."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `EndlessRunError` once the block has taken so much of the processor's time.

    Nothing is bounded outside of a process's main thread, where no signal arrives.
    """
    stood: list[str] = []

    def give_up(_signal: int, frame: FrameType | None) -> None:
        if not stood:
            stood.append("".join(traceback.format_stack(frame, limit=8)))
        raise _OutOfPatience

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
