"""How a command ends where it does not end by itself: as Unix's own tools do.

    | head -1                nobody reads on: SIGPIPE, and nothing is said
    Ctrl-C                   SIGINT, and nothing is said
    >/dev/full, >&-          one line, and exit code 1

A shell learns from the signal that its loop or pipeline was interrupted; an exit code of our own
would hide that.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


def end_by(number: int) -> NoReturn:
    """As if the signal had never been handled."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("that signal ends a process")


@contextmanager
def of_unix() -> Iterator[None]:
    """What is raised for want of a reader, or by Ctrl-C, ends the process by the signal for it."""
    try:
        yield
    except BrokenPipeError:
        end_by(signal.SIGPIPE)
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
