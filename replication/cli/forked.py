"""A command in a fork of this process, which has already imported its modules.

    up --isolated ──imports once──┬─fork─> understudy broker --config controller/...
                                  ├─fork─> understudy broker --config broker-1/...
                                  └─fork─> ...

Four interpreters that each import a broker take four times as long as one. A fork shares nothing
else: it has its own standard streams and process group, no other file of its parent, and never
returns to its parent's code. The parent must not have threads.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import attrs

FIRST_FILE_OF_ITS_PARENT = 3  # after the standard streams
MOST_FILES_OF_ITS_PARENT = 1024
POLL_SECONDS = 0.005


@attrs.define
class ForkedProcess:
    """A child process, with the methods of `subprocess.Popen` that nodes need."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_command(arguments: Sequence[str], *, stdin: int, output: int) -> ForkedProcess:
    """Run `understudy ARGUMENTS...` in a fork, on these descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return ForkedProcess(pid)
    code = 1
    try:
        _leave_parent(stdin=stdin, output=output)
        code = _run(arguments)
    finally:
        os._exit(code)  # in any case: the parent's code must not be unwound here


def _leave_parent(*, stdin: int, output: int) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(stdin, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(FIRST_FILE_OF_ITS_PARENT, MOST_FILES_OF_ITS_PARENT)


def _run(arguments: Sequence[str]) -> int:
    from replication.cli import main

    try:
        main(arguments)
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0
    return 0
