"""The two sides: what the measures need of a cluster of three brokers, and how each is started.

Apache Kafka's side is a Java virtual machine for each node. The harness of tests/interop makes Kafka small
and quick to start; here what it made smaller is put back to what `kafka-server-start.sh` and
Kafka's defaults say.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import attrs

from replication.broker.nodes import HOST
from replication.cli.isolated import IsolatedCluster
from tests.bench.kafka.comparison import KAFKA, OURS
from tests.bench.start_up import contiguous_ports
from tests.interop.kafka import Kafka

BROKERS = (1, 2, 3)
"""Ids of brokers, and the order of the bootstrap servers."""


class RivalCluster(Protocol):
    """Processes of their own, started and killed one by one."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def node_ids(self) -> list[int]:
        """Brokers, and controllers where they are others."""

    def pid(self, node_id: int) -> int: ...
    def log_dir(self, node_id: int) -> Path:
        """Return the directory where its partitions lie."""

    def kill(self, node_id: int) -> None:
        """SIGKILL, and gone when this returns."""

    def start(self, node_id: int) -> None: ...


Opener = Callable[[Path, Mapping[str, str], int], AbstractContextManager[RivalCluster]]
"""Starts three brokers and so many controllers with their data there and these properties; does
not wait for them.
"""
Starter = Callable[[Path, int], AbstractContextManager[str]]
"""Prepares three brokers and so many controllers; entered, they start the way that a user starts
them. Where they are.
"""


@attrs.frozen
class Side:
    open: Opener
    start: Starter


def open_ours(
    directory: Path, config: Mapping[str, str], controllers: int
) -> AbstractContextManager[RivalCluster]:
    return IsolatedCluster(
        directory,
        brokers=len(BROKERS),
        controllers=controllers,
        ports=own_ports(controllers),
        config=dict(config),
    )


def own_ports(controllers: int = 1) -> list[int]:
    """Return ports for three brokers and controllers that no outgoing connection gets."""
    count = len(BROKERS) + controllers
    first = contiguous_ports(count)
    return list(range(first, first + count))


@contextmanager
def start_ours(directory: Path, controllers: int) -> Iterator[str]:
    """`understudy up --isolated`."""
    ports = own_ports(controllers)
    command = [sys.executable, "-m", "replication.cli", "up", "--isolated", "-n", str(len(BROKERS))]
    command += ["--data-dir", str(directory), "--base-port", str(ports[0])]
    command += ["--controllers", str(controllers)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield ",".join(f"{HOST}:{port}" for port in ports[: len(BROKERS)])
    finally:
        process.terminate()
        process.wait()


def pids(cluster: RivalCluster) -> list[int]:
    return [cluster.pid(node_id) for node_id in cluster.node_ids]


# Apache Kafka.

# KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS, as they are where nobody sets them.
OPTIONS: Final = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
DEFAULTS: Final = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "background.threads": "10",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "1000",
}


class RealKafka(Kafka):
    """A Kafka with the methods that the measures need of either side."""

    def log_dir(self, node_id: int) -> Path:
        return self.log_dirs[node_id]


def _kafka(directory: Path, config: Mapping[str, str], controllers: int) -> RealKafka:
    return RealKafka(
        data_dir=directory,
        brokers=len(BROKERS),
        controllers=controllers,
        properties=DEFAULTS | dict(config),
        java_options=OPTIONS,
    )


def open_kafka(
    directory: Path, config: Mapping[str, str], controllers: int
) -> AbstractContextManager[RivalCluster]:
    return _kafka(directory, config, controllers)


MIXED_LEADERS = {"Kafka's leader": 1, "our leader": 2}
MIXED_FOLLOWERS = {OURS: 4, KAFKA: 3}


def open_mixed(
    directory: Path, config: Mapping[str, str], controllers: int
) -> AbstractContextManager[RivalCluster]:
    """One cluster with two brokers of each kind; the controller is Kafka's."""
    return RealKafka(
        data_dir=directory,
        brokers=len(MIXED_LEADERS) + len(MIXED_FOLLOWERS),
        controllers=controllers,
        properties=DEFAULTS | dict(config),
        java_options=OPTIONS,
        ours={MIXED_LEADERS["our leader"], MIXED_FOLLOWERS[OURS]},
    )


def start_kafka(directory: Path, controllers: int) -> AbstractContextManager[str]:
    """Formatted now, started on entry."""
    kafka = _kafka(directory, {}, controllers)
    kafka.format()
    return _started(kafka)


@contextmanager
def _started(kafka: RealKafka) -> Iterator[str]:
    try:
        for node_id in kafka.node_ids:
            kafka.spawn(node_id)
        yield kafka.bootstrap_servers
    finally:
        kafka.kill_all()
