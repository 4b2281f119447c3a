"""Our admin client against Apache Kafka: its requests are carried out, and its answers are true."""

import pytest

from replication.client.admin import ALL_BROKERS, NewTopic, SomeFailedError
from replication.client.admin.values import ConfigValue
from replication.client.offsets import OffsetAndMetadata
from replication.config import ConfigSource
from replication.errors import ErrorCode
from replication.wire.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from storage.types import TopicPartition
from tests.clients.sample import in_thread
from tests.interop import tools
from tests.interop.kafka import CLUSTER_ID, Kafka
from tests.interop.own_clients import (
    admin_of,
    asked_until,
    consumer_of,
    leaders_of,
    make_topic,
    producer_of,
)

pytestmark = pytest.mark.interop


async def test_topics_are_made_grown_described_and_deleted(kafka: Kafka) -> None:
    async with admin_of(kafka) as admin:
        new = NewTopic(name="made", partitions=2, configs={"retention.ms": "1000"})
        only_checked = NewTopic(name="only-checked", partitions=1)
        await admin.create_topics([only_checked], validate_only=True)
        topic_id = (await admin.create_topics([new]))["made"]
        with pytest.raises(SomeFailedError) as caught:
            await admin.create_topics([new])
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.create_partitions({"made": 3})
        await asked_until(lambda: leaders_of(admin, "made"), lambda found: found == [1, 1, 1])
        described = (await admin.describe_topics(["made"]))["made"]
        assert described.topic_id == topic_id
        assert [each.replicas for each in described.partitions] == [(1,)] * 3
        said = await in_thread(lambda: kafka.run_tool(tools.TOPICS, "--describe", "--topic=made"))
        assert "PartitionCount: 3" in said
        assert "retention.ms=1000" in said
        assert "made" in await admin.list_topics()
        assert "only-checked" not in await admin.list_topics()
        await admin.delete_topics(["made"])
        await asked_until(admin.list_topics, lambda topics: "made" not in topics)


async def test_configurations_are_set_and_put_back(kafka: Kafka) -> None:
    await make_topic(kafka, "configured")
    async with admin_of(kafka) as admin:

        async def value_of(key: str) -> tuple[str | None, ConfigSource]:
            value = (await admin.describe_topic_configs(["configured"]))["configured"][key]
            return value.value, value.source

        default = await value_of("retention.ms")
        assert default == ("604800000", ConfigSource.DEFAULT_CONFIG)
        await admin.alter_topic_configs({"configured": {"retention.ms": "5000"}})
        set_now = ("5000", ConfigSource.TOPIC_CONFIG)
        await asked_until(lambda: value_of("retention.ms"), lambda value: value == set_now)
        await admin.alter_topic_configs({"configured": {"retention.ms": None}})
        await asked_until(lambda: value_of("retention.ms"), lambda value: value == default)
        with pytest.raises(SomeFailedError) as caught:
            await admin.alter_topic_configs({"configured": {"retention.ms": "nonsense"}})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        await admin.alter_broker_configs({ALL_BROKERS: {"log.cleaner.threads": "2"}})

        async def broker() -> dict[str, ConfigValue]:
            return (await admin.describe_broker_configs([1]))["1"]

        dynamic = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        keys_now = await asked_until(
            broker, lambda keys: keys["log.cleaner.threads"].source is dynamic
        )
        assert keys_now["node.id"].read_only
        await admin.alter_broker_configs({ALL_BROKERS: {"log.cleaner.threads": None}})


async def test_records_are_deleted_and_offsets_listed(kafka: Kafka) -> None:
    await make_topic(kafka, "cut")
    partition = TopicPartition("cut", 0)
    async with producer_of(kafka) as producer:
        for number in range(10):
            await producer.send("cut", b"x", timestamp_ms=1000 - number)
    async with admin_of(kafka) as admin:
        newest = (await admin.list_offsets({partition: MAX_TIMESTAMP}))[partition]
        assert (newest.offset, newest.timestamp) == (0, 1000)
        assert await admin.delete_records({partition: 4}) == {partition: 4}
        for asked, offset in ((EARLIEST, 4), (LATEST, 10), (996, 4)):
            listed = (await admin.list_offsets({partition: asked}))[partition]
            assert listed.offset == offset, asked
        assert await admin.delete_records({partition: -1}) == {partition: 10}
        with pytest.raises(SomeFailedError) as caught:
            await admin.delete_records({partition: 11})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_the_cluster_and_its_log_directories_are_described(kafka: Kafka) -> None:
    await make_topic(kafka, "sized")
    async with producer_of(kafka) as producer:
        await producer.send("sized", b"x" * 1000)
    async with admin_of(kafka) as admin:
        cluster = await admin.describe_cluster()
        assert cluster.cluster_id == CLUSTER_ID
        assert [f"{each.host}:{each.port}" for each in cluster.brokers] == [kafka.address(1)]
        ((directory,),) = (await admin.describe_log_dirs()).values()
        assert directory.path == str(kafka.log_dirs[1])
        assert directory.replicas[TopicPartition("sized", 0)].size > 1000


async def test_groups_are_described_moved_and_deleted(kafka: Kafka) -> None:
    await make_topic(kafka, "grouped", partitions=2)
    partitions = [TopicPartition("grouped", each) for each in range(2)]
    async with admin_of(kafka) as admin:
        async with consumer_of(kafka, "grouped", group_id="members") as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout_ms=100)
            (group,) = (await admin.describe_groups(["members"])).values()
            assert (group.state, group.protocol_type, len(group.members)) == (
                "Stable",
                "consumer",
                1,
            )
            with pytest.raises(SomeFailedError) as caught:
                await admin.delete_groups(["members"])
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        put = {each: OffsetAndMetadata(7, metadata="put") for each in partitions}
        await admin.alter_group_offsets("members", put)
        assert await admin.list_group_offsets("members", require_stable=True) == put
        await admin.delete_group_offsets("members", partitions[:1])
        assert list(await admin.list_group_offsets("members")) == partitions[1:]
        (listed,) = [each for each in await admin.list_groups() if each.group_id == "members"]
        assert listed.state == "Empty"
        await admin.delete_groups(["members"])
        assert "members" not in {each.group_id for each in await admin.list_groups()}
