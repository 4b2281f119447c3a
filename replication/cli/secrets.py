"""Passwords on the command line and in files, kept from other users of this machine.

-X ssl.key.password=...     overwritten in this process's arguments, which `ps` shows to everyone;
                            before that it is visible, and a shell may remember it
--config FILE               visible only to users who may read the file
server.properties           written for a node in a process of its own; only its owner may read it
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|keystore\.key$|add\.scram$", re.IGNORECASE)
# Fields of /proc/self/stat, counted after the program's name, which may contain blanks.
_ARG_START, _ARG_END = 45, 46


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """Return the values that must stay secret."""
    return [value for key, value in properties.items() if value and _SECRET.search(key)]


def hide_in_arguments(values: Iterable[str]) -> None:
    """Overwrite `values` in the arguments that this process and its forks show.

    Only Linux has a way to do that; elsewhere they stay.
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
    except (OSError, ValueError, IndexError):  # not Linux, or /proc is not mounted
        return


def write_private(path: Path, text: str) -> None:
    """Make `text` the contents of a file that only its owner may read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # an existing file may be open to all
        file.truncate()
        file.write(text)
