"""`understudy group` against Apache Kafka says what kafka-consumer-groups says, and does what it does."""

import pytest
import trio

from tests.cli.commands import Command
from tests.interop import tools
from tests.interop.kafka import Kafka
from tests.interop.own_clients import SECONDS, consumer_of, make_topic, producer_of

pytestmark = pytest.mark.interop


def understudy_group(kafka: Kafka, *arguments: str) -> list[list[str]]:
    """The words of each line that it printed."""
    lines = Command(kafka.bootstrap_servers).lines("group", *arguments)
    return [line.split() for line in lines if line]


def kafka_group(kafka: Kafka, *arguments: str) -> list[list[str]]:
    said = kafka.run_tool(tools.CONSUMER_GROUPS, *arguments)
    return [line.split() for line in said.splitlines() if line]


async def read_some(kafka: Kafka, group: str) -> None:
    """Six records of each of two partitions, of which the group reads two and three."""
    await make_topic(kafka, "moved_group", partitions=2)
    async with producer_of(kafka) as producer:
        for number in range(12):
            await producer.send("moved_group", b"x", partition=number % 2)
    async with consumer_of(kafka, group_id=group) as consumer:
        consumer.assign([("moved_group", 0), ("moved_group", 1)])
        with trio.fail_after(SECONDS):
            await consumer.commit({("moved_group", 0): 2, ("moved_group", 1): 3})


def test_a_group_is_described_moved_and_deleted(kafka: Kafka) -> None:
    trio.run(read_some, kafka, "moved_group-of")
    assert ["moved_group-of", "Empty"] in understudy_group(kafka, "list")
    ours = understudy_group(kafka, "describe", "moved_group-of")
    theirs = kafka_group(kafka, "--describe", "--group", "moved_group-of")
    assert sorted(line[:7] for line in ours[1:]) == sorted(line[:7] for line in theirs[1:])
    moved = [
        "reset-offsets",
        "moved_group-of",
        "--topic",
        "moved_group",
        "--to-earliest",
        "--execute",
    ]
    understudy_group(kafka, *moved)
    theirs = kafka_group(kafka, "--describe", "--group", "moved_group-of", "--offsets")
    assert {line[3] for line in theirs[1:]} == {"0"}
    understudy_group(kafka, "delete", "moved_group-of", "--execute")
    assert ["moved_group-of"] not in kafka_group(kafka, "--list")
