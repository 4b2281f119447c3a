"""`understudy topic` writes what kafka-topics writes, of our brokers and of Apache Kafka's."""

import pytest

from replication.cli.isolated import IsolatedCluster
from tests.cli.commands import Command
from tests.interop import tools
from tests.interop.kafka import Kafka

pytestmark = pytest.mark.interop


def ours(servers: str, *arguments: str) -> list[str]:
    return Command(servers).lines("topic", *arguments)


def theirs(servers: str, *arguments: str) -> list[str]:
    return tools.run_tool(tools.TOPICS, "--bootstrap-server", servers, *arguments).splitlines()


def sorted_configs(lines: list[str]) -> list[str]:
    """Theirs stand in the order of a hash map."""
    described = []
    for line in lines:
        rest, configs, values = line.partition("\tConfigs: ")
        described.append(rest + configs + ",".join(sorted(values.split(","))))
    return described


def same_lines(servers: str, topic: str) -> None:
    for only in ((), ("--under-replicated-partitions",), ("--at-min-isr-partitions",)):
        their_lines = theirs(servers, "--describe", "--topic", topic, *only)
        our_lines = ours(servers, "describe", "--topic", topic, *only)
        assert sorted_configs(our_lines) == sorted_configs(their_lines)


def test_our_brokers_are_described_alike(our_brokers: IsolatedCluster) -> None:
    servers = our_brokers.bootstrap_servers
    made = ["--topic=alike", "--replica-assignment=1:2:3,3:1:2"]
    assert theirs(servers, "--create", *made, "--config=retention.ms=7") == ["Created topic alike."]
    same_lines(servers, "alike")
    assert ours(servers, "list") == theirs(servers, "--list")
    assert ours(servers, "delete", "alike", "--execute") == ["Deleted topic alike."]
    assert "alike" not in theirs(servers, "--list")


def test_apache_kafka_is_described_alike(kafka: Kafka) -> None:
    servers = kafka.bootstrap_servers
    described = ours(servers, "create", "alike", "--partitions=2", "--config=retention.ms=7")
    assert described == [
        "Created topic alike.",
        "alike: 2 partitions, replication factor 1, all with a leader",
    ]
    assert ours(servers, "alter", "alike", "--partitions=3") == [
        "alike: 3 partitions, all with a leader"
    ]
    same_lines(servers, "alike")
    assert ours(servers, "list") == theirs(servers, "--list")
    theirs(servers, "--delete", "--topic=alike")
    assert "alike" not in ours(servers, "list")
