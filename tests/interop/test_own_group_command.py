"""`understudy group` against Apache Kafka says what kafka-consumer-groups says, and does what it does."""

from functools import partial

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
    assert ["moved_group-of", "Classic", "-", "Empty"] in understudy_group(kafka, "list")
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


def described_alike(kafka: Kafka, group: str, *about: str) -> list[str]:
    """Return the only row that Kafka's tool and ours print about a group."""
    theirs = kafka_group(kafka, "--describe", "--group", group, *about)
    ours = understudy_group(kafka, "describe", group, *about)
    width = len(theirs[0])
    assert [line[:width] for line in ours] == theirs
    (row,) = theirs[1:]
    return row


def compare_a_group_with_a_member(kafka: Kafka, group: str, group_type: str) -> None:
    described_alike(kafka, group, "--offsets")
    described_alike(kafka, group, "--members")
    verbose = described_alike(kafka, group, "--members", "--verbose")
    described_alike(kafka, group, "--state")
    state = described_alike(kafka, group, "--state", "--verbose")
    if group_type == "consumer":
        assert verbose[-3] == verbose[-1] == f"{group}:0"
        assert verbose[-4] == verbose[-2] == state[-3] == state[-2]
    for each in ("classic", "consumer"):
        listed = [line[:2] for line in understudy_group(kafka, "list", "--type", each)]
        assert sorted(listed) == sorted(kafka_group(kafka, "--list", f"--type={each}"))
        assert ([group, each.capitalize()] in listed) == (each == group_type)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_with_a_member_is_described_alike(kafka: Kafka, protocol: str) -> None:
    group = f"described-{protocol}"
    await make_topic(kafka, group)
    async with consumer_of(kafka, group, group_id=group, group_protocol=protocol) as consumer:
        with trio.fail_after(SECONDS):
            while not consumer.assignment():
                await consumer.poll(timeout_ms=100)
            await consumer.commit({(group, 0): 0})
            compare = partial(compare_a_group_with_a_member, kafka, group, protocol)
            await trio.to_thread.run_sync(compare)
    arguments = [group, "--topic", group, "--execute"]
    understudy = partial(understudy_group, kafka, "delete-offsets", *arguments)
    assert (await trio.to_thread.run_sync(understudy))[1] == [group, group, "0", "0"]
    left = partial(kafka_group, kafka, "--describe", "--group", group)
    assert await trio.to_thread.run_sync(left) == []
