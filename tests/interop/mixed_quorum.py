"""Two controllers and a broker of ours, and a controller of Apache Kafka's, in one quorum.

    with mixed_quorum(directory) as mixed:
        mixed.create_topic("t")
        mixed.let_kafka_lead()
        mixed.check_logs()

A log is compared batch by batch, from where the shortest one begins: the same bytes at the same
offsets, in the same leader epochs.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from replication.cli.isolated import IsolatedCluster, free_ports
from replication.client.admin import Admin, NewTopic, QuorumDescription
from replication.config import BrokerConfig
from replication.controller.directory import default_format
from replication.errors import UnderstudyError
from replication.metadata.formatter import format_directories
from replication.metadata.rules.formatting import feature_levels
from storage.batch.record_batch import walk
from storage.filesystem import OsFileSystem
from tests.interop.jars import kafka_version
from tests.interop.kafka import CLUSTER_ID, CONTROLLER_ALONE, HOST, Kafka

METADATA = "__cluster_metadata-0"
BROKER = 1
SECONDS = 60.0
MOST_TURNS = 12


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for real processes, with a bound."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {SECONDS:g} s: {what}"
        time.sleep(0.1)  # real processes are asked again, with a bound


@attrs.frozen
class MixedQuorum:
    """A broker and two controllers of ours, and a controller of Kafka's."""

    ours: IsolatedCluster
    kafka: Kafka

    @property
    def voters(self) -> list[int]:
        return [*self.ours.controller_ids, CONTROLLER_ALONE]

    def metadata(self, node_id: int) -> Path:
        """Return the directory of a node's metadata log."""
        if node_id == CONTROLLER_ALONE:
            return self.kafka.data_dir / f"node-{node_id}" / "log" / METADATA
        return self.ours.log_dir(node_id) / METADATA

    def log(self, node_id: int) -> dict[int, bytes]:
        """Return the whole batches of a node's metadata log by their base offsets, as it is now."""
        return batches_in(self.metadata(node_id))

    def snapshots(self, node_id: int) -> list[Path]:
        """Return the snapshots of a node, without the one that formatting has made."""
        files = sorted(self.metadata(node_id).glob("*.checkpoint"))
        return [each for each in files if not each.name.startswith(f"{0:020}-")]

    def describe(self) -> QuorumDescription:
        """Return what the leader of now says of the quorum."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return trio.run(self._describe)
            except UnderstudyError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)  # processes of two kinds elect a leader: asked again, with a bound

    async def _describe(self) -> QuorumDescription:
        async with Admin(self.ours.bootstrap_servers) as admin:
            return await admin.describe_metadata_quorum()

    def create_topic(self, name: str, *, timeout_ms: int = 30_000) -> None:
        trio.run(self._create_topic, name, timeout_ms)

    async def _create_topic(self, name: str, timeout_ms: int) -> None:
        servers = self.ours.bootstrap_servers
        async with Admin(servers, default_api_timeout_ms=timeout_ms) as admin:
            await admin.create_topics([NewTopic(name=name, partitions=2, replication_factor=1)])

    def topics(self) -> set[str]:
        async def asked() -> list[str]:
            async with Admin(self.ours.bootstrap_servers) as admin:
                return await admin.list_topics()

        return set(trio.run(asked))

    def kill(self, node_id: int) -> None:
        (self.kafka if node_id == CONTROLLER_ALONE else self.ours).kill(node_id)

    def start(self, node_id: int) -> None:
        if node_id == CONTROLLER_ALONE:
            self.kafka.spawn(node_id)
        else:
            self.ours.start(node_id)

    def end_leadership(self, voter: int) -> None:
        """Kill a voter that leads, and start it again once another one leads."""
        self.kill(voter)
        while self.describe().leader_id == voter:
            time.sleep(0.1)  # what was asked before the kill may be answered after it
        self.start(voter)

    def begin_anew(self, node_id: int) -> None:
        """Kill a node, remove its metadata log, and start it again."""
        self.kill(node_id)
        shutil.rmtree(self.metadata(node_id))
        self.start(node_id)

    def let_kafka_lead(self) -> None:
        for _ in range(MOST_TURNS):
            leader = self.describe().leader_id
            if leader == CONTROLLER_ALONE:
                return
            self.end_leadership(leader)
            self.check_logs()  # the killed one has what it missed, and can vote for anybody
        raise AssertionError(f"Kafka has not led after {MOST_TURNS} elections")

    def let_ours_lead(self) -> None:
        if self.describe().leader_id == CONTROLLER_ALONE:
            self.end_leadership(CONTROLLER_ALONE)

    def check_logs(self) -> bytes:
        """Return what all voters have: everything that the leader had when this was called."""
        end = max(self.log(self.describe().leader_id))
        until(
            lambda: all(max(self.log(each), default=-1) >= end for each in self.voters),
            f"all voters have offset {end}",
        )
        return check_equal([self.log(each) for each in self.voters], end=end)


def batches_in(directory: Path) -> dict[int, bytes]:
    """Return the whole batches of a log by their base offsets, as it is now."""
    found = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for position, header in walk(memoryview(data)):
            found[header.base_offset] = data[position : position + header.size]
    return found


def check_equal(logs: Sequence[Mapping[int, bytes]], *, end: int) -> bytes:
    """Return the batches up to the one at `end`, from where the shortest log begins: all have them."""
    start = max(min(log) for log in logs)
    first, *others = [
        {offset: log[offset] for offset in sorted(log) if start <= offset <= end} for log in logs
    ]
    assert all(log == first for log in others)
    assert end in first
    return b"".join(first.values())


def format_as_kafka(configs: Iterable[BrokerConfig]) -> None:
    """Format the new directories of our nodes with the levels of the Apache Kafka that is tested."""
    release = ".".join(kafka_version().split(".")[:2])
    for config in configs:
        by_configuration = default_format(config, CLUSTER_ID)
        format_directories(
            OsFileSystem(),
            attrs.evolve(
                by_configuration, levels=feature_levels({}, release=release, is_dynamic=False)
            ),
            random_bytes=secrets.token_bytes,
            wall_ms=int(time.time() * 1000),
        )


@contextmanager
def mixed_quorum(directory: Path, config: Mapping[str, str]) -> Iterator[MixedQuorum]:
    """A mixed quorum that is ready; our nodes have `config` besides."""
    ports = free_ports(4)
    voters = ["3001", "3002", str(CONTROLLER_ALONE)]
    addresses = [f"{HOST}:{port}" for port in ports[1:]]
    quorum = {
        "controller.quorum.voters": ",".join(map("@".join, zip(voters, addresses, strict=True)))
    }
    kafka = Kafka(
        data_dir=directory / "kafka",
        brokers=0,
        properties=quorum | {"listeners": f"CONTROLLER://{addresses[2]}"},
    )
    with IsolatedCluster(
        directory / "ours",
        brokers=1,
        controllers=2,
        ports=ports[:3],
        cluster_id=CLUSTER_ID,
        config=quorum | dict(config),
        prepare=format_as_kafka,
    ) as ours:
        ours.wait_until_ready(SECONDS)
        with kafka:
            yield MixedQuorum(ours, kafka)
