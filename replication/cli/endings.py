"""How a command that is interrupted ends: like other Unix tools.

    | head -1                the reader is gone: SIGPIPE, without a message
    Ctrl-C                   SIGINT, without a message
    >/dev/full, >&-          one line, and exit code 1

The signal tells a shell that its loop or pipeline was interrupted; an exit code would hide that.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


def end_by(number: int) -> NoReturn:
    """End the process by a signal, as if the signal had no handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("that signal ends a process")


@contextmanager
def of_unix() -> Iterator[None]:
    """End the process by SIGPIPE when its reader is gone, and by SIGINT on Ctrl-C."""
    try:
        yield
    except BrokenPipeError:
        end_by(signal.SIGPIPE)
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
