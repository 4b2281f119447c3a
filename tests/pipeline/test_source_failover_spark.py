"""Spark and a cluster of real processes: leaders die, the driver dies, and each record is there once."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from confluent_kafka import Producer

from replication.broker.nodes import HOST
from replication.cli.demo_run import CONFIG
from replication.cli.demo_workload import create_topic
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from tests.pipeline.streaming_driver import start

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.deep]

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    settings = {
        **CONFIG,
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }
    directory = tmp_path_factory.mktemp("cluster")
    with IsolatedCluster(directory, brokers=3, config=settings) as made:
        made.wait_until_ready(PATIENCE_SECONDS)
        yield made


def until(what: Callable[[], Any]) -> Any:
    """Wait until `what` gives something, and return that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)  # real brokers and a real driver: asked again, with a bound
    raise AssertionError("it did not happen in time")


def leader(cluster: IsolatedCluster, topic: str) -> int | None:
    """Return the leader of partition 0, or None while no broker names one."""
    for port in cluster.ports[: cluster.brokers]:
        with contextlib.suppress(OSError):  # it is the one that was killed, on its way back
            for each_topic in fetch_metadata(HOST, port).topics:
                if each_topic.name == topic:
                    found = [
                        each.leader_id for each in each_topic.partitions if not each.partition_index
                    ]
                    return found[0] if found and found[0] > 0 else None
    return None


def produce(cluster: IsolatedCluster, topic: str, numbers: range) -> None:
    """Each of them once, whatever dies meanwhile."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 0,
            "linger.ms": 1,
            "batch.num.messages": 20,
        }
    )
    failed: list[Any] = []
    for number in numbers:
        producer.produce(
            topic,
            str(number),
            partition=number % 2,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


@contextlib.contextmanager
def driver(cluster: IsolatedCluster, topic: str, work: Path) -> Iterator[Callable[[], None]]:
    """A driver in a session of its own; what is given kills it, and its JVM with it."""
    command = [sys.executable, "-m", "tests.pipeline.streaming_driver"]
    with (work / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, cluster.bootstrap_servers, topic, str(work)],
            start_new_session=True,
            stdout=log,
            stderr=log,
        )

    def kill() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    try:
        yield kill
    finally:
        kill()


def commits(work: Path) -> int:
    """Return how many micro-batches are done."""
    return len([path for path in work.glob("checkpoint/commits/*") if path.name.isdigit()])


def test_each_record_is_in_the_table_once_though_a_leader_and_the_driver_die(
    spark: Any, cluster: IsolatedCluster, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap_servers, "orders", partitions=2, replication_factor=3)
    victim = until(partial(leader, cluster, "orders"))
    produce(cluster, "orders", range(300))
    with driver(cluster, "orders", tmp_path) as kill:
        until(lambda: commits(tmp_path) >= 1)
        cluster.kill(victim)
        produce(cluster, "orders", range(300, 600))
        done = commits(tmp_path)
        until(lambda: commits(tmp_path) >= min(done + 1, 6))
        kill()
    start(
        spark, cluster.bootstrap_servers, "orders", tmp_path, availableNow=True
    ).awaitTermination()
    cluster.start(victim)
    rows = spark.read.parquet(str(tmp_path / "table")).select("value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(600))


def test_a_table_goes_into_a_topic_and_a_stream_from_it_into_another(
    spark: Any, cluster: IsolatedCluster, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    for topic in ("first", "second"):
        create_topic(cluster.bootstrap_servers, topic, partitions=2, replication_factor=3)
        until(partial(leader, cluster, topic))
    table = spark.range(500).selectExpr(
        "cast(id as string) value", "cast(id as string) key", "'first' topic"
    )
    table.write.format("understudy").options(**servers).mode("append").save()
    copied = (
        spark.readStream.format("understudy")
        .options(**servers, subscribe="first", startingOffsets="earliest")
        .load()
        .writeStream.format("understudy")
        .options(**servers, topic="second", transactionalIdPrefix="copy")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    copied.awaitTermination()
    committed = {"kafka.isolation.level": "read_committed", "subscribe": "second"}
    rows = spark.read.format("understudy").options(**servers, **committed).load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(500))
    assert all(row.key == row.value for row in rows)
    with pytest.raises(PySparkException, match="mode overwrite"):
        table.write.format("understudy").options(**servers).mode("overwrite").save()
