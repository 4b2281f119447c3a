"""An admin client against the real brokers of a simulated world."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from replication.client.admin import (
    ALL_BROKERS,
    Admin,
    ClientQuota,
    ConfigResourceType,
    FeatureDescription,
    NewTopic,
    SomeFailedError,
)
from replication.client.errors import IllegalStateError, KafkaTimeoutError
from replication.client.producer import Producer
from replication.errors import ErrorCode, KafkaError
from replication.wire.list_offsets import EARLIEST, LATEST
from scenarios.world.cluster import SimulatedCluster, open_simulated_cluster
from scenarios.world.world import World
from storage.types import NO_TOPIC_ID, TopicPartition
from tests.replication.broker.stage import played_in
from tests.replication.client.scene import played

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@attrs.frozen
class Scene:
    world: World
    cluster: SimulatedCluster
    admin: Admin

    async def settle(self) -> None:
        """Wait until every broker has applied the last change."""
        await self.cluster.clock.sleep(1)

    async def produce(self, partition: TopicPartition, count: int) -> None:
        seams = self.world.node("producer")
        producer: Producer[bytes, bytes] = Producer("b1:9092", seams=seams)
        async with producer:
            for each in range(count):
                await producer.send_soon(
                    partition.topic, b"%d" % each, partition=partition.partition
                )


@asynccontextmanager
async def scene(
    world: World,
    *,
    brokers: int = 3,
    properties: Mapping[str, str] = MappingProxyType({}),
    **config: Any,
) -> AsyncIterator[Scene]:
    async with open_simulated_cluster(world, brokers=brokers, properties=properties) as cluster:
        servers = [f"{name}:9092" for name in cluster.broker_names]
        async with Admin(servers, seams=world.node("admin"), **config) as admin:
            yield Scene(world, cluster, admin)


@played_in(scene)
async def test_topics_come_and_go(stage: Scene) -> None:
    admin = stage.admin
    ids = await admin.create_topics(
        [
            NewTopic(name="t", replicas=((1, 2, 3), (2, 3, 1))),
            NewTopic(name="u", partitions=3, replication_factor=1),
        ]
    )
    assert len(set(ids.values()) - {NO_TOPIC_ID}) == 2
    assert await admin.list_topics() == ["t", "u"]
    await admin.create_partitions({"t": 3}, replicas={"t": [[3, 1, 2]]})
    await stage.settle()
    described = (await admin.describe_topics(["t"]))["t"]
    assert described.topic_id == ids["t"]
    assert [(each.leader, each.replicas) for each in described.partitions] == [
        (1, (1, 2, 3)),
        (2, (2, 3, 1)),
        (3, (3, 1, 2)),
    ]
    await admin.delete_topics(["u"])
    await stage.settle()
    assert await admin.list_topics() == ["t"]


@played_in(scene)
async def test_a_request_that_fails_for_some_topics_is_done_for_the_others(stage: Scene) -> None:
    await stage.admin.create_topics([NewTopic(name="t")])
    with pytest.raises(SomeFailedError) as caught:
        await stage.admin.create_topics(
            [NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="no/topic")]
        )
    codes = {name: error.code for name, error in caught.value.failed.items()}
    assert codes == {
        "t": ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/topic": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert str(caught.value).startswith("TOPIC_ALREADY_EXISTS: topic 't' ")
    assert "(and 1 more)" in str(caught.value)
    assert await stage.admin.list_topics() == ["t", "u"]
    with pytest.raises(SomeFailedError, match="nowhere"):
        await stage.admin.describe_topics(["t", "nowhere"])
    with pytest.raises(SomeFailedError, match="nowhere"):
        await stage.admin.delete_topics(["nowhere"])


@played
async def test_topics_are_described_page_by_page_with_eligible_leaders(world: World) -> None:
    two_a_page = {"max.request.partition.size.limit": "2"}
    async with scene(world, properties=two_a_page) as stage:
        names = ["t", "u", "v"]
        await stage.admin.create_topics([NewTopic(name=name, partitions=3) for name in names])
        await stage.settle()
        described = await stage.admin.describe_topics(names)
        numbers_by_topic = {
            name: [each.partition for each in described[name].partitions] for name in names
        }
        assert numbers_by_topic == {name: [0, 1, 2] for name in names}
        of_t = described["t"].partitions
        assert {(each.eligible_leaders, each.last_known_eligible) for each in of_t} == {((), ())}


@played_in(scene)
async def test_a_validated_request_changes_nothing(stage: Scene) -> None:
    await stage.admin.create_topics([NewTopic(name="t")], validate_only=True)
    assert await stage.admin.list_topics() == []


@played_in(scene)
async def test_configurations_are_changed_key_by_key(stage: Scene) -> None:
    admin = stage.admin
    await admin.create_topics([NewTopic(name="t", configs={"segment.bytes": "2000000"})])
    await admin.alter_topic_configs({"t": {"retention.ms": "60000"}})
    await stage.settle()
    values = (await admin.describe_topic_configs(["t"]))["t"]
    assert (values["retention.ms"].value, values["segment.bytes"].value) == (
        "60000",
        "2000000",
    )
    assert not values["retention.ms"].is_default
    await admin.alter_topic_configs({"t": {"retention.ms": None}})
    await stage.settle()
    assert (await admin.describe_topic_configs(["t"]))["t"]["retention.ms"].is_default
    with pytest.raises(SomeFailedError, match="INVALID_CONFIG: t: "):
        await admin.alter_topic_configs({"t": {"retention.ms": "soon"}})
    await admin.alter_broker_configs({ALL_BROKERS: {"log.retention.ms": "5000"}})
    await admin.alter_broker_configs({2: {"log.retention.ms": "7000"}})
    await stage.settle()
    found = await admin.describe_broker_configs([1, 2])
    assert {broker: found[broker]["log.retention.ms"].value for broker in found} == {
        "1": "5000",
        "2": "7000",
    }


@played_in(scene)
async def test_offsets_come_from_the_leaders_of_partitions(stage: Scene) -> None:
    admin = stage.admin
    await admin.create_topics([NewTopic(name="t", replicas=((1, 2), (3, 2)))])
    await stage.produce(T0, 7)
    await stage.produce(T1, 3)
    latest = await admin.list_offsets({T0: LATEST, T1: LATEST})
    assert (latest[T0].offset, latest[T1].offset) == (7, 3)
    assert await admin.delete_records({T0: 5, T1: -1}) == {T0: 5, T1: 3}
    earliest = await admin.list_offsets({T0: EARLIEST, T1: EARLIEST})
    assert (earliest[T0].offset, earliest[T1].offset) == (5, 3)
    with pytest.raises(SomeFailedError, match="OFFSET_OUT_OF_RANGE"):
        await admin.delete_records({T0: 100})


@played_in(scene)
async def test_a_leader_that_dies_is_waited_for(stage: Scene) -> None:
    await stage.admin.create_topics([NewTopic(name="t", replicas=((1, 2, 3),))])
    await stage.produce(T0, 2)
    await stage.cluster.kill("b1")
    assert (await stage.admin.list_offsets({T0: LATEST}))[T0].offset == 2


@played_in(scene, default_api_timeout_ms=3000, request_timeout_ms=1000)
async def test_a_call_without_an_answer_times_out(stage: Scene) -> None:
    with pytest.raises(SomeFailedError, match="nowhere-0: not done within 3000 ms"):
        await stage.admin.list_offsets({TopicPartition("nowhere", 0): LATEST})
    for name in stage.cluster.broker_names:
        await stage.cluster.kill(name)
    with pytest.raises(KafkaTimeoutError, match="not done within 3000 ms"):
        await stage.admin.describe_cluster()


@played_in(scene)
async def test_leaders_are_elected_and_partitions_moved(stage: Scene) -> None:
    admin = stage.admin
    await admin.create_topics([NewTopic(name="t", replicas=((1, 2),))])
    await admin.elect_leaders([T0])  # which has it already
    await admin.alter_partition_reassignments({T0: [2, 3]})

    async def replicas() -> tuple[int, ...]:
        return (await admin.describe_topics(["t"]))["t"].partitions[0].replicas

    while await replicas() != (2, 3):
        moving = await admin.list_partition_reassignments()
        assert all(each.adding == (3,) for each in moving.values())
        await stage.cluster.clock.sleep(0.1)
    assert await admin.list_partition_reassignments([T0]) == {}
    with pytest.raises(SomeFailedError, match="NO_REASSIGNMENT_IN_PROGRESS"):
        await admin.alter_partition_reassignments({T0: None})


@played_in(scene, brokers=2)
async def test_the_cluster_and_its_log_directories_are_described(stage: Scene) -> None:
    cluster = await stage.admin.describe_cluster()
    assert [(each.id, each.host, each.port) for each in cluster.brokers] == [
        (1, "b1", 9092),
        (2, "b2", 9092),
    ]
    await stage.admin.create_topics([NewTopic(name="t", replicas=((1,),))])
    await stage.produce(T0, 3)
    directories = await stage.admin.describe_log_dirs()
    assert directories[1][0].replicas[T0].size > 0
    assert [directory.path for directory in directories[2]] == ["/b2/log"]
    assert list(await stage.admin.describe_log_dirs([2])) == [2]


@played
async def test_an_admin_client_works_inside_its_block_only(world: World) -> None:
    async with scene(world, brokers=1) as stage:
        admin = stage.admin
        await admin.list_topics()
    with pytest.raises(IllegalStateError, match="inside `async with`"):
        await admin.list_topics()


@played_in(scene)
async def test_features_are_described_and_updated(stage: Scene) -> None:
    admin = stage.admin
    newest = FeatureDescription(lowest=0, highest=2, level=2)
    assert (await admin.describe_features())["transaction.version"] == newest
    with pytest.raises(KafkaError) as caught:
        await admin.update_features({"transaction.version": 1})
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    lower = {"transaction.version": 0}
    await admin.update_features(lower, downgrade="safe", validate_only=True)
    assert (await admin.describe_features())["transaction.version"] == newest
    await admin.update_features(lower, downgrade="unsafe")
    await stage.settle()
    assert (await admin.describe_features())["transaction.version"].level == 0


@played_in(scene)
async def test_the_quorum_is_described_and_a_broker_unregistered(stage: Scene) -> None:
    quorum = await stage.admin.describe_metadata_quorum()
    (voter,) = quorum.voters
    assert voter.node_id == quorum.leader_id
    assert voter.log_end_offset == quorum.high_watermark
    assert [each.node_id for each in quorum.observers] == [1, 2, 3]
    with pytest.raises(KafkaError) as caught:
        await stage.admin.unregister_broker(9)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    await stage.cluster.kill("b3")
    await stage.admin.unregister_broker(3)
    await stage.settle()
    assert [each.id for each in (await stage.admin.describe_cluster()).brokers] == [1, 2]


@played_in(scene)
async def test_client_quotas_are_altered_and_described(stage: Scene) -> None:
    admin, alice = stage.admin, {"user": "alice"}
    await admin.alter_client_quotas(alice, {"producer_byte_rate": 1000, "request_percentage": 5})
    await admin.alter_client_quotas({"user": None, "client-id": "c"}, {"consumer_byte_rate": 7})
    quota = ClientQuota(entity=alice, values={"producer_byte_rate": 1000, "request_percentage": 5})
    assert await admin.describe_client_quotas(alice) == [quota]
    assert len(await admin.describe_client_quotas(kinds=["user"])) == 2
    assert await admin.describe_client_quotas(kinds=["user"], strict=True) == [quota]
    assert await admin.describe_client_quotas({"user": None}, strict=True) == []
    await admin.alter_client_quotas(alice, {"request_percentage": None}, validate_only=True)
    assert await admin.describe_client_quotas(alice) == [quota]
    await admin.alter_client_quotas(alice, {"request_percentage": None})
    (left,) = await admin.describe_client_quotas(alice)
    assert left.values == {"producer_byte_rate": 1000}
    with pytest.raises(KafkaError) as caught:
        await admin.alter_client_quotas({"ip": "10.0.0.1"}, {"producer_byte_rate": 1})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@played_in(scene)
async def test_what_may_be_configured_is_listed(stage: Scene) -> None:
    await stage.admin.create_topics([NewTopic(name="t", partitions=1)])
    everything = await stage.admin.list_config_resources()
    assert everything[ConfigResourceType.TOPIC] == ["t"]
    assert everything[ConfigResourceType.BROKER] == ["1", "2", "3"]
    topics = await stage.admin.list_config_resources([ConfigResourceType.TOPIC])
    assert topics == {ConfigResourceType.TOPIC: ["t"]}
