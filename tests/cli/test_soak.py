"""Half a minute of bad luck: brokers and the controller die by SIGKILL, one after the other.

An idempotent producer goes on all the while. In the end no acknowledged record is lost,
nothing is there twice, and the replicas are equal byte for byte. `SOAK_SEED` picks another
run, `SOAK_SECONDS` a longer one.
"""

import contextlib
import os
import random
import time
from pathlib import Path

import attrs
import pytest

from replication.broker.nodes import CONTROLLER_ID, HOST
from replication.cli.demo_run import CONFIG
from replication.cli.demo_workload import DemoWorkload, create_topic, read_back
from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import fetch_metadata
from replication.verify.directories import verify_directories
from storage.filesystem import OsFileSystem

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.deep]

TOPIC = "soak"
PARTITIONS = 6
BATCH = 200
MOST_BROKERS_DOWN = 2
PATIENCE_SECONDS = 120
SEED = int(os.environ.get("SOAK_SEED", "1"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "18"))
# Small segments, so that there is rolling, flushing and recovery at their edges.
SOAK_CONFIG = CONFIG | {"log.segment.bytes": "1200000", "replica.lag.time.max.ms": "3000"}


@attrs.define
class BadLuck:
    """Kills a node and starts it again, up to two brokers and the controller at a time.

    What SIGKILL leaves in the kernel is still there: not even a partition that had nobody left
    in its ISR may lose anything, once its last member is back.
    """

    cluster: IsolatedCluster
    chance: random.Random
    down: dict[int, float] = attrs.field(factory=dict)
    next_at: float = 0.0
    answer: list[str] = attrs.field(factory=list)

    def strike(self, now: float) -> None:
        for node in [node for node, until in self.down.items() if until <= now]:
            self.start(node)
        if now < self.next_at:
            return
        self.next_at = now + self.chance.uniform(0.5, 3.0)
        node = self.chance.choice([CONTROLLER_ID, *range(1, self.cluster.brokers + 1)])
        brokers_down = [each for each in self.down if each != CONTROLLER_ID]
        if node in self.down or (node != CONTROLLER_ID and len(brokers_down) == MOST_BROKERS_DOWN):
            return
        self.cluster.kill(node)
        self.answer.append(f"killed {node}")
        self.down[node] = now + self.chance.uniform(0.2, 4.0)

    def start(self, node: int) -> None:
        del self.down[node]
        self.cluster.start(node)
        self.answer.append(f"started {node}")

    def end(self) -> None:
        for node in list(self.down):
            self.start(node)


def in_sync(cluster: IsolatedCluster) -> dict[int, set[int]]:
    """Return each partition's ISR, as the first broker that answers knows it."""
    for port in cluster.ports[: cluster.brokers]:
        with contextlib.suppress(OSError):
            for topic in fetch_metadata(HOST, port).topics:
                if topic.name == TOPIC:
                    return {each.partition_index: set(each.isr_nodes) for each in topic.partitions}
    return {}


def wait_for_isr(cluster: IsolatedCluster) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    isrs: dict[int, set[int]] = {}
    while time.monotonic() < deadline:
        isrs = in_sync(cluster)
        if len(isrs) == PARTITIONS and all(len(isr) == cluster.brokers for isr in isrs.values()):
            return
        time.sleep(0.1)
    raise AssertionError(f"not every replica came back in sync: {isrs}")


def lines(chance: random.Random) -> list[bytes]:
    return [chance.randbytes(chance.randrange(0, 600)) for _ in range(BATCH)]


def test_nothing_acknowledged_is_lost_when_any_node_dies(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with IsolatedCluster(tmp_path, brokers=3, config=SOAK_CONFIG) as cluster:
        cluster.wait_until_ready(PATIENCE_SECONDS)
        servers = cluster.bootstrap_servers
        create_topic(servers, TOPIC, partitions=PARTITIONS, replication_factor=3)
        wait_for_isr(cluster)
        workload = DemoWorkload(servers, TOPIC)
        luck = BadLuck(cluster, random.Random(SEED))
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < SECONDS:
            luck.strike(now)
            if workload.outstanding() < 20 * BATCH:
                for line in lines(chance):
                    workload.send(line)
            workload.poll(0.05)
        luck.end()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while workload.outstanding() and time.monotonic() < deadline:
            workload.poll(0.1)
        wait_for_isr(cluster)
        ledger = workload.ledger
        for message in read_back(servers, TOPIC, partitions=PARTITIONS):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes), "every record carries its number as its key"
            ledger.on_read(int.from_bytes(key, "big"), value if isinstance(value, bytes) else b"")
        directories = [str(cluster.log_dir(node)) for node in (1, 2, 3)]
    verdict = ledger.verdict()
    answer = f"seed {SEED}: {verdict}, {workload.errors}, {luck.answer}"
    assert (verdict.acked_and_lost, verdict.duplicated, ledger.altered) == (0, 0, 0), answer
    assert verdict.never_acked == 0, answer
    comparison = verify_directories(OsFileSystem(), directories, copies=3)
    assert comparison.same, f"{answer}: {comparison}"
