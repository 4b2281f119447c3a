"""The metadata log and its snapshots: Apache Kafka's dump of them, and ours, line for line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

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
from replication.wire.as_json import control_record_json, metadata_record_json
from storage.filesystem import OsFileSystem
from storage.tools.dump import DumpOptions, dump, is_damage
from storage.tools.dump.text import TextOptions, line
from tests.interop import tools
from tests.interop.kafka import Kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


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
        properties={
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "metadata.log.max.record.bytes.between.snapshots": "1500",
        },
    ) as kafka:
        trio.run(administer, kafka.bootstrap_servers)
        kafka.stop(1)
        yield kafka


def our_dump(path: Path) -> list[str]:
    options = TextOptions(
        print_data_log=True, control_json=control_record_json, payload_json=metadata_record_json
    )
    lines = []
    for entry in dump(OsFileSystem(), [str(path)], DumpOptions(deep_iteration=True)):
        assert not is_damage(entry), str(entry)
        if (text := line(entry, options)) is not None:
            lines += text.splitlines()
    return lines


def kafkas_dump(path: Path) -> list[str]:
    arguments = ("--cluster-metadata-decoder", "--files", str(path))
    return tools.run_tool(tools.DUMP_LOG, *arguments).splitlines()


def test_a_metadata_log_of_kafkas_is_dumped_alike(administered: Kafka) -> None:
    directory = administered.log_dirs[1] / "__cluster_metadata-0"
    files = [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
    assert len(files) >= 3, "a log, the first snapshot, and one of the records since"
    for file in sorted(files):
        lines = our_dump(file)
        assert kafkas_dump(file) == lines
        assert not any("Error at" in each for each in lines)
