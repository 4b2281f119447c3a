"""Configuration at run time, on brokers that run: asked of one, in force on all of them."""

from typing import Any

import attrs
import pytest

from replication.config import ConfigOperation, ConfigSource
from replication.controller.controller import FETCH_WAIT_SECONDS
from replication.errors import ErrorCode
from replication.wire.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from scenarios.world.world import World
from storage.config import LogConfig
from storage.types import TopicPartition
from tests.replication.broker.stage import Stage, played_in, staged

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
TP = TopicPartition("t", 0)


def resource(kind: int, name: str, **values: str | None) -> IncrementalAlterConfigsResource:
    """Each key set to its value, or deleted for None; underscores stand for dots."""
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(
                name=key.replace("_", "."),
                config_operation=DELETE if value is None else SET,
                value=value,
            )
            for key, value in values.items()
        ],
    )


async def alter(
    stage: Stage,
    *resources: IncrementalAlterConfigsResource,
    broker: int = 1,
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answer = await stage.client.ask(stage.address(broker), request)
    return [(each.error_code, each.error_message) for each in answer.responses]


async def described(
    stage: Stage, kind: int, name: str, key: str, *, broker: int = 1
) -> DescribeConfigsResourceResult | None:
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    answer = await stage.client.ask(stage.address(broker), request)
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return result.configs[0] if result.configs else None


def log_configs(stage: Stage) -> list[LogConfig]:
    logs = [broker.logs.get(TP) for broker in stage.cluster.brokers.values()]
    return [log.config for log in logs if log is not None]


async def until_every_log(stage: Stage, **values: Any) -> None:
    def holds() -> bool:
        configs = log_configs(stage)
        return len(configs) == 3 and all(
            attrs.asdict(each, recurse=False) | values == attrs.asdict(each, recurse=False)
            for each in configs
        )

    await stage.cluster.until(holds, what=f"every log has {values}")


@played_in(staged)
async def test_what_was_just_altered_is_shown_by_every_broker(stage: Stage, world: World) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    world.network.set_delay("controller", "b2", least=0.1)
    for value in ("7", "8", "9"):
        changes = resource(TOPIC, "t", retention_ms=value)
        assert await alter(stage, changes, broker=1) == [(ErrorCode.NONE, None)]
        for broker in (2, 3, 1):
            shown = await described(stage, TOPIC, "t", "retention.ms", broker=broker)
            assert shown is not None
            assert (broker, shown.value) == (broker, value)


@played_in(staged, broker_session_timeout_ms="9000")
async def test_a_broker_that_cannot_be_told_holds_a_change_up_for_a_bounded_time(
    stage: Stage, world: World
) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    await stage.cluster.kill_broker(3)
    began = world.time.current_time()
    assert await alter(stage, resource(TOPIC, "t", retention_ms="7"), broker=1) == [
        (ErrorCode.NONE, None)
    ]
    took = world.time.current_time() - began
    assert FETCH_WAIT_SECONDS <= took < FETCH_WAIT_SECONDS + 0.1


@played_in(staged)
async def test_what_a_topic_is_set_to_reaches_the_log_of_every_replica(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", retention_ms="7")
    await until_every_log(stage, retention_ms=7)
    values = {
        "retention_ms": None,
        "segment_bytes": "1000",
        "cleanup_policy": "compact",
        "max_message_bytes": "2000",
        "message_timestamp_type": "LogAppendTime",
        "compression_type": "gzip",
        "flush_messages": "5",
    }
    changes = resource(TOPIC, "t", **values)
    assert await alter(stage, changes, broker=2) == [(ErrorCode.NONE, None)]
    await until_every_log(
        stage,
        retention_ms=7 * 24 * 3600 * 1000,
        segment_bytes=1000,
        cleanup_policy=frozenset({"compact"}),
        max_message_bytes=2000,
        message_timestamp_type="LogAppendTime",
        compression_type="gzip",
        flush_messages=5,
    )
    entry = await described(stage, TOPIC, "t", "segment.bytes")
    assert entry is not None
    assert (entry.value, entry.config_source) == ("1000", ConfigSource.TOPIC_CONFIG)


@played_in(staged)
async def test_what_a_topic_is_set_to_is_acted_upon(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    leader = await stage.leader("t")
    await stage.until_in_sync("t", 3)
    assert (await stage.client.produce(stage.address(leader), "t", bytes(200))).error_code == 0
    await alter(stage, resource(TOPIC, "t", max_message_bytes="100"))
    await until_every_log(stage, max_message_bytes=100)
    answer = await stage.client.produce(stage.address(leader), "t", bytes(200))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    follower = next(each for each in (1, 2, 3) if each != leader)
    await stage.cluster.kill_broker(follower)
    await stage.until_in_sync("t", 2)
    assert (await stage.client.produce(stage.address(leader), "t", b"x")).error_code == 0
    await alter(stage, resource(TOPIC, "t", min_insync_replicas="3"), broker=leader)

    def is_demanded() -> bool:
        partition = stage.cluster.brokers[leader].replica_manager.hosted.snapshot(TP)
        return partition is not None and partition.under_min_isr

    await stage.cluster.until(is_demanded, what="three replicas are demanded")
    answer = await stage.client.produce(stage.address(leader), "t", b"x")
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@played_in(staged)
async def test_what_all_brokers_are_set_to_gives_way_to_one_and_to_the_topic(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", segment_ms="3")
    await alter(stage, resource(BROKER, "", log_retention_ms="5", log_roll_ms="6"))
    await until_every_log(stage, retention_ms=5, segment_ms=3)
    answers = await alter(stage, resource(BROKER, "2", log_retention_ms="9"), broker=2)
    assert answers == [(ErrorCode.NONE, None)]

    def differ() -> bool:
        return sorted(each.retention_ms for each in log_configs(stage)) == [5, 5, 9]

    await stage.cluster.until(differ, what="broker 2 keeps its records longer")
    entry = await described(stage, BROKER, "2", "log.retention.ms", broker=2)
    assert entry is not None
    assert not entry.read_only
    assert [(each.value, each.source) for each in entry.synonyms] == [
        ("9", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("168", ConfigSource.DEFAULT_CONFIG),  # of log.retention.hours
    ]
    entry = await described(stage, BROKER, "", "log.retention.ms")
    assert entry is not None
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert (entry.value, entry.config_source) == ("5", source)
    assert await described(stage, BROKER, "", "log.segment.bytes") is None
    entry = await described(stage, TOPIC, "t", "retention.ms", broker=3)
    assert entry is not None
    assert (entry.value, entry.config_source) == ("5", source)


@played_in(staged)
async def test_more_fetchers_take_up_their_partitions_while_they_run(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", partitions=12)

    def fetchers() -> list[int]:
        """Return how many fetchers each broker has, from the meters that each of them shows."""
        meters = [
            [
                name
                for name in broker.metrics.names()
                if (name.type, name.name) == ("FetcherStats", "RequestsPerSec")
                and "ReplicaFetcher" in dict(name.tags)["clientId"]
            ]
            for broker in stage.cluster.brokers.values()
        ]
        return [len(each) for each in meters]

    await stage.cluster.until(lambda: fetchers() == [2, 2, 2], what="one for each leader")
    await alter(stage, resource(BROKER, "", num_replica_fetchers="2"))
    await stage.cluster.until(lambda: fetchers() == [4, 4, 4], what="two for each leader")
    leader = await stage.leader("t")
    assert (await stage.client.produce(stage.address(leader), "t", b"x")).error_code == 0
    await alter(stage, resource(BROKER, "", num_replica_fetchers=None))
    await stage.cluster.until(lambda: fetchers() == [2, 2, 2], what="one again")
    assert (await stage.client.produce(stage.address(leader), "t", b"x")).error_code == 0


@played_in(staged)
async def test_producers_are_forgotten_after_another_while(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    await alter(stage, resource(BROKER, "", producer_id_expiration_ms="5000"))

    def expirations() -> set[int]:
        logs = [broker.logs.get(TP) for broker in stage.cluster.brokers.values()]
        return {log.producers.expiration_ms for log in logs if log is not None}

    await stage.cluster.until(lambda: expirations() == {5000}, what="on every broker")


@played_in(staged)
async def test_what_was_set_outlives_those_it_was_set_for(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t")
    await alter(
        stage,
        resource(TOPIC, "t", retention_ms="5"),
        resource(BROKER, "", log_roll_ms="6"),
    )
    await until_every_log(stage, retention_ms=5, segment_ms=6)
    for node in (0, 1, 2, 3):
        await stage.cluster.kill_node(node)
    for node in (0, 1, 2, 3):
        await stage.cluster.start_node(node)
    await until_every_log(stage, retention_ms=5, segment_ms=6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (resource(BROKER, "2"), "INVALID_REQUEST", "Unexpected broker id, expected 1, but recei"),
        (resource(BROKER, "b"), "INVALID_REQUEST", "Node id must be an integer, but it is: b"),
        (
            resource(BROKER, "1", broker_session_timeout_ms="1"),
            "INVALID_REQUEST",
            "Cannot update these configs dynamically: broker.session.timeout.ms",
        ),
        (
            resource(BROKER, "1", log_retention_ms="x"),
            "INVALID_REQUEST",
            "Invalid value for log.retention.ms=x",
        ),
        (
            resource(ConfigResourceType.BROKER_LOGGER, "1"),
            "INVALID_REQUEST",
            "Unknown resource type 8",
        ),
        (
            resource(ConfigResourceType.CLIENT_METRICS, "m", interval_ms="5000"),
            "INVALID_REQUEST",
            "Unexpected resource type 16",
        ),
        (resource(TOPIC, "no"), "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'no' does not exist."),
        (
            resource(TOPIC, "t", segment_bytes="x"),
            "INVALID_CONFIG",
            "Invalid value for segment.bytes=x",
        ),
    ],
)
@played_in(staged, brokers=1)
async def test_each_resource_is_answered_for_whoever_judged_it(
    stage: Stage, changes: IncrementalAlterConfigsResource, error: str, message: str
) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1)
    good = resource(TOPIC, "t" if changes.resource_name != "t" else "t2", retention_ms="5")
    if good.resource_name == "t2":
        await stage.client.create_topic(stage.address(1), "t2", replicas=1)
    twice = resource(BROKER, "")
    answers = await alter(stage, twice, changes, good, twice)
    assert [code for code, _ in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode[error],
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert (answers[0][1] or "") == "Each resource must appear at most once."
    assert (answers[1][1] or "").startswith(message)
    assert await alter(stage, changes, validate_only=True) == [answers[1]]


@played_in(staged, brokers=1)
async def test_validating_changes_nothing_and_a_null_is_refused(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1)
    before = stage.cluster.image.offset
    answers = await alter(stage, resource(TOPIC, "t", retention_ms="5"), validate_only=True)
    assert answers == [(ErrorCode.NONE, None)]
    null = IncrementalAlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=SET, value=None)],
    )
    (answer,) = await alter(stage, null)
    assert answer == (
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for : retention.ms",
    )
    assert stage.cluster.image.offset == before


@played_in(staged)
async def test_the_older_api_sets_all_there_is_to_set(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", retention_ms="7", segment_ms="8")
    await until_every_log(stage, retention_ms=7, segment_ms=8)
    topic, broker, refused = (
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=key, value=value)],
        )
        for kind, name, key, value in (
            (TOPIC, "t", "segment.ms", "9"),
            (BROKER, "1", "log.retention.ms", "5"),
            (BROKER, "", "node.id", "5"),
        )
    )
    request = AlterConfigsRequest(resources=[topic, broker, refused])
    answer = await stage.client.ask(stage.address(1), request)
    assert [each.error_code for each in answer.responses] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    await until_every_log(stage, segment_ms=9)

    def only_one_keeps_less() -> bool:
        return sorted(each.retention_ms for each in log_configs(stage))[:2] == [
            5,
            7 * 24 * 3600 * 1000,
        ]

    await stage.cluster.until(only_one_keeps_less, what="broker 1 keeps records shorter")


@played_in(staged, brokers=1, request_timeout_ms="2000")
async def test_while_the_controller_is_away_nothing_is_altered(stage: Stage) -> None:
    await stage.client.create_topic(stage.address(1), "t", replicas=1)
    await stage.cluster.kill_controller()
    ((code, _),) = await alter(stage, resource(TOPIC, "t", retention_ms="5"))
    assert code == ErrorCode.REQUEST_TIMED_OUT


@played_in(staged, brokers=1, ssl_key_password="sesame")
async def test_a_secret_is_told_to_nobody(stage: Stage) -> None:
    found = await described(stage, BROKER, "1", "ssl.key.password")
    assert found is not None
    assert found.is_sensitive
    assert found.value is None
    assert [(each.source, each.value) for each in found.synonyms] == [
        (ConfigSource.STATIC_BROKER_CONFIG, None)
    ]
