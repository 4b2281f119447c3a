"""From a cold start of the command to three brokers that answer Metadata.

The floor is a Python that imports what the project cannot do without (trio, attrs, click,
msgpack, crc32c) and exits: below that no start can come.

Both run on compiled bytecode, as an installed package does: it is written to a scratch
directory by a start of each that is not measured.
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from replication.broker.nodes import HOST
from replication.cli.probe import broker_ids
from tests.bench.figures import Figure, interleaved

ROUNDS = 9
BROKERS = {1, 2, 3}
PATIENCE_SECONDS = 60


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as bytecode:
        environment = with_bytecode_in(bytecode)
        for name, flags in (("in one process", []), ("isolated", ["--isolated"])):
            start(flags, environment)
            imports(environment)
            ours, floor = interleaved(
                lambda flags=flags: start(flags, environment),  # type: ignore[misc]
                lambda: imports(environment),
                rounds=ROUNDS,
            )
            yield Figure(f"three brokers ready, {name}", ours, floor, "ms")


def with_bytecode_in(directory: str) -> dict[str, str]:
    """This environment, in which Python keeps what it has compiled."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": directory}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def imports(environment: dict[str, str]) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-c", "import trio, attrs, click, msgpack, crc32c"]
    subprocess.run(command, check=True, env=environment)
    return (time.perf_counter() - began) * 1000


def start(flags: list[str], environment: dict[str, str]) -> float:
    """Milliseconds until every broker knows every broker."""
    base_port = contiguous_ports(4)
    with tempfile.TemporaryDirectory() as data_dir:
        command = [sys.executable, "-m", "replication.cli", "up", "-n", "3"]
        command += ["--data-dir", data_dir, "--base-port", str(base_port), *flags]
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        try:
            for port in range(base_port, base_port + 3):
                while broker_ids(HOST, port) != BROKERS:
                    if process.poll() is not None or time.perf_counter() - began > PATIENCE_SECONDS:
                        raise RuntimeError(f"{' '.join(command)} did not come up")
                    time.sleep(0.002)
            return (time.perf_counter() - began) * 1000
        finally:
            process.terminate()
            process.wait()


def contiguous_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody listens on.

    Below those that the kernel gives to outgoing connections: one of these may take a port
    between our look and the broker's.
    """
    while True:
        base = random.randrange(10_000, 30_000)
        if all(_is_free(port) for port in range(base, base + count)):
            return base


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0
