"""Values set while a node runs: their effect, their description, and which ones are refused."""

import attrs
import pytest

from replication.config import (
    BrokerConfig,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    DynamicBrokerConfig,
    TopicConfig,
)
from replication.config.alter import altered, check_changes
from replication.config.broker import BROKER_KEYS
from replication.config.topic import TOPIC_KEYS, TOPIC_SPECS, describe_topic
from replication.errors import ErrorCode, KafkaError
from storage.batch.compression import Codec

STATIC = BrokerConfig(node_id=1, log_retention_ms=60_000, given={"log.retention.ms": "60000"})
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def sources(config: DynamicBrokerConfig, name: str) -> list[tuple[str | None, ConfigSource]]:
    return [(each.value, each.source) for each in config.synonyms(name)]


def test_a_brokers_own_value_precedes_the_cluster_wide_one_and_the_file() -> None:
    config = DynamicBrokerConfig.of(
        STATIC, {1: {"log.retention.ms": "1"}, None: {"log.retention.ms": "2"}}
    )
    assert config.current.log_retention_ms == 1
    assert sources(config, "log.retention.ms") == [
        ("1", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("60000", ConfigSource.STATIC_BROKER_CONFIG),
        ("168", ConfigSource.DEFAULT_CONFIG),
    ]
    config.update({2: {"log.retention.ms": "7"}, None: {"log.retention.ms": "2"}})
    assert config.current.log_retention_ms == 2
    config.update({})
    assert config.current is STATIC


def test_an_unreadable_value_leaves_the_next_one_in_force() -> None:
    config = DynamicBrokerConfig.of(
        STATIC,
        {1: {"log.retention.ms": "soon", "node.id": "9", "num.replica.fetchers": "2"}},
    )
    assert config.current.log_retention_ms == 60_000
    assert config.current.node_id == 1
    assert config.current.num_replica_fetchers == 2


def test_a_brokers_dynamic_value_reaches_its_topics() -> None:
    config = DynamicBrokerConfig.of(STATIC, {None: {"log.segment.bytes": "500"}})
    topic = TopicConfig.from_overrides({"retention.ms": "3"}, config.current)
    assert (topic.log.segment_bytes, topic.log.retention_ms) == (500, 3)
    described = {each.name: each for each in describe_topic({}, config)}
    assert described["segment.bytes"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert described["leader.replication.throttled.replicas"].value == ""


def test_every_broker_value_of_a_topic_key_is_the_default_of_topics() -> None:
    for name, spec in BROKER_KEYS.items():
        if spec.topic_key is not None:
            assert TOPIC_KEYS[spec.topic_key].broker_key == name
    broker = attrs.evolve(STATIC, compression_gzip_level=5)
    assert TopicConfig.from_overrides({}, broker).log.compression_gzip_level == 5


def test_describe_marks_dynamic_keys_and_lists_those_that_are_set() -> None:
    config = DynamicBrokerConfig.of(STATIC, {None: {"num.io.threads": "4", "log.roll.ms": "5"}})
    entries = {each.name: each for each in config.describe()}
    assert entries["node.id"].read_only
    assert entries["replica.lag.time.max.ms"].read_only
    assert not entries["num.replica.fetchers"].read_only
    assert not entries["log.roll.ms"].read_only
    assert "accepted without effect" in (entries["num.io.threads"].documentation or "")
    assert not entries["num.io.threads"].read_only
    assert [(each.name, each.value) for each in config.describe_cluster_wide()] == [
        ("log.roll.ms", "5"),
        ("num.io.threads", "4"),
    ]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"replica.lag.time.max.ms": "5"}, "Cannot update these configs dynamically: replica.lag"),
        ({"ssl.client.auth": "none"}, "Cannot update these configs dynamically: ssl.client.auth"),
        ({"listener.name.plaintext.ssl.client.auth": "none"}, "Cannot update these configs"),
        ({"ssl.keystore.location": "x"}, "can be dynamically updated only per-listener: ssl.key"),
        ({"listener.name.none.ssl.keystore.location": "x"}, r"one of the listeners \(PLAINTEXT"),
        ({"listener.name.plaintext.ssl.keystore.type": "x"}, "expected one of JKS, PEM, PKCS12"),
        (
            {"log.retention.mss": "5"},
            "Unknown broker config name: .* did you mean log.retention.ms",
        ),
        (
            {"log.retention.ms": "x"},
            "Invalid value for log.retention.ms=x: expected a whole number",
        ),
        ({"num.replica.fetchers": "0"}, "expected a whole number of at least 1"),
        ({"log.cleaner.threads": "0"}, "at least half"),
        ({"num.replica.fetchers": "9"}, "at most double the current value 4"),
        ({"num.replica.fetchers": "1"}, "at least half"),
    ],
)
def test_a_value_that_a_running_broker_cannot_take_is_refused(
    configs: dict[str, str], message: str
) -> None:
    config = DynamicBrokerConfig(BrokerConfig(node_id=1, num_replica_fetchers=4))
    with pytest.raises(KafkaError, match=message) as refused:
        config.check(configs)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_value_that_a_running_broker_can_take_is_accepted() -> None:
    config = DynamicBrokerConfig(BrokerConfig(node_id=1, num_replica_fetchers=4))
    config.check({"num.replica.fetchers": "8", "num.io.threads": "4", "log.retention.ms": "-1"})
    config.check({"num.replica.fetchers": "2", "leader.replication.throttled.rate": "0"})


@pytest.mark.parametrize(
    ("current", "operation", "value", "result"),
    [
        pytest.param(None, SET, "compact", "compact", id="set"),
        pytest.param("compact", DELETE, None, None, id="delete"),
        pytest.param(None, DELETE, None, None, id="delete what is not set"),
        pytest.param("compact", APPEND, "delete", "compact,delete", id="append"),
        pytest.param("compact", APPEND, "compact", "compact", id="append what is there"),
        pytest.param(None, APPEND, "compact", "delete,compact", id="append to the default"),
        pytest.param("compact,delete", SUBTRACT, "delete", "compact", id="subtract"),
        pytest.param("compact", SUBTRACT, "delete", "compact", id="subtract what is not there"),
        pytest.param("compact", SUBTRACT, "compact", "", id="subtract the last"),
        pytest.param("", APPEND, "compact", "compact", id="append to nothing"),
        pytest.param("a,b,a", SUBTRACT, "a", "b,a", id="subtract once"),
        # Kafka compares texts as they are, blanks included.
        pytest.param("a , b", SUBTRACT, "b", "a , b", id="subtract another text"),
        pytest.param("a", APPEND, "", "a,", id="append an empty word"),
        pytest.param("a", APPEND, "b,,", "a,b", id="append less its last commas"),
    ],
)
def test_each_operation_on_a_list(
    current: str | None, operation: ConfigOperation, value: str | None, result: str | None
) -> None:
    name = "cleanup.policy"
    before = {"retention.ms": "1"} | ({} if current is None else {name: current})
    after = altered(before, [ConfigChange(name, operation, value)], TOPIC_SPECS)
    assert after.pop("retention.ms") == "1"
    assert after == ({} if result is None else {name: result})


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such.key"])
def test_only_lists_take_append_and_subtract(operation: ConfigOperation, name: str) -> None:
    with pytest.raises(KafkaError, match="because its type is not LIST") as refused:
        altered({}, [ConfigChange(name, operation, "1")], TOPIC_SPECS)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    changed = altered({}, [ConfigChange("log.cleanup.policy", APPEND, "compact")], BROKER_KEYS)
    assert changed == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([ConfigChange("a", SET, None), ConfigChange("b", APPEND, None)], "Null value .* : a, b"),
        ([ConfigChange("a", SET, "1"), ConfigChange("a", DELETE, None)], "duplicate config keys"),
        ([ConfigChange("a", 9, "1")], "Unknown operations type 9"),
    ],
)
def test_invalid_changes_are_refused(changes: list[ConfigChange], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        check_changes(changes)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"leader.replication.throttled.replicas": "1"}, "partition:broker pairs"),
        ({"follower.replication.throttled.replicas": "0:1,*"}, "partition:broker pairs"),
        ({"remote.storage.enable": "true"}, "expected false"),
        ({"compression.gzip.level": "20"}, "from 1 to 9, or -1$"),
        ({"compression.gzip.level": "0"}, "from 1 to 9, or -1$"),
        ({"compression.lz4.level": "0"}, "from 1 to 17$"),
        ({"compression.lz4.level": "18"}, "from 1 to 17$"),
        ({"compression.zstd.level": "23"}, "from -131072 to 22$"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "conflict topic config"),
    ],
)
def test_a_value_that_a_topic_cannot_take_is_an_invalid_config(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        TopicConfig.from_overrides(overrides, STATIC)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_the_lowest_and_highest_level_of_each_codec() -> None:
    for codec, levels in (("gzip", (-1, 1, 9)), ("lz4", (1, 17)), ("zstd", (-131_072, 0, 22))):
        for level in levels:
            topic = TopicConfig.from_overrides({f"compression.{codec}.level": str(level)}, STATIC)
            assert topic.log.level_of(Codec.named(codec)) == level


def test_throttled_replicas_are_all_of_them_or_pairs() -> None:
    topic = TopicConfig.from_overrides(
        {
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "0:1, , 2:3",
        },
        STATIC,
    )
    assert topic.leader_throttled_replicas == ("*",)
    assert topic.follower_throttled_replicas == ("0:1", "2:3")


def test_a_topic_ignores_overrides_that_cannot_be_read() -> None:
    """Another release accepted the value, or it became wrong when its broker was altered."""
    overrides = {
        "retention.ms": "soon",
        "no.such.key": "1",
        "segment.bytes": "500",
        "min.compaction.lag.ms": "9",
    }
    current = DynamicBrokerConfig.of(
        STATIC, {None: {"log.cleaner.max.compaction.lag.ms": "8"}}
    ).current
    topic = TopicConfig.in_force(overrides, current)
    assert (topic.log.retention_ms, topic.log.segment_bytes) == (60_000, 500)
    assert (topic.log.min_compaction_lag_ms, topic.log.max_compaction_lag_ms) == (9, 8)
    for name, text in overrides.items():
        if name != "segment.bytes":
            with pytest.raises(KafkaError):
                TopicConfig.from_overrides({name: text}, current)
