"""Apache Kafka in a quorum with two controllers of ours: as a voter, as the leader, and back.

A broker of ours serves while the leader changes. After each change of the metadata the three logs are
equal, byte for byte: the same batches at the same offsets, in the same leader epochs.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from replication.client.admin import Admin, NewTopic, QuorumDescription
from replication.errors import UnderstudyError
from tests.interop.kafka import CLUSTER_ID, CONTROLLER_ALONE, HOST, Kafka, unused_ports

pytestmark = [pytest.mark.interop, pytest.mark.slow]

FIRST_SEGMENT = Path("__cluster_metadata-0", "00000000000000000000.log")
SECONDS = 60.0
MOST_TURNS = 12


@attrs.frozen
class MixedQuorum:
    """A broker and two controllers of ours, and a controller of Kafka's."""

    ours: IsolatedCluster
    kafka: Kafka

    @property
    def logs(self) -> dict[int, bytes]:
        """The metadata log of each voter, as it is now; a voter that has just started has none."""
        found = {each: self.ours.log_dir(each) for each in self.ours.controller_ids}
        found[CONTROLLER_ALONE] = self.kafka.data_dir / f"node-{CONTROLLER_ALONE}" / "log"
        files = {voter: path / FIRST_SEGMENT for voter, path in found.items()}
        return {voter: file.read_bytes() if file.exists() else b"" for voter, file in files.items()}

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

    def create_topic(self, name: str) -> None:
        trio.run(self._create_topic, name)

    async def _create_topic(self, name: str) -> None:
        async with Admin(self.ours.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name=name, partitions=2, replication_factor=1)])

    def end_leadership(self, voter: int) -> None:
        """Kill a voter that leads, and start it again once another one leads."""
        nodes = self.kafka if voter == CONTROLLER_ALONE else self.ours
        nodes.kill(voter)
        while self.describe().leader_id == voter:
            time.sleep(0.1)  # what was asked before the kill may be answered after it
        if voter == CONTROLLER_ALONE:
            self.kafka.spawn(voter)
        else:
            self.ours.start(voter)

    def let_kafka_lead(self) -> None:
        for _ in range(MOST_TURNS):
            leader = self.describe().leader_id
            if leader == CONTROLLER_ALONE:
                return
            self.end_leadership(leader)
            self.check_logs()  # the killed one has what it missed, and can vote for anybody
        raise AssertionError(f"Kafka has not led after {MOST_TURNS} elections")

    def check_logs(self) -> bytes:
        """Return what is in all three logs: everything that was there when this was called."""
        least = len(self.logs[self.describe().leader_id])
        deadline = time.monotonic() + SECONDS
        while min(map(len, self.logs.values())) < least:
            lengths = {voter: len(log) for voter, log in self.logs.items()}
            assert time.monotonic() < deadline, f"{lengths}, and {least} bytes are wanted"
            time.sleep(0.1)  # real followers: looked at again, with a bound
        logs = self.logs
        common = min(map(len, logs.values()))
        first, *others = (log[:common] for log in logs.values())
        assert all(log == first for log in others)
        return first


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedQuorum]:
    directory = tmp_path_factory.mktemp("mixed")
    ports = unused_ports(4)
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
    with (
        IsolatedCluster(
            directory / "ours",
            brokers=1,
            controllers=2,
            ports=ports[:3],
            cluster_id=CLUSTER_ID,
            config=quorum,
        ) as ours,
    ):
        ours.wait_until_ready()
        with kafka:
            yield MixedQuorum(ours, kafka)


def test_kafka_votes_for_us_leads_us_and_follows_again(mixed: MixedQuorum) -> None:
    assert mixed.describe().leader_id != CONTROLLER_ALONE
    mixed.create_topic("ours-leads")
    assert b"ours-leads" in mixed.check_logs()
    assert "does not support" not in mixed.kafka.output(CONTROLLER_ALONE)

    mixed.let_kafka_lead()
    mixed.create_topic("kafka-leads")
    assert b"kafka-leads" in mixed.check_logs()

    mixed.end_leadership(CONTROLLER_ALONE)
    assert mixed.describe().leader_id != CONTROLLER_ALONE
    mixed.create_topic("ours-leads-again")
    assert b"ours-leads-again" in mixed.check_logs()
