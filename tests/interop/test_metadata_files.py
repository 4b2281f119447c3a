"""The metadata log, its snapshots, and formatted directories: Apache Kafka on ours, and we on its."""

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from replication.cli.isolated import IsolatedCluster
from replication.cli.kafka.processes import STORAGE
from replication.client.admin import (
    ALL_BROKERS,
    Acl,
    Admin,
    NewTopic,
    Operation,
    Permission,
    ResourceType,
    UserScramCredentialUpsertion,
)
from replication.cluster.cluster import Cluster, open_cluster
from replication.metadata.rules.levels import METADATA_VERSIONS
from replication.wire.as_json import control_record_json, metadata_record_json
from storage.filesystem import OsFileSystem
from storage.tools.dump import DumpOptions, dump, is_damage
from storage.tools.dump.text import TextOptions, line
from tests.interop import tools
from tests.interop.kafka import CLUSTER_ID, Kafka
from tests.interop.mixed_quorum import until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1500"}


async def administer(servers: str) -> None:
    """Change metadata in every way that an admin client has."""
    async with Admin(servers) as admin:
        await admin.create_topics(
            [
                NewTopic(
                    name="orders",
                    partitions=3,
                    replication_factor=1,
                    configs={"min.insync.replicas": "1"},
                ),
                NewTopic(name="gone", partitions=1, replication_factor=1),
            ]
        )
        await admin.alter_topic_configs({"orders": {"retention.ms": "1000"}})
        await admin.alter_broker_configs({ALL_BROKERS: {"log.cleaner.threads": "2"}})
        await admin.create_partitions({"orders": 4})
        await admin.delete_topics(["gone"])
        await admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    user="alice", mechanism="SCRAM-SHA-256", password="secret"
                )
            ]
        )
        await admin.create_acls(
            [
                Acl(
                    resource_type=ResourceType.TOPIC,
                    resource_name="orders",
                    principal="User:alice",
                    operation=Operation.READ,
                    permission=Permission.ALLOW,
                )
            ]
        )


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A controller and a broker of Kafka's that were stopped, so that a snapshot is there."""
    with Kafka(
        data_dir=tmp_path_factory.mktemp("administered"),
        properties=SECURED | SNAPSHOTS,
    ) as kafka:
        trio.run(administer, kafka.bootstrap_servers)
        kafka.stop(1)
        yield kafka


def our_dump(*paths: Path) -> list[str]:
    options = TextOptions(
        print_data_log=True, control_json=control_record_json, payload_json=metadata_record_json
    )
    lines = []
    for entry in dump(OsFileSystem(), list(map(str, paths)), DumpOptions(deep_iteration=True)):
        assert not is_damage(entry), str(entry)
        if (text := line(entry, options)) is not None:
            lines += text.splitlines()
    return lines


def kafkas_dump(*paths: Path) -> list[str]:
    files = ",".join(map(str, paths))
    arguments = ("--cluster-metadata-decoder", "--files", files)
    return tools.run_tool(tools.DUMP_LOG, *arguments).splitlines()


def test_a_metadata_log_of_kafkas_is_dumped_alike(administered: Kafka) -> None:
    directory = administered.log_dirs[1] / "__cluster_metadata-0"
    files = [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
    assert len(files) >= 3, "a log, the first snapshot, and one of the records since"
    for file in sorted(files):
        lines = our_dump(file)
        assert kafkas_dump(file) == lines
        assert not any("Error at" in each for each in lines)


# Apache Kafka on our files.


def our_storage(*arguments: str) -> str:
    command = [sys.executable, "-m", "replication.cli", "storage", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_kafka_starts_on_directories_that_we_formatted(tmp_path: Path) -> None:
    kafka = Kafka(data_dir=tmp_path, node_properties={1: {"metadata.log.dir": f"{tmp_path}/meta"}})
    kafka.format()
    for directory in (kafka.log_dirs[1], tmp_path / "meta"):
        shutil.rmtree(directory)
    config = str(tmp_path / "node-1" / "server.properties")
    scram = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    our_storage("format", "-c", config, "-t", CLUSTER_ID, "-S", scram, "-f", "group.version=0")
    said = tools.run_tool(STORAGE, "info", "-c", config)
    assert "Found problem" not in said
    assert our_storage("info", "-c", config) == said

    async def look() -> None:
        async with Admin(kafka.bootstrap_servers) as admin:
            assert (await admin.describe_cluster()).cluster_id == CLUSTER_ID
            assert list(await admin.describe_user_scram_credentials()) == ["alice"]
            levels = {name: each.level for name, each in (await admin.describe_features()).items()}
            assert levels["transaction.version"] == 2
            assert not levels["group.version"]

    try:
        kafka.spawn(1)
        kafka.wait_until_ready()
        trio.run(look)
    finally:
        kafka.kill_all()


def test_kafka_reads_our_log_and_our_snapshots(tmp_path: Path) -> None:
    config = SECURED | {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with IsolatedCluster(tmp_path, brokers=1, config=config) as cluster:
        cluster.wait_until_ready()
        trio.run(administer, cluster.bootstrap_servers)
    (directory,) = tmp_path.glob("**/controller*/**/__cluster_metadata-0")
    files = [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
    assert {file.suffix for file in files} == {".log", ".checkpoint"}
    for file in files:
        lines = kafkas_dump(file)
        assert lines == our_dump(file)
        assert not any("Error at" in each or "isvalid: false" in each for each in lines)
    (snapshot,) = directory.glob("*.checkpoint")
    assert "orders" in topics_in(snapshot)


OFTEN = SECURED | {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def topics_in(file: Path) -> set[str]:
    """Return the topics that kafka-metadata-shell.sh shows in a log or a snapshot."""
    command = ("--snapshot", str(file), "ls", "/image/topics/byName")
    return set(tools.run_tool(tools.METADATA_SHELL, *command).split())


@pytest.mark.parametrize("config", [SECURED, OFTEN], ids=["logs", "snapshots"])
@pytest.mark.parametrize(
    ("controllers", "combined"),
    [(1, False), (3, False), (3, True)],
    ids=["one controller", "three controllers", "both roles"],
)
def test_kafkas_tools_read_every_node_of_a_cluster(
    tmp_path: Path, controllers: int, *, combined: bool, config: dict[str, str]
) -> None:
    def metadata_files() -> list[Path]:
        files = tmp_path.glob("*/**/__cluster_metadata-0/*")
        return sorted(each for each in files if each.suffix in {".log", ".checkpoint"})

    def check() -> None:
        files = metadata_files()
        said = kafkas_dump(*files)
        assert said == our_dump(*files)
        assert not any("Error at" in each or "isvalid: false" in each for each in said)

    async def live() -> None:
        async with open_cluster(
            brokers=3,
            controllers=controllers,
            combined=combined,
            data_dir=str(tmp_path),
            properties=config,
        ) as cluster:
            await administer(cluster.bootstrap_servers)
            end = max(each.image.offset for each in cluster.controllers.values())
            await cluster.until(lambda: all_have(cluster, end), timeout_seconds=20)
            # Every node is at rest for as long as its loop waits for the tool.
            check()

    trio.run(live)
    check()
    logs = [each for each in metadata_files() if each.suffix == ".log"]
    assert len({each.parent for each in logs}) == (3 if combined else 3 + controllers)
    for node in (min(each.parent for each in logs), max(each.parent for each in logs)):
        if config is OFTEN:
            file = max(node.glob("*.checkpoint"))
            wanted = topics_named_in(file)
        else:
            (file,), wanted = node.glob("*.log"), {"orders"}
        # The shell begins as soon as it has applied one batch of the file.
        until(partial(shows, file, wanted), f"the shell shows {wanted} in {file}")


def topics_named_in(snapshot: Path) -> set[str]:
    text = "\n".join(our_dump(snapshot))
    return set(re.findall(r'"type":"TOPIC_RECORD".*?"name":"(.*?)"', text))


def shows(file: Path, topics: set[str]) -> bool:
    return topics_in(file) == topics


def all_have(cluster: Cluster, end: int) -> bool:
    images = [each.synced_image for each in cluster.controllers.values()]
    images += [each.metadata.image for each in cluster.brokers.values()]
    return all(each.offset >= end for each in images)


# We on Apache Kafka's files.


@contextlib.contextmanager
def ours_instead(kafka: Kafka) -> Iterator[None]:
    """Run our nodes in the places of Kafka's, with its server.properties and its directories."""
    running = []
    try:
        for node_id in kafka.node_ids:
            config = kafka.data_dir / f"node-{node_id}" / "server.properties"
            command = [sys.executable, "-m", "replication.cli", "broker", "--config", str(config)]
            with (config.parent / "ours.log").open("wb") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=output))
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


DYNAMIC = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("brokers", "format_arguments", "voters"),
    [(1, (), {}), (1, ("--standalone",), DYNAMIC), (2, (), {})],
    ids=["both roles", "both roles, voters in the log", "a role each"],
)
def test_our_nodes_go_on_where_kafkas_stopped(
    tmp_path: Path, brokers: int, format_arguments: tuple[str, ...], voters: dict[str, str]
) -> None:
    async def look() -> dict[str, object]:
        async with Admin(kafka.bootstrap_servers) as admin:
            topics = await admin.describe_topics(["orders"])
            configs = await admin.describe_topic_configs(["orders"])
            return {
                "cluster": (await admin.describe_cluster()).cluster_id,
                "topics": await admin.list_topics(),
                "orders": [(each.partition, each.replicas) for each in topics["orders"].partitions],
                "id": topics["orders"].topic_id,
                "retention.ms": configs["orders"]["retention.ms"].value,
                "users": list(await admin.describe_user_scram_credentials()),
                "acls": await admin.describe_acls(),
            }

    with Kafka(
        data_dir=tmp_path,
        brokers=brokers,
        properties=SECURED | SNAPSHOTS | voters,
        format_arguments=format_arguments,
    ) as kafka:
        trio.run(administer, kafka.bootstrap_servers)
        before = trio.run(look)
        for node_id in reversed(kafka.node_ids):
            kafka.stop(node_id)
        owners = {path: path.read_bytes() for path in tmp_path.rglob("meta.properties")}
        assert len(owners) == len(kafka.node_ids)
        with ours_instead(kafka):
            kafka.wait_until_ready()
            assert trio.run(look) == before
        assert {path: path.read_bytes() for path in tmp_path.rglob("meta.properties")} == owners
        for node_id in kafka.node_ids:
            kafka.spawn(node_id)
        kafka.wait_until_ready()
        assert trio.run(look) == before


@pytest.mark.parametrize("version", ["4.1.1", "4.3.1"])
@pytest.mark.parametrize(
    ("format_arguments", "voters"),
    [((), {}), (("--standalone",), DYNAMIC)],
    ids=["voters in the configuration", "voters in the log"],
)
def test_our_node_starts_on_what_an_older_kafka_formatted(
    tmp_path: Path, version: str, format_arguments: tuple[str, ...], voters: dict[str, str]
) -> None:
    """Apache Kafka before 4.4 writes the first records to `bootstrap.checkpoint`."""

    async def look() -> tuple[str | None, list[str], dict[str, int]]:
        async with Admin(kafka.bootstrap_servers) as admin:
            features = await admin.describe_features()
            return (
                (await admin.describe_cluster()).cluster_id,
                list(await admin.describe_user_scram_credentials()),
                {name: each.level for name, each in features.items() if each.level},
            )

    scram = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    chosen = ("--add-scram", scram, "--feature", "transaction.version=1")
    kafka = Kafka(
        data_dir=tmp_path,
        version=version,
        properties=voters,
        format_arguments=(*format_arguments, *chosen),
    )
    kafka.format()
    written = (kafka.log_dirs[1] / "bootstrap.checkpoint").read_bytes()
    owner = (kafka.log_dirs[1] / "meta.properties").read_bytes()
    try:
        with ours_instead(kafka):
            kafka.wait_until_ready()
            found = trio.run(look)
        cluster_id, users, levels = found
        assert (cluster_id, users) == (CLUSTER_ID, ["alice"])
        assert levels["transaction.version"] == 1
        assert METADATA_VERSIONS[levels["metadata.version"]].startswith(version[:3])
        assert (kafka.log_dirs[1] / "bootstrap.checkpoint").read_bytes() == written
        assert (kafka.log_dirs[1] / "meta.properties").read_bytes() == owner
        kafka.spawn(1)
        kafka.wait_until_ready()
        cluster_id, users, kafkas_levels = trio.run(look)
        assert (cluster_id, users) == (CLUSTER_ID, ["alice"])
        assert levels.items() <= kafkas_levels.items()
        # Ours keeps the levels of features that it does not have.
        assert kafkas_levels.keys() - levels.keys() <= {"share.version", "streams.version"}
    finally:
        kafka.kill_all()
