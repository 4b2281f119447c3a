"""`understudy verify` of live brokers, one of which is down: its output and its exit code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.cluster.cluster import Cluster
from replication.replica_manager.bytes_in import metric
from replication.replica_manager.topic_meters import FETCHES
from replication.testing import ThreadedCluster
from tests.cli.commands import Command
from tests.cli.test_verify import lay

pytestmark = pytest.mark.slow

BATCHES = 200
NOT_LED = "it has no leader (of its brokers away: 2)"


@pytest.fixture(scope="module")
def brokers() -> Iterator[ThreadedCluster]:
    """Two brokers, of which broker 2 is down; so t-1 has no leader."""
    with ThreadedCluster(brokers=2, config={"auto.create.topics.enable": "false"}) as cluster:
        understudy = Command(cluster.bootstrap_servers)
        understudy("topic", "create", "t", "--replica-assignment", "1,2")
        understudy("topic", "create", "u", "--replica-assignment", "1")
        for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
            understudy(
                "produce", topic, "--partition", str(partition), stdin=b"x\n"
            )  # fmt: skip
        cluster.kill_broker(2)
        cluster.until(lambda: cluster.leader("t", 1) is None, what="nobody leads t-1")
        yield cluster


@pytest.mark.deep
def test_a_partition_without_a_leader_is_named_and_the_others_are_compared(
    brokers: ThreadedCluster, understudy: Command
) -> None:
    servers = brokers.bootstrap_servers
    both = ["verify", servers, servers, "--timeout", "4000"]
    done = understudy(*both, exit_code=2)
    assert done.stdout.splitlines() == [
        "t-0: same in 2 copies, offsets 0 to 1 (exclusive), 1 batches, 1 records",
        f"t-1: could not be compared: {servers}: {NOT_LED}",
        "u-0: same in 2 copies, offsets 0 to 1 (exclusive), 1 batches, 1 records",
    ]
    assert done.stderr == "understudy: 1 of 3 could not be compared\n"
    led = understudy(*both, "--topics-include", "u")
    assert len(led.stdout.splitlines()) == 1


def test_a_partition_not_compared_takes_precedence_over_one_that_differs(
    brokers: ThreadedCluster, understudy: Command, tmp_path: Path
) -> None:
    servers = brokers.bootstrap_servers
    for partition in ("t-0", "t-1", "u-0"):
        lay(tmp_path, partition, b"another")
    against = ["verify", servers, str(tmp_path), "--timeout", "4000"]
    answer = json.loads(understudy(*against, "--output", "json", exit_code=2).stdout)
    assert answer["same"] is False
    differs, not_led, differs_too = answer["partitions"]
    assert [each["result"] for each in (differs, differs_too)] == ["different", "different"]
    assert not_led == {
        "topic": "t",
        "partition": 1,
        "directories": [str(tmp_path), servers],
        "result": "not compared",
        "reason": f"{servers}: {NOT_LED}",
    }
    understudy(*against, "--partitions", "0", exit_code=1)


def test_the_sizes_and_times_of_kafkas_tool_are_those_of_the_fetches(
    brokers: ThreadedCluster, understudy: Command
) -> None:
    lines = b"".join(b"%d\n" % number for number in range(BATCHES))
    understudy("topic", "create", "many", "--replica-assignment", "1")
    # Each record in a batch of its own.
    understudy("produce", "many", "-X", "batch.size=1", stdin=lines)
    both = ["--broker-list", brokers.bootstrap_servers] * 2
    wanted = ["--topics-include", "many", "--max-wait-ms", "100", "--time", "-2"]
    before = fetches_of(brokers, "many")
    done = understudy("verify", *both, *wanted)
    few = fetches_of(brokers, "many") - before
    assert f"{BATCHES} batches" in done.stdout
    assert done.stderr == ""
    small = ["--fetch-size", "200", "--report-interval-ms", "1"]
    done = understudy("verify", *both, *wanted, *small)
    assert f"{BATCHES} batches" in done.stdout
    assert fetches_of(brokers, "many") - before - few > 10 * few
    assert done.stderr.startswith("many-0: the same up to offset 64 so far\n")


def fetches_of(brokers: ThreadedCluster, topic: str) -> float:
    """Return the number of fetches that broker 1 has answered."""

    async def read(cluster: Cluster) -> float:
        name = metric(FETCHES, topic)
        return cluster.brokers[1].metrics.read(name) if name in cluster.brokers[1].metrics else 0

    return brokers.with_cluster(read)
