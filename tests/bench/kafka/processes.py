"""The kernel's counters of processes: processor time, memory, bytes sent (Linux)."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted from what follows the parenthesised name.
USER_TIME, SYSTEM_TIME = 11, 12


def worked_seconds(pids: Iterable[int]) -> float:
    """Processor time that they have had so far, the kernel's on their behalf included."""
    return sum(map(_ticks, pids)) / TICKS_PER_SECOND


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found, "every process has a resident set"
    return int(found[1]) / 1024


def sent_bytes(pid: int, *, to_port: int) -> int:
    """Return the bytes that it has sent over connections that are open now, to any peer."""
    command = ["ss", "--no-header", "-tnip", "-O", f"( dport = :{to_port} )"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sum(
        int(found[1])
        for line in lines
        if f"pid={pid}," in line and (found := re.search(r"bytes_sent:(\d+)", line))
    )
