"""The voters of a quorum of ours, as kafka-metadata-quorum.sh shows and changes them (KIP-853).

A controller of Apache Kafka's joins three of ours. It leads after a while, and then one of ours leaves
and joins the quorum that it leads.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.cli.isolated import IsolatedCluster
from tests.interop.kafka import CLUSTER_ID, CONTROLLER_ALONE, HOST, Kafka
from tests.interop.mixed_quorum import SECONDS, MixedQuorum, format_as_kafka, until
from tests.interop.tools import run_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
THIRD = 3003


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IsolatedCluster]:
    with IsolatedCluster(
        tmp_path_factory.mktemp("ours"),
        brokers=1,
        controllers=3,
        cluster_id=CLUSTER_ID,
        prepare=format_as_kafka,
    ) as cluster:
        cluster.wait_until_ready(SECONDS)
        yield cluster


def controllers(ours: IsolatedCluster) -> str:
    return ",".join(f"{HOST}:{ours.port(each)}" for each in ours.controller_ids)


def roles(said: str) -> dict[int, str]:
    """Return the role of each node by `describe --replication`."""
    _, *rows = said.strip().splitlines()
    return {int(row.split()[0]): row.split()[-1] for row in rows}


def directory_id(log_dir: Path) -> str:
    found = re.search(
        r"^directory\.id=(\S+)$", (log_dir / "meta.properties").read_text(), re.MULTILINE
    )
    assert found is not None
    return found[1]


@pytest.mark.parametrize("flag", ["--bootstrap-server", "--bootstrap-controller"])
def test_a_quorum_of_ours_is_described(ours: IsolatedCluster, flag: str) -> None:
    where = ours.bootstrap_servers if flag == "--bootstrap-server" else controllers(ours)
    status = run_tool(QUORUM, flag, where, "describe", "--status")
    voters = re.search(r"CurrentVoters: +(.*)\n", status)
    assert voters is not None
    assert re.findall(r'"id": (\d+)', voters[1]) == ["3001", "3002", "3003"]
    for each in ours.controller_ids:
        assert f'"CONTROLLER://{HOST}:{ours.port(each)}"' in voters[1]
    assert re.search(r'CurrentObservers: +\[\{"id": 1\b', status)
    assert re.search(rf"ClusterId: +{CLUSTER_ID}\n", status)
    found = roles(run_tool(QUORUM, flag, where, "describe", "--replication"))
    assert sorted(found.values()) == ["Follower", "Follower", "Leader", "Observer"]
    assert found[1] == "Observer"


def test_controllers_join_and_leave_quorums_of_both_kinds(
    ours: IsolatedCluster, tmp_path: Path
) -> None:
    servers = ("--bootstrap-server", ours.bootstrap_servers)
    direct = ("--bootstrap-controller", controllers(ours))
    raised = run_tool(FEATURES, *servers, "upgrade", "--feature", "kraft.version=1")
    assert "kraft.version was upgraded to 1." in raised

    def remove(voter: int, log_dir: Path) -> str:
        whom = ["--controller-id", str(voter)]
        whom += ["--controller-directory-id", directory_id(log_dir)]
        return run_tool(QUORUM, *servers, "remove-controller", *whom)

    kafka = Kafka(
        data_dir=tmp_path,
        brokers=0,
        properties={
            "controller.quorum.voters": "",
            "controller.quorum.bootstrap.servers": controllers(ours),
        },
        format_arguments=("--no-initial-controllers",),
    )
    with kafka:
        mixed = MixedQuorum(ours, kafka)
        mixed.create_topic("before")
        end = max(mixed.log(mixed.describe().leader_id))
        until(
            lambda: max(mixed.log(CONTROLLER_ALONE), default=-1) >= end, "Kafka observes the quorum"
        )
        config = tmp_path / f"node-{CONTROLLER_ALONE}" / "server.properties"
        said = run_tool(QUORUM, *direct, "--command-config", str(config), "add-controller")
        assert f"Added controller {CONTROLLER_ALONE}" in said
        assert roles(run_tool(QUORUM, *servers, "describe", "--replication"))[100] == "Follower"
        mixed.check_logs()

        mixed.let_kafka_lead()
        said = remove(THIRD, ours.log_dir(THIRD))
        assert f"KRaft controller {THIRD} with directory id" in said
        until(lambda: THIRD not in voters_of(mixed), "the voters are without 3003")
        mixed.create_topic("without-3003")
        config = ours.directory(THIRD) / "server.properties"
        said = run_tool(QUORUM, *servers, "--command-config", str(config), "add-controller")
        assert f"Added controller {THIRD}" in said
        until(lambda: THIRD in voters_of(mixed), "3003 votes again")
        mixed.create_topic("with-3003")
        assert b"without-3003" in mixed.check_logs()

        mixed.let_ours_lead()
        remove(CONTROLLER_ALONE, mixed.metadata(CONTROLLER_ALONE).parent)
        until(lambda: CONTROLLER_ALONE not in voters_of(mixed), "Kafka votes no longer")
        mixed.create_topic("without-kafka")
        assert {"before", "without-3003", "with-3003", "without-kafka"} <= mixed.topics()


def voters_of(mixed: MixedQuorum) -> set[int]:
    return {each.node_id for each in mixed.describe().voters}
