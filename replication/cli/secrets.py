"""Passwords that a command is given: who else on this machine may read them.

-X ssl.key.password=...     overwritten in this process's arguments, which `ps` shows to all;
                            until then they are seen, and a shell may remember them
--config FILE               seen by nobody who may not read the file
server.properties           of a node that runs as a process: for its owner alone
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|keystore\.key$|add\.scram$", re.IGNORECASE)
# Of /proc/self/stat, behind the name of the program, which may hold blanks.
_ARG_START, _ARG_END = 45, 46


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """Return the values that nobody else should read."""
    return [value for key, value in properties.items() if value and _SECRET.search(key)]


def hide_in_arguments(values: Iterable[str]) -> None:
    """Overwrite `values` in the arguments that this process shows, and its forks with it. Where
    the system has no way to do that, they stay.
    """
    encoded = [os.fsencode(value) for value in values]
    if not encoded:
        return
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            arguments = memory.read(end - start)
            for value in encoded:
                arguments = arguments.replace(b"=" + value, b"=" + b"*" * len(value))
            memory.seek(start)
            memory.write(arguments)
    except (OSError, ValueError, IndexError):  # no Linux, or nothing mounted there
        return


def write_private(path: Path, text: str) -> None:
    """Make `text` the contents of a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # one that was there may be open to all
        file.truncate()
        file.write(text)
