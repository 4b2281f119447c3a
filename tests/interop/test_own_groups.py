"""Our consumers in groups of Apache Kafka's coordinator, alone and with Kafka's own consumer."""

import subprocess
from collections.abc import Sequence
from functools import partial

import pytest
import trio

from replication.client.consumer import Consumer, SubscriptionPattern
from tests.interop import tools
from tests.interop.kafka import Kafka
from tests.interop.own_clients import SECONDS, consumer_of, make_topic, producer_of

pytestmark = pytest.mark.interop

PARTITIONS = 4


async def poll_until_shared(*consumers: Consumer, sizes: Sequence[int]) -> None:
    """Polled in turn, until each has as many partitions as `sizes` says."""
    with trio.fail_after(SECONDS):
        while [len(each.assignment()) for each in consumers] != list(sizes):
            for each in consumers:
                await each.poll(timeout_ms=100)


@pytest.mark.parametrize("strategy", ["roundrobin", "sticky"])
async def test_two_members_share_and_the_one_that_stays_gets_all(
    kafka: Kafka, strategy: str
) -> None:
    topic, group = f"shared-{strategy}", f"sharing-{strategy}"
    await make_topic(kafka, topic, partitions=PARTITIONS)
    config = {
        "group_id": group,
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 200,
    }
    async with consumer_of(kafka, topic, **config) as stays:
        async with consumer_of(kafka, topic, **config) as goes:
            await poll_until_shared(stays, goes, sizes=[2, 2])
            assert stays.assignment().isdisjoint(goes.assignment())
        await poll_until_shared(stays, sizes=[PARTITIONS])


async def test_members_of_the_new_protocol_share_and_the_one_that_stays_gets_all(
    kafka: Kafka,
) -> None:
    await make_topic(kafka, "shared-new", partitions=PARTITIONS)
    config = {"group_id": "sharing-new", "group_protocol": "consumer"}
    async with consumer_of(kafka, "shared-new", **config) as stays:
        async with consumer_of(kafka, "shared-new", **config) as goes:
            await poll_until_shared(stays, goes, sizes=[2, 2])
            assert stays.assignment().isdisjoint(goes.assignment())
        await poll_until_shared(stays, sizes=[PARTITIONS])


async def test_kafkas_brokers_match_a_pattern_of_ours(kafka: Kafka) -> None:
    await make_topic(kafka, "logs-a", partitions=1)
    config = {"group_id": "matching", "group_protocol": "consumer"}
    async with consumer_of(kafka, **config) as ours, producer_of(kafka) as producer:
        ours.subscribe(pattern=SubscriptionPattern("logs-[ab]"))
        await producer.send("logs-a", b"one", partition=0)
        with trio.fail_after(SECONDS):
            assert (await ours.getone()).value == b"one"
            await ours.commit()


async def test_ours_and_kafkas_console_consumer_share_a_group(kafka: Kafka) -> None:
    await make_topic(kafka, "mixed", partitions=PARTITIONS)
    reading = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", "mixed", "--group=mixing"]
    quick = "--command-property=heartbeat.interval.ms=200"
    command = tools.java_command(
        tools.CONSOLE_CONSUMER, *reading, quick, f"--max-messages={PARTITIONS // 2}"
    )
    run = partial(trio.run_process, command, capture_stdout=True)
    config = {"group_id": "mixing", "heartbeat_interval_ms": 200}
    async with consumer_of(kafka, "mixed", **config) as ours, producer_of(kafka) as producer:
        await poll_until_shared(ours, sizes=[PARTITIONS])
        ended: list[subprocess.CompletedProcess[bytes]] = []
        async with trio.open_nursery() as nursery:

            async def theirs() -> None:
                ended.append(await run())

            nursery.start_soon(theirs)
            await poll_until_shared(ours, sizes=[PARTITIONS // 2])
            mine = {b"%d" % each.partition for each in ours.assignment()}
            for partition in range(PARTITIONS):
                await producer.send("mixed", b"%d" % partition, partition=partition)
            read: set[bytes] = set()
            with trio.fail_after(SECONDS):
                while len(read) < len(mine):
                    read |= {each.value for each in await ours.poll(timeout_ms=100)}
                while not ended:  # who does not poll is given up
                    assert await ours.poll(timeout_ms=100) is not None
        assert read == mine
        everything = {b"%d" % each for each in range(PARTITIONS)}
        assert set(ended[0].stdout.split()) == everything - mine
