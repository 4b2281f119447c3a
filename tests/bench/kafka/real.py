"""Apache Kafka's side: four Java virtual machines, with its own defaults and its script's options.

The harness of tests/interop makes Kafka small and quick to start; here what it made smaller is
put back to what `kafka-server-start.sh` and Kafka's defaults say.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.bench.kafka.sides import BROKERS, RivalCluster
from tests.interop.kafka import Kafka

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
}


class RealKafka(Kafka):
    """With what the measures ask of either side."""

    def log_dir(self, node_id: int) -> Path:
        return self.log_dirs[node_id]


def _kafka(directory: Path, config: Mapping[str, str]) -> RealKafka:
    return RealKafka(
        data_dir=directory,
        brokers=len(BROKERS),
        properties=DEFAULTS | dict(config),
        java_options=OPTIONS,
    )


def open_kafka(directory: Path, config: Mapping[str, str]) -> AbstractContextManager[RivalCluster]:
    return _kafka(directory, config)


def start_kafka(directory: Path) -> AbstractContextManager[str]:
    """Formatted now, started on entry."""
    kafka = _kafka(directory, {})
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
