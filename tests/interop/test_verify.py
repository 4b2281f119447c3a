"""`understudy verify` of live clusters of Apache Kafka, alone and beside ours."""

from collections.abc import Sequence
from typing import Any

import pytest

from replication import open_cluster
from replication.client.admin import Admin, NewTopic
from replication.client.producer import Producer
from replication.net import production_seams
from replication.verify import Cause, Different, Same
from replication.verify.sources import PartitionSelection, VerificationPlan
from tests.interop.kafka import Kafka
from tests.interop.own_clients import asked_until, leaders_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]


async def verified(topic: str, *servers: str) -> Any:
    """Return the result for the one partition of `topic`."""
    comparison = await VerificationPlan(
        bootstrap_servers=servers, selection=PartitionSelection(topics=topic)
    ).run(production_seams())
    (result,) = comparison.partitions
    return result


async def make_topic(servers: str, topic: str, *, replicas: int = 1) -> None:
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=replicas)])
        await asked_until(lambda: leaders_of(admin, topic), lambda found: min(found) >= 0)


async def produce(servers: str, topic: str, values: Sequence[bytes], **config: Any) -> None:
    """Each in a batch of its own, at times that are the same everywhere."""
    producer: Producer[bytes, bytes] = Producer(bootstrap_servers=servers, **config)
    async with producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=0, timestamp_ms=1_700_000_000_000 + number)


async def test_the_replicas_of_a_kafka_are_asked_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with Kafka(data_dir=tmp_path_factory.mktemp("three"), brokers=3) as kafka:
        servers = kafka.bootstrap_servers
        await make_topic(servers, "replicated", replicas=3)
        values = [b"%d" % number * 1000 for number in range(50)]
        await produce(servers, "replicated", values, compression_type="lz4")
        result = await verified("replicated", servers)
        assert isinstance(result, Same)
        assert sorted(result.directories) == sorted(servers.split(","))
        assert result.compared.records == 50


async def test_a_kafka_and_a_cluster_of_ours_part_where_they_do(kafka: Kafka) -> None:
    common = [b"%d" % number for number in range(20)]
    async with open_cluster(brokers=1) as ours:
        both = (kafka.bootstrap_servers, ours.bootstrap_servers)
        for servers in both:
            await make_topic(servers, "in-both")
            await produce(servers, "in-both", common, enable_idempotence=False)
        result = await verified("in-both", *both)
        assert isinstance(result, Same)
        assert (result.compared.batches, result.compared.end_offset) == (20, 20)

        await produce(both[0], "in-both", [b"one more"], enable_idempotence=False)
        result = await verified("in-both", *both)
        assert isinstance(result, Different)
        assert (result.cause, result.offset) == (Cause.LAG, 20)

        await produce(both[1], "in-both", [b"and less"], enable_idempotence=False)
        result = await verified("in-both", *both)
        assert isinstance(result, Different)
        assert (result.cause, result.offset) == (Cause.REWRITE, 20)
        assert [copy.leader_epoch for copy in result.copies] == [0, 0]
