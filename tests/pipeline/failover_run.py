"""A leader killed with SIGKILL under load, by real processes: what it leaves on disk."""

import contextlib
import time
from pathlib import Path

import attrs
from confluent_kafka import Producer

from replication.broker.nodes import HOST
from replication.cli.demo_run import CONFIG
from replication.cli.demo_workload import create_topic
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from replication.wire.metadata import MetadataResponsePartition

TOPIC = "orders"
PARTITIONS = 2
BROKERS = 3
RECORDS = 600
# Some segments of the least size to each partition.
VALUE_BYTES = 12 * 1024
SEGMENT_BYTES = 1024 * 1024
PATIENCE_SECONDS = 120


@attrs.frozen
class FailoverRun:
    """Where the data lies, who was killed and when, and which partitions it led."""

    data_dir: Path
    log_dirs: tuple[str, ...]
    victim: int
    led: frozenset[int]
    killed_ms: int
    restarted_ms: int
    acked: int


def run(data_dir: Path) -> FailoverRun:
    """Three brokers, one topic on all of them; the cluster is stopped when this returns."""
    config = CONFIG | {"log.segment.bytes": str(SEGMENT_BYTES)}
    with IsolatedCluster(data_dir, BROKERS, config=config) as cluster:
        cluster.wait_until_ready(PATIENCE_SECONDS)
        servers = cluster.bootstrap_servers
        create_topic(servers, TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
        victim = _wait(cluster)[0].leader_id
        led = frozenset(each.partition_index for each in _wait(cluster) if each.leader_id == victim)
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        acked = _produce(producer, range(RECORDS // 2))
        killed_ms = int(time.time() * 1000)
        cluster.kill(victim)
        acked += _produce(producer, range(RECORDS // 2, RECORDS))
        restarted_ms = int(time.time() * 1000)
        cluster.start(victim)
        _wait(cluster)
        log_dirs = tuple(str(cluster.log_dir(each)) for each in range(1, BROKERS + 1))
    return FailoverRun(data_dir, log_dirs, victim, led, killed_ms, restarted_ms, acked)


def _produce(producer: Producer, numbers: range) -> int:
    """Produce in small batches to every partition; return how many records the whole ISR acked."""
    acked: list[bool] = []
    for number in numbers:
        producer.produce(
            TOPIC,
            (b"value of record %d" % number).ljust(VALUE_BYTES),
            b"key-%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: acked.append(error is None),
        )
        if number % 20 == 0:
            producer.flush(PATIENCE_SECONDS)
    producer.flush(PATIENCE_SECONDS)
    return sum(acked)


def _wait(cluster: IsolatedCluster) -> list[MetadataResponsePartition]:
    """The topic's partitions, once every replica of each is in sync."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        partitions = _partitions(cluster.ports[0]) or _partitions(cluster.ports[1])
        if len(partitions) == PARTITIONS and all(
            len(each.isr_nodes) == BROKERS and each.leader_id > 0 for each in partitions
        ):
            return sorted(partitions, key=lambda each: each.partition_index)
        time.sleep(0.1)  # real brokers, in processes of their own: asked again, with a bound
    raise AssertionError(f"not every replica of {TOPIC} is in sync")


def _partitions(port: int) -> list[MetadataResponsePartition]:
    """As one broker tells; none where it does not answer, as who was just started."""
    with contextlib.suppress(OSError):
        for topic in fetch_metadata(HOST, port).topics:
            if topic.name == TOPIC:
                return list(topic.partitions)
    return []
