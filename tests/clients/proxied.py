"""`understudy proxy` as a process in front of a cluster."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

STOP_SECONDS = 30


@attrs.frozen
class ProxyProcess:
    """A proxy that runs, and the line that it has printed."""

    bootstrap_servers: str
    control: str
    """The URL of its fault rules."""
    process: subprocess.Popen[str]


@contextmanager
def proxy_process(servers: str, *arguments: str) -> Iterator[ProxyProcess]:
    """Run a proxy in front of the first of `servers`, at free ports; it must end well."""
    upstream = servers.partition(",")[0]
    command = [sys.executable, "-m", "replication.cli", "proxy", "--upstream", upstream]
    command += ["--port", "0", "--control", "0", "--output", "json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            control = said["urls"]["control"].removesuffix("/openapi.json")
            yield ProxyProcess(said["bootstrap_servers"], f"{control}/control/faults", process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0
        finally:
            process.kill()
