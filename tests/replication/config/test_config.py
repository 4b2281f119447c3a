"""A stock server.properties loads; a wrong one is refused with one line."""

import contextlib

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.config import (
    BrokerConfig,
    ConfigSource,
    ConfigSynonym,
    DynamicBrokerConfig,
    HostPort,
    ListenerConfig,
    TopicConfig,
    Voter,
    parse_properties,
)
from replication.config.broker import BROKER_KEYS
from replication.config.topic import TOPIC_KEYS, describe_topic
from replication.errors import ConfigError, ErrorCode, KafkaError
from storage.config import LogConfig

# The keys of config/server.properties as Apache Kafka 4.0 ships it.
STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(text: str) -> BrokerConfig:
    return BrokerConfig.from_properties(parse_properties(text))


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        pytest.param("a=b\nc:d\ne f", {"a": "b", "c": "d", "e": "f"}, id="separators"),
        pytest.param("  a \t=  b c", {"a": "b c"}, id="blanks around"),
        pytest.param("# x=1\n ! y=2\n\n   \na=1", {"a": "1"}, id="comments"),
        pytest.param("a=1,\\\n   2,\\\n 3", {"a": "1,2,3"}, id="a line goes on"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="an even number does not"),
        pytest.param("a=1\\", {"a": "1"}, id="on into nothing"),
        pytest.param("a\\ b\\=c=d", {"a b=c": "d"}, id="escaped separators in a key"),
        pytest.param("a=\\u00e9\\t\\q", {"a": "é\tq"}, id="escapes"),
        pytest.param("a=b=c", {"a": "b=c"}, id="only the first separates"),
        pytest.param("a\nb=", {"a": "", "b": ""}, id="no value"),
        pytest.param("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}, id="line ends"),
        pytest.param("a=1\na=2", {"a": "2"}, id="the last one counts"),
        pytest.param("a=1\\\n#2", {"a": "1#2"}, id="no comment inside a line"),
    ],
)
def test_java_properties(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u00g1", "a=\\u12"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties(text)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert all(isinstance(value, str) for value in parse_properties(text).values())


def test_a_stock_file_loads_and_lists_its_ignored_keys() -> None:
    config = load(STOCK)
    assert config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.broker_listeners == (ListenerConfig("PLAINTEXT", "", 9092),)
    assert config.controller_listeners == (ListenerConfig("CONTROLLER", "", 9093),)
    assert config.advertised_broker_listeners == (ListenerConfig("PLAINTEXT", "localhost", 9092),)
    assert config.controller_addresses == (HostPort("localhost", 9093),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_directory == "/tmp/kraft-combined-logs"
    assert config.log_retention_ms == 7 * 24 * 60 * 60 * 1000
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.ignored_keys == (
        "num.io.threads",
        "num.network.threads",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    )


def test_each_default_is_a_value_that_its_key_allows() -> None:
    assert [name for name, spec in BROKER_KEYS.items() if not spec.allows(spec.default)] == []


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig(node_id=1)
    assert config.replica_lag_time_max_ms == 30_000
    assert config.broker_heartbeat_interval_ms == 2000
    assert config.broker_session_timeout_ms == 9000
    assert config.message_max_bytes == 1_048_588
    assert config.controlled_shutdown_enable
    assert config.broker_listeners == (ListenerConfig("PLAINTEXT", "", 9092),)
    assert config.advertised_broker_listeners == (ListenerConfig("PLAINTEXT", "localhost", 9092),)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("broker.id=4", "node_id", 4),
        ("node.id=1\nlog.dir=/a", "log_dirs", ("/a",)),
        ("node.id=1\nlog.dir=/a\nlog.dirs=/b, /c", "log_dirs", ("/b", "/c")),
        ("node.id=1\nlog.retention.minutes=2", "log_retention_ms", 120_000),
        ("node.id=1\nlog.retention.hours=1\nlog.retention.ms=5", "log_retention_ms", 5),
        ("node.id=1\nlog.retention.hours=-1", "log_retention_ms", -1),
        ("node.id=1\nlog.roll.hours=1", "log_roll_ms", 3_600_000),
        ("node.id=1\nauto.create.topics.enable=FALSE", "auto_create_topics_enable", False),
        (
            "node.id=1\ncontroller.quorum.voters=7@[::1]:9093",
            "controller_quorum_voters",
            (Voter(7, "::1", 9093),),
        ),
        (
            "node.id=1\ncontroller.quorum.voters=7@a:1,8@b:2",
            "controller_quorum_voters",
            (Voter(7, "a", 1), Voter(8, "b", 2)),
        ),
        ("node.id=1\nlog.cleaner.min.cleanable.ratio=0.2", "log_cleaner_min_cleanable_ratio", 0.2),
        ("node.id=1\nbroker.rack=r1 ", "broker_rack", "r1"),
    ],
)
def test_values_and_other_names(text: str, name: str, value: object) -> None:
    assert getattr(load(text), name) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replica.lag.time.ms=1", "unknown key replica.lag.time.ms; did you mean replica.lag.time"),
        ("xyzzy=1", "unknown key xyzzy$"),
        ("num.partitions=abc", "num.partitions=abc: expected a whole number of at least 1$"),
        ("num.partitions=0", "num.partitions=0: expected a whole number of at least 1$"),
        ("num.partitions=1_000", "num.partitions=1_000: expected a whole number"),
        ("default.replication.factor=40000", "expected a whole number from 1 to 32767"),
        ("log.retention.hours=x", "log.retention.hours=x: expected a whole number"),
        ("auto.create.topics.enable=yes", "auto.create.topics.enable=yes: expected true or false"),
        ("compression.type=brotli", "compression.type=brotli: expected one of gzip"),
        ("log.cleanup.policy=keep", "expected one or more of compact, delete"),
        ("listeners=9092", "listeners=9092: expected NAME://host:port"),
        ("listeners=A://:70000", "listeners=A://:70000: expected host:port"),
        ("listeners=A://:1,A://:2", "expected each name once"),
        ("listener.security.protocol.map=A:TLS\nlisteners=A://:1", "A:TLS: expected one of"),
        ("listeners=SASL_SSL://:9092", "sasl.enabled.mechanisms is missing: SASL_SSL is SASL_SSL"),
        ("sasl.enabled.mechanisms=GSSAPI", "GSSAPI: expected one or more of PLAIN, SCRAM-SHA-256"),
        ("ssl.keystore.type=BCFKS", "ssl.keystore.type=BCFKS: expected one of JKS, PEM, PKCS12"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "expected a host that others can reach"),
        ("controller.quorum.voters=localhost:9093", "expected id@host:port"),
        ("controller.quorum.voters=2@a:1,2@b:2", "voters=2@a:1,2@b:2: expected each node id once"),
        ("controller.quorum.voters=2@a:1,3@a:1", "expected each address once"),
        (
            "process.roles=broker,controller\nlisteners=PLAINTEXT://:1",
            "PLAINTEXT://:1: expected one of controller.listener.names=CONTROLLER, where process",
        ),
        (
            "process.roles=broker,controller\nlisteners=CONTROLLER://:1",
            "CONTROLLER://:1: expected one for clients, beside those of controller.listener.names",
        ),
        (
            "process.roles=controller\nlisteners=PLAINTEXT://:1,CONTROLLER://:2",
            "expected only those of controller.listener.names=CONTROLLER, where process.roles=con",
        ),
        (
            "process.roles=broker\nlisteners=PLAINTEXT://:1,CONTROLLER://:2",
            "expected none of controller.listener.names=CONTROLLER, where process.roles=broker",
        ),
        (
            "process.roles=controller\nlisteners=CONTROLLER://:2\ncontroller.quorum.voters=2@a:1,3@b:2",
            "voters=2@a:1,3@b:2: expected node 1, which is a controller",
        ),
        ("controller.quorum.voters=2@0.0.0.0:1", "expected hosts that others can reach"),
        ("controller.quorum.voters=1@a:1", "voters=1@a:1: node 1 is no controller, and cannot"),
        (
            "process.roles=controller\ncontroller.quorum.voters=2@a:1",
            "voters=2@a:1: expected node 1, which is a controller",
        ),
        ("controller.quorum.election.timeout.ms=-1", "expected a whole number of at least 0"),
        ("controller.quorum.fetch.max.bytes=0", "expected a whole number of at least 1"),
        ("controller.quorum.auto.join.enable=true", "auto.join.enable=true: expected false"),
        ("inter.broker.listener.name=INSIDE", "expected one of the listeners"),
        ("replica.fetch.wait.max.ms=40000", "expected at most replica.lag.time.max.ms"),
        ("broker.heartbeat.interval.ms=9000", "expected less than broker.session.timeout.ms"),
        ("log.dirs=", "log.dirs is empty"),
        ("log.dirs=/a,,/b", "log.dirs=/a,,/b: expected directories"),
        ("process.roles=", "process.roles"),
        ("authorizer.class.name=x", "x: expected org.apache.kafka.metadata.authorizer"),
        ("log.cleaner.min.cleanable.ratio=1.5", "expected a number from 0.0 to 1.0"),
        ("log.cleaner.min.cleanable.ratio=nan", "expected a number from 0.0 to 1.0"),
    ],
)
def test_a_wrong_configuration_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load("node.id=1\n" + text)
    assert "\n" not in str(refused.value)


def test_a_file_must_number_its_node() -> None:
    with pytest.raises(ConfigError, match=r"node\.id is missing"):
        load("num.partitions=1")


def test_values_are_checked_in_python_too() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions=0"):
        BrokerConfig(node_id=1, num_partitions=0)
    with pytest.raises(ConfigError, match=r"num\.partitions=0"):
        attrs.evolve(BrokerConfig(node_id=1), num_partitions=0)


def test_a_broker_needs_the_addresses_of_its_controllers() -> None:
    with pytest.raises(ConfigError, match=r"controller\.quorum\.bootstrap\.servers is missing"):
        _ = BrokerConfig(node_id=1).controller_addresses
    both = load(
        "node.id=1\nprocess.roles=broker,controller\nlisteners=PLAINTEXT://:1,CONTROLLER://:2"
    )
    assert both.controller_addresses == (HostPort("localhost", 2),)
    voters = load("node.id=1\ncontroller.quorum.voters=9@h:3,8@g:3")
    assert voters.controller_addresses == (HostPort("h", 3), HostPort("g", 3))


def test_a_topic_takes_its_override_then_its_brokers_value_then_kafkas() -> None:
    broker = BrokerConfig(node_id=1, log_segment_bytes=1000, log_roll_ms=7, min_insync_replicas=2)
    topic = TopicConfig.from_overrides(
        {"segment.bytes": "500", "cleanup.policy": "compact,delete"}, broker
    )
    assert topic.log.segment_bytes == 500
    assert topic.log.segment_ms == 7
    assert topic.log.index_interval_bytes == 4096
    assert topic.log.cleanup_policy == {"compact", "delete"}
    assert topic.min_insync_replicas == 2
    assert not topic.unclean_leader_election_enable


def test_without_overrides_a_topics_log_is_kafkas_default() -> None:
    assert TopicConfig.from_overrides({}, BrokerConfig(node_id=1)).log == LogConfig()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"segment.byte": "1"},
            "Unknown topic config name: segment.byte; did you mean segment.bytes",
        ),
        (
            {"segment.bytes": "x"},
            "Invalid value for segment.bytes=x: expected a whole number of at least 14",
        ),
        ({"num.partitions": "1"}, "Unknown topic config name: num.partitions"),
    ],
)
def test_a_wrong_override_is_an_invalid_config(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        TopicConfig.from_overrides(overrides, BrokerConfig(node_id=1))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_describe_lists_every_key_with_its_source_and_default() -> None:
    config = load("node.id=1\nnum.partitions=3\nlog.retention.hours=168")
    entries = {entry.name: entry for entry in DynamicBrokerConfig(config).describe()}
    assert len(entries) > 60
    assert entries["num.partitions"].synonyms == (
        ConfigSynonym("num.partitions", "3", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("num.partitions", "1", ConfigSource.DEFAULT_CONFIG),
    )
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].synonyms) == (None, ())
    assert entries["log.retention.hours"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["log.retention.hours"].value == "168"
    assert entries["log.segment.bytes"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["broker.rack"].value is None
    assert all(entry.documentation for entry in entries.values())


def test_describe_of_a_topic_shows_where_each_value_comes_from() -> None:
    broker = DynamicBrokerConfig(BrokerConfig(node_id=1, log_segment_bytes=1000))
    entries = {entry.name: entry for entry in describe_topic({"retention.ms": "5"}, broker)}
    assert entries.keys() == TOPIC_KEYS.keys()
    assert entries["retention.ms"].value == "5"
    assert entries["retention.ms"].synonyms == (
        ConfigSynonym("retention.ms", "5", ConfigSource.TOPIC_CONFIG),
    )
    assert entries["segment.bytes"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["cleanup.policy"].value == "delete"
