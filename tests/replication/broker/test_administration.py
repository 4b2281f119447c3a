"""Client quotas, features, the quorum, unregistered brokers and the list of what is configured."""

from collections.abc import Mapping
from typing import Any

import pytest

from replication.broker.nodes import CONTROLLER_ID
from replication.errors import ErrorCode
from replication.wire.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaOperation,
)
from replication.wire.api_versions import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    ApiVersionsRequest,
)
from replication.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from replication.wire.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_quorum import (
    QUORUM_TOPIC,
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from replication.wire.list_config_resources import ListConfigResourcesRequest
from replication.wire.unregister_broker import UnregisterBrokerRequest
from replication.wire.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeaturesRequest,
)
from tests.replication.broker.stage import Stage, played_in, staged
from tests.replication.groups.test_consumer_groups import SERVED

ALICE = {"user": "alice"}
BOTH = {"client-id": None, "user": "alice"}
RATE = {"producer_byte_rate": 1000.0}


# Client quotas.


def altered(
    entity: Mapping[str, str | None], values: Mapping[str, float | None]
) -> QuotaAlteration:
    return QuotaAlteration(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            QuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


async def alter(stage: Stage, *entries: QuotaAlteration, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = await stage.client.ask(stage.address(1), request)
    assert all(bool(each.error_message) == bool(each.error_code) for each in answer.entries)
    return [each.error_code for each in answer.entries]


async def found(
    stage: Stage, *components: tuple[str, int, str | None], strict: bool = False, broker_id: int = 1
) -> list[tuple[Mapping[str, str | None], Mapping[str, float]]]:
    filters = [
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    request = DescribeClientQuotasRequest(components=filters, strict=strict)
    answer = await stage.client.ask(stage.address(broker_id), request)
    assert answer.error_code == ErrorCode.NONE
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


@played_in(staged)
async def test_client_quotas_are_kept_shown_and_removed(stage: Stage) -> None:
    assert await alter(
        stage, altered(ALICE, RATE), altered(BOTH, {"request_percentage": 12.5})
    ) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    everything = [(ALICE, RATE), (BOTH, {"request_percentage": 12.5})]
    for broker_id in (1, 2, 3):
        assert await found(stage, broker_id=broker_id) == everything
    alice = ("user", EXACT, "alice")
    assert await found(stage, alice) == everything
    assert await found(stage, alice, strict=True) == everything[:1]
    assert await found(stage, ("client-id", DEFAULT, None)) == everything[1:]
    assert await found(stage, ("client-id", SPECIFIED, None), alice, strict=True) == everything[1:]
    assert await found(stage, ("user", DEFAULT, None)) == []
    assert await found(stage, ("ip", SPECIFIED, None)) == []
    assert await alter(stage, altered(ALICE, dict.fromkeys([*RATE, "nothing"]))) == [ErrorCode.NONE]
    assert await found(stage) == everything[1:]


@played_in(staged, brokers=1)
async def test_client_quotas_outlive_the_controller(stage: Stage) -> None:
    await alter(stage, altered({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}))
    await stage.cluster.controller.log.take_snapshot()  # type: ignore[union-attr] # it runs
    await stage.cluster.kill_controller()
    await stage.cluster.start_controller()
    await alter(stage, altered({"ip": None}, {"connection_creation_rate": 7.0}))
    assert await found(stage) == [
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
        ({"ip": None}, {"connection_creation_rate": 7.0}),
    ]


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        pytest.param({}, RATE, id="nobody"),
        pytest.param({"group": "g"}, RATE, id="another type"),
        pytest.param({"user": ""}, RATE, id="an empty name"),
        pytest.param({"ip": "10.0.0.1", **ALICE}, RATE, id="an address of a user"),
        pytest.param({"ip": "nowhere"}, {"connection_creation_rate": 1.0}, id="no address"),
        pytest.param({"ip": "10.0.0.1"}, RATE, id="a key of users"),
        pytest.param(ALICE, {"connection_creation_rate": 1.0}, id="a key of addresses"),
        pytest.param(ALICE, {"producer_byte_rate": 0.0}, id="nothing at all"),
        pytest.param(ALICE, {"request_percentage": -1.0}, id="less than nothing"),
        pytest.param(ALICE, {"request_percentage": float("nan")}, id="no number"),
        pytest.param(ALICE, {"consumer_byte_rate": 1.5}, id="a fraction"),
        pytest.param(ALICE, {"consumer_byte_rate": 1e19}, id="too large for a long"),
        pytest.param({"ip": None}, {"connection_creation_rate": 2.0**31}, id="too large"),
    ],
)
@played_in(staged, brokers=1)
async def test_a_quota_that_makes_no_sense_is_refused(
    stage: Stage, entity: dict[str, str | None], values: dict[str, float | None]
) -> None:
    sound = altered({"user": "bob"}, {"producer_byte_rate": 2.0**62, "request_percentage": 0.5})
    errors = await alter(stage, altered(entity, values), sound)
    assert errors == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [entity for entity, _ in await found(stage)] == [{"user": "bob"}]


@played_in(staged, brokers=1)
async def test_a_quota_is_not_set_twice_in_one_request_nor_where_it_is_only_validated(
    stage: Stage,
) -> None:
    twice = altered(ALICE, RATE)
    twice.ops += twice.ops
    assert await alter(stage, twice) == [ErrorCode.INVALID_REQUEST]
    assert await alter(stage, altered(ALICE, RATE), altered(ALICE, RATE)) == [
        ErrorCode.INVALID_REQUEST
    ]
    assert await alter(stage, altered(ALICE, RATE), validate_only=True) == [ErrorCode.NONE]
    assert await found(stage) == []


# What has a configuration.


@played_in(staged, brokers=2)
async def test_what_may_be_configured_is_listed_by_type(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1)

    async def listed(*kinds: int, version: int = 1) -> set[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = await stage.client.ask(stage.address(2), request, version=version)
        assert answer.error_code == ErrorCode.NONE
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    topics = {(ConfigResourceType.TOPIC, "t")}
    brokers = {(ConfigResourceType.BROKER, "1"), (ConfigResourceType.BROKER, "2")}
    loggers = {(ConfigResourceType.BROKER_LOGGER, name) for _, name in brokers}
    assert await listed() == topics | brokers | loggers
    assert await listed(ConfigResourceType.TOPIC, ConfigResourceType.GROUP) == topics
    assert await listed(ConfigResourceType.BROKER) == brokers
    assert await listed(version=0) == set(), "there are no client metrics"
    unknown = ListConfigResourcesRequest(resource_types=[ConfigResourceType.TOPIC, 3])
    answer = await stage.client.ask(stage.address(1), unknown)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


# Features.


async def update(
    stage: Stage, *updates: FeatureUpdate, validate_only: bool = False, version: int = 2
) -> Any:
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=validate_only)
    return await stage.client.ask(stage.address(1), request, version=version)


def to(feature: str, level: int, how: int = UPGRADE) -> FeatureUpdate:
    return FeatureUpdate(feature=feature, max_version_level=level, upgrade_type=how)


async def finalized(stage: Stage) -> tuple[dict[str, int], int]:
    """Return the finalized features that a broker advertises, and their epoch."""
    asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answer = await stage.client.ask(stage.address(1), asked)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels, answer.finalized_features_epoch


NEWEST = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    METADATA_VERSION: 33,
    TRANSACTION_VERSION: 2,
}


@played_in(staged)
async def test_a_broker_shows_the_level_of_the_quorum(stage: Stage) -> None:
    assert (await update(stage, to(KRAFT_VERSION, 1))).error_code == ErrorCode.NONE
    levels, _ = await finalized(stage)
    assert levels == NEWEST | {KRAFT_VERSION: 1}
    node = stage.cluster.controller
    assert node is not None
    assert node.node.quorum.voters_offset is not None


@pytest.mark.parametrize("version", [0, 1, 2])
@played_in(staged)
async def test_levels_of_features_are_lowered_and_raised(stage: Stage, version: int) -> None:
    levels, before = await finalized(stage)
    assert levels == NEWEST
    lower = to(TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)
    lower.allow_downgrade = True
    answer = await update(stage, lower, version=version)
    assert answer.error_code == ErrorCode.NONE
    named = [(each.feature, each.error_code) for each in answer.results]
    assert named == ([(TRANSACTION_VERSION, ErrorCode.NONE)] if version < 2 else [])
    levels, after = await finalized(stage)
    assert levels == NEWEST | {TRANSACTION_VERSION: 1}
    assert after > before
    answer = await update(stage, to(TRANSACTION_VERSION, 2), version=version)
    assert answer.error_code == ErrorCode.NONE
    assert (await finalized(stage))[0] == NEWEST


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ([to(TRANSACTION_VERSION, 1)], "downgrade"),
        ([to(TRANSACTION_VERSION, 3)], "only supports versions 0-2"),
        ([to(TRANSACTION_VERSION, -1)], "cannot be less than 0"),
        ([to(TRANSACTION_VERSION, 2, 0)], "upgrade type"),
        ([to(METADATA_VERSION, 34)], "only supports versions 7-33"),
        (
            [to(METADATA_VERSION, 32, UNSAFE_DOWNGRADE)],
            "Unsafe metadata downgrade is not supported",
        ),
        ([to(METADATA_VERSION, 32, SAFE_DOWNGRADE)], "it might delete metadata information"),
        ([to("share.version", 1)], "does not support this feature"),
        ([to(GROUP_VERSION, 0, SAFE_DOWNGRADE), to("no.version", 1)], "does not support"),
    ],
)
@played_in(staged, brokers=1)
async def test_an_update_of_features_is_refused_as_a_whole(
    stage: Stage, updates: list[FeatureUpdate], message: str
) -> None:
    answer = await update(stage, *updates)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in answer.error_message
    assert (await finalized(stage))[0] == NEWEST


@played_in(staged, brokers=1)
async def test_an_update_that_is_only_validated_changes_nothing(stage: Stage) -> None:
    lower = to(GROUP_VERSION, 0, SAFE_DOWNGRADE)
    assert (await update(stage, lower, validate_only=True)).error_code == ErrorCode.NONE
    assert (await finalized(stage))[0] == NEWEST
    await update(stage, lower)
    upwards = to(GROUP_VERSION, 1, SAFE_DOWNGRADE)
    answer = await update(stage, upwards)
    assert "Can't downgrade to a newer version." in answer.error_message


@played_in(staged, brokers=1, **SERVED)
async def test_without_group_version_there_is_no_consumer_protocol(stage: Stage) -> None:
    await update(stage, to(GROUP_VERSION, 0, SAFE_DOWNGRADE))
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    await update(stage, to(GROUP_VERSION, 1))
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.error_code != ErrorCode.UNSUPPORTED_VERSION


@played_in(staged, brokers=1, understudy_eligible_leader_replicas_version="0")
async def test_eligible_replicas_need_one_minimum_for_all_brokers(stage: Stage) -> None:
    assert stage.cluster.image.broker_configs == {}
    await update(stage, to(ELIGIBLE_LEADER_REPLICAS_VERSION, 1))
    assert stage.cluster.image.broker_configs == {None: {"min.insync.replicas": "1"}}


# The quorum.


@played_in(staged)
async def test_the_quorum_is_the_controller_and_its_observers_are_the_brokers(stage: Stage) -> None:
    asked = QuorumTopic(topic_name=QUORUM_TOPIC, partitions=[QuorumPartition(partition_index=0)])
    answer = await stage.client.ask(stage.address(2), DescribeQuorumRequest(topics=[asked]))
    (topic,) = answer.topics
    (quorum,) = topic.partitions
    (voter,) = quorum.current_voters
    image = stage.cluster.image
    assert (topic.topic_name, quorum.error_code) == (QUORUM_TOPIC, ErrorCode.NONE)
    assert (quorum.leader_id, voter.replica_id) == (CONTROLLER_ID, CONTROLLER_ID)
    assert quorum.leader_epoch == image.leader_epoch
    assert quorum.high_watermark == voter.log_end_offset == image.offset + 1
    assert [each.replica_id for each in quorum.observers] == [1, 2, 3]
    assert {each.log_end_offset for each in quorum.observers} == {quorum.high_watermark}
    for each in quorum.observers:
        assert 0 < each.last_caught_up_timestamp <= each.last_fetch_timestamp
    (node,) = answer.nodes
    assert node.node_id == CONTROLLER_ID
    assert node.listeners[0].port > 0


@pytest.mark.parametrize("name", ["t", "__cluster_metadata"])
@played_in(staged, brokers=1)
async def test_no_other_log_has_a_quorum(stage: Stage, name: str) -> None:
    asked = QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=4)])
    answer = await stage.client.ask(stage.address(1), DescribeQuorumRequest(topics=[asked]))
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (partition.partition_index, answer.error_code) == (4, ErrorCode.NONE)


# Brokers that do not come back.


@played_in(staged)
async def test_a_broker_that_does_not_come_back_is_unregistered(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=3)
    await stage.until_in_sync("t", 3)
    await stage.cluster.kill_broker(3)
    request = UnregisterBrokerRequest(broker_id=3)
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.error_code == ErrorCode.NONE
    assert sorted(stage.cluster.image.brokers) == [1, 2]
    partition = stage.cluster.partition("t", 0)
    assert partition is not None
    assert 3 not in (*partition.isr, *partition.elr, partition.leader)
    answer = await stage.client.ask(stage.address(1), request)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "3" in answer.error_message
    await stage.cluster.start_broker(3)
    await stage.until_in_sync("t", 3)
