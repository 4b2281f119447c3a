"""`understudy follow` as a process, killed at any moment, and the promotion of its copy."""

import json
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from replication.cli import group
from replication.cli.isolated import IsolatedCluster
from replication.client.admin import Admin, NewTopic
from replication.verify import verify_directories
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition
from tests.cli.test_up import running, stopped, table_of
from tests.interop.own_clients import asked_until

pytestmark = [pytest.mark.slow, pytest.mark.client]

SECONDS = 60.0
KILLS = 3


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    """One broker with a topic of two partitions."""
    with IsolatedCluster(tmp_path_factory.mktemp("source"), brokers=1) as cluster:
        cluster.wait_until_ready(SECONDS)
        trio.run(make_topic, cluster.bootstrap_servers)
        yield cluster


async def make_topic(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=2)])


def follow(source: IsolatedCluster, copy: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "replication.cli", "follow", "--topic", "t"]
    command += ["--bootstrap-server", source.bootstrap_servers, "--to", str(copy), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def produce(source: IsolatedCluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap_servers, "linger.ms": "1"})
    for number in range(count):
        producer.produce("t", b"%d " % number * 50, partition=number % 2)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def bytes_in(copy: Path) -> int:
    return sum(path.stat().st_size for path in copy.glob("broker-1/log/t-*/*.log"))


def wait_for_more(copy: Path, than: int) -> None:
    deadline = time.monotonic() + SECONDS
    while bytes_in(copy) <= than:
        assert time.monotonic() < deadline, "nothing was copied"
        time.sleep(0.01)  # another process writes: looked at again, with a bound


def assert_same(source: IsolatedCluster, copy: Path, brokers: int = 1) -> None:
    copies = [str(copy / f"broker-{each}/log") for each in range(1, brokers + 1)]
    compared = verify_directories(OsFileSystem(), [str(source.log_dir(1)), *copies])
    results = [str(each) for each in compared.partitions if each.partition.topic == "t"]
    assert len(results) == 2
    assert all(f": same in {brokers + 1} copies" in each for each in results), results


@pytest.mark.deep
def test_a_copy_killed_at_any_moment_continues_at_its_log_end(
    source: IsolatedCluster, tmp_path: Path
) -> None:
    copy, chance = tmp_path / "copy", random.Random(7)
    for _ in range(KILLS):
        produce(source, 2000)
        before = bytes_in(copy)
        follower = follow(source, copy)
        try:
            wait_for_more(copy, before)
            time.sleep(chance.uniform(0, 0.05))  # any moment at which it writes
        finally:
            follower.kill()
            follower.communicate()
    said, _ = (last := follow(source, copy, "--until-caught-up")).communicate(timeout=SECONDS)
    assert last.returncode == 0, said.decode()
    assert_same(source, copy)
    with running("up", "--any-port", "--data-dir", str(copy)) as served:
        ((_, _, address),) = table_of(served, 1)
        assert why_not_written(address) == "POLICY_VIOLATION"
        assert stopped(served, signal.SIGTERM) == 0
    assert_same(source, copy)
    shown = CliRunner().invoke(group, ["promote", str(copy), "--output", "json"])
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)["partitions"]
    assert [(each["not_copied"], each["new_epoch"]) for each in facts] == [(0, 100), (0, 100)]
    done = CliRunner().invoke(group, ["promote", str(copy), "--offline", "--execute"])
    assert done.exit_code == 0, done.output
    again = follow(source, copy)
    said, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 1
    assert (
        said.decode()
        .splitlines()[-1]
        .endswith("was promoted: it is a cluster of its own, and follows no other")
    )
    with running("up", "-n", "3", "--any-port", "--data-dir", str(copy)) as cluster:
        addresses = [row[2] for row in table_of(cluster, 3)]
        trio.run(spread, addresses)
        assert stopped(cluster, signal.SIGTERM) == 0
    assert_same(source, copy, brokers=3)


def test_the_lag_of_a_copy_is_served_to_prometheus(source: IsolatedCluster, tmp_path: Path) -> None:
    produce(source, 10)
    follower = follow(source, tmp_path / "copy", "--metrics-port", "0")
    try:
        assert follower.stdout is not None
        given = next(line for line in follower.stdout if line.startswith(b"metrics: "))
        url = given.decode().split()[1]
        deadline, wanted = time.monotonic() + SECONDS, [("0", 0.0), ("1", 0.0)]
        while (lags := lags_at(url)) != wanted:
            assert time.monotonic() < deadline, f"still {lags}"
            time.sleep(0.05)  # another process copies: asked again, with a bound
        assert sample(url, "kafka_server_brokertopicmetrics_replicationbytesin_total") > 0
    finally:
        follower.kill()
        follower.communicate()


def samples_at(url: str) -> dict[str, list[Sample]]:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        found: dict[str, list[Sample]] = {}
        for family in families:
            for each in family.samples:
                found.setdefault(each.name, []).append(each)
        return found


def lags_at(url: str) -> list[tuple[str, float]]:
    found = samples_at(url).get("kafka_server_fetcherlagmetrics_consumerlag", [])
    return sorted((each.labels["partition"], each.value) for each in found)


def sample(url: str, name: str) -> float:
    return sum(each.value for each in samples_at(url).get(name, []))


def why_not_written(servers: str) -> str:
    """Return why a produce request to a read-only copy is refused."""
    said: list[str] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("t", b"x", partition=0, on_delivery=lambda error, _: said.append(str(error)))
    assert producer.flush(SECONDS) == 0
    found = re.search(r"code=(\w+)", said[0])
    return found[1] if found else said[0]


async def spread(servers: list[str]) -> None:
    """Reassign the copy's partitions to all brokers."""
    partitions = [TopicPartition("t", number) for number in range(2)]
    async with Admin(servers) as admin:

        async def replicas_in_sync() -> list[int]:
            described = (await admin.describe_topics(["t"]))["t"]
            return [len(each.isr) for each in described.partitions]

        await asked_until(replicas_in_sync, lambda found: found == [1, 1])
        await admin.alter_partition_reassignments({each: [1, 2, 3] for each in partitions})
        await asked_until(replicas_in_sync, lambda found: found == [3, 3])
        await asked_until(admin.list_partition_reassignments, lambda found: not found)


@pytest.mark.deep
def test_a_missing_topic_ends_a_copy_that_is_to_catch_up(
    source: IsolatedCluster, tmp_path: Path
) -> None:
    with follow(source, tmp_path / "copy", "--topic", "nope", "--until-caught-up") as process:
        said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert said.decode().splitlines()[-1].endswith("; not in the source: nope")
