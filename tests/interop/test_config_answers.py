"""DescribeConfigs of Apache Kafka and of ours: every key that both describe, field by field.

Both have the same file, as far as a file can be the same for two nodes, and are altered alike. What
differs is named here, and in docs/departures.md.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from replication.cli.isolated import IsolatedCluster
from replication.config import ConfigSource
from replication.config.dynamic import DESCRIBED, is_dynamic
from replication.config.topic import TOPIC_KEYS
from replication.errors import ErrorCode
from replication.wire.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tests.interop.kafka import SMALL, Kafka
from tests.interop.test_admin_answers import altered, asked, asked_until, setting

pytestmark = pytest.mark.interop

DEPARTURES: Final = Path(__file__).parents[2] / "docs" / "departures.md"

# One key of each type, keys of several names, and texts that are not as they are understood.
FILE: Final = {
    **SMALL,
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "5",
    "log.roll.ms": "3600000",
    "log.flush.scheduler.interval.ms": "60000",
    "log.cleanup.policy": "compact , delete",
    "log.cleaner.io.max.bytes.per.second": "20000000",
    "log.cleaner.min.cleanable.ratio": "0.50",
    "unclean.leader.election.enable": "FALSE",
    "ssl.key.password": "sesame",
    "ssl.endpoint.identification.algorithm": "",
    "broker.rack": "r1",
    # The listener has neither TLS nor logins, and reads none of these.
    "listener.name.plaintext.ssl.client.auth": "required",
    "listener.name.plaintext.ssl.key.password": "sesame",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    ),
}
ONE_BROKER: Final = {"log.retention.ms": "7200000", "log.segment.bytes": " 2097152 "}
ALL_BROKERS: Final = {
    "log.retention.ms": "7300000",
    "num.io.threads": "5",
    "log.preallocate": "true",
}
TOPIC: Final = {
    "cleanup.policy": " delete , compact ",
    "retention.ms": " 9000 ",
    "min.cleanable.dirty.ratio": "0.250",
    "leader.replication.throttled.replicas": "0:1 , 1:2",
}

# Where a node is, and what it is.
ELSEWHERE: Final = frozenset(
    """
    advertised.listeners controller.listener.names controller.quorum.voters
    inter.broker.listener.name listener.security.protocol.map listeners log.dirs process.roles
    """.split()  # noqa: SIM905
)
VALUES: Final = {"value", "config_source", "synonyms"}
DIFFERENT: Final[Mapping[str, set[str]]] = {
    "sasl.enabled.mechanisms": {"value", "synonyms", "read_only"},
    "log.retention.hours": {"value"},
    "ssl.keystore.type": {"value", "synonyms"},
    "ssl.truststore.type": {"value", "synonyms"},
    "listener.security.protocol.map": {"read_only"},
    "listeners": {"read_only"},
    "sasl.mechanism.inter.broker.protocol": {"read_only"},
    "ssl.client.auth": {"read_only"},
    "ssl.enabled.protocols": {"read_only"},
    "ssl.endpoint.identification.algorithm": {"read_only"},
}
OURS_ALONE: Final = frozenset(
    """
    allow.everyone.if.no.acl.found cluster.id follower.replication.throttled.rate
    group.consumer.regex.refresh.interval.ms leader.imbalance.per.broker.percentage
    leader.replication.throttled.rate log.initial.task.delay.ms
    producer.id.expiration.check.interval.ms replica.alter.log.dirs.io.max.bytes.per.second
    super.users
    """.split()  # noqa: SIM905
)

Entries = dict[str, DescribeConfigsResourceResult]


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of an Apache Kafka and of a broker of ours, with the same file."""
    with (
        Kafka(data_dir=tmp_path_factory.mktemp("kafka"), properties=FILE) as theirs,
        IsolatedCluster(tmp_path_factory.mktemp("ours"), brokers=1, config=FILE) as ours,
    ):
        ours.wait_until_ready()
        for servers in (theirs.bootstrap_servers, ours.bootstrap_servers):
            configs = [CreatableTopicConfig(name=name, value=text) for name, text in TOPIC.items()]
            topic = CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, configs=configs
            )
            (made,) = asked(servers, CreateTopicsRequest(topics=[topic])).topics
            assert made.error_code == 0, made
            alter(servers, ConfigResourceType.BROKER, "1", ONE_BROKER)
            alter(servers, ConfigResourceType.BROKER, "", ALL_BROKERS)
        yield theirs.bootstrap_servers, ours.bootstrap_servers


def alter(servers: str, kind: int, name: str, values: Mapping[str, str]) -> None:
    (answer,) = asked(servers, altered(setting(kind, name, *values.items()))).responses
    assert answer.error_code == 0, answer


def described(servers: str, kind: int, name: str, *, known: str) -> Entries:
    """Return every key of a resource, once it is altered as far as `known`."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        ],
        include_synonyms=True,
        include_documentation=True,
    )

    def entries(answer: Any) -> Entries:
        return {each.name: each for each in answer.results[0].configs}

    def is_altered(answer: Any) -> bool:
        found = entries(answer).get(known)
        return found is not None and found.config_source != ConfigSource.DEFAULT_CONFIG

    return entries(asked_until(servers, request, is_altered))


def fields(entry: DescribeConfigsResourceResult) -> dict[str, Any]:
    return attrs.asdict(entry) | {"documentation": bool(entry.documentation)}


def differences(theirs: Entries, ours: Entries) -> dict[str, set[str]]:
    """Return the fields that differ, by key, of the keys that both describe."""
    found = {}
    for name in theirs.keys() & ours.keys():
        one, other = fields(theirs[name]), fields(ours[name])
        if different := {field for field in one if one[field] != other[field]}:
            found[name] = different
    return found


def test_every_key_of_a_broker_is_described_alike(alike: tuple[str, str]) -> None:
    theirs, ours = [
        described(each, ConfigResourceType.BROKER, "1", known="log.preallocate") for each in alike
    ]
    found = differences(theirs, ours)
    for name in ELSEWHERE & found.keys():
        default = [
            [each for each in side[name].synonyms if each.source == ConfigSource.DEFAULT_CONFIG]
            for side in (theirs, ours)
        ]
        assert default[0] == default[1], name
        found[name] -= VALUES
    assert {name: each for name, each in found.items() if each} == DIFFERENT
    alone = ours.keys() - theirs.keys()
    assert {name for name in alone if not name.startswith("understudy.")} == OURS_ALONE


def test_every_key_of_a_topic_is_described_alike(alike: tuple[str, str]) -> None:
    theirs, ours = [
        described(each, ConfigResourceType.TOPIC, "t", known="preallocate") for each in alike
    ]
    assert not differences(theirs, ours)
    assert ours.keys() - theirs.keys() == {"understudy.read.only"}
    assert not theirs.keys() - ours.keys()


def test_what_is_set_for_all_brokers_is_described_alike(alike: tuple[str, str]) -> None:
    theirs, ours = [
        described(each, ConfigResourceType.BROKER, "", known="log.preallocate") for each in alike
    ]
    assert not differences(theirs, ours)
    assert theirs.keys() == ours.keys()


# Which values are accepted.

TEXTS: Final = (
    *("", " ", ",", "true", " TRUE ", "yes", "x", "*", "0:1", "0:1,1:2", "0:1,,1:2", "a:b"),
    *("delete", "compact", "delete,compact", "compact,compact", "delete,", "DELETE", "gzip"),
    *("producer", "zstd", "uncompressed", "none", "CreateTime", "createtime", "LogAppendTime"),
    *("-131073", "-131072", "-3", "-2", "-1", "0", "1", "+1", "2", "4", "9", "10", "13", "14"),
    *("17", "18", "22", "23", "1048575", "1048576", "2147483647", "2147483648", "1_000"),
    *("9223372036854775807", "9223372036854775808", "0.5", "1.0", "1.5", "-0.1", "nan", "1e-2"),
)
"""Values at the ends of what some key accepts, and of other types."""


# What is the same for a key is not listed; these are, and only in the one direction.
STRICTER_HERE: Final = frozenset(
    """
    log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.flush.interval.ms
    log.retention.ms max.connections.per.ip.overrides
    """.split()  # noqa: SIM905
)
STRICTER_THERE: Final = frozenset(
    """
    group.consumer.assignment.interval.ms log.cleaner.dedupe.buffer.size log.cleanup.policy
    log.local.retention.ms log.remote.copy.lag.ms log.segment.bytes
    max.connection.creation.rate max.connections max.connections.per.ip metric.reporters
    segment.bytes
    """.split()  # noqa: SIM905
)


def assert_accepted_alike(key: str, theirs: list[int], ours: list[int]) -> None:
    refused_here = {text for text, a, b in zip(TEXTS, theirs, ours, strict=True) if b and not a}
    refused_there = {text for text, a, b in zip(TEXTS, theirs, ours, strict=True) if a and not b}
    assert bool(refused_here) == (key in STRICTER_HERE), refused_here
    assert bool(refused_there) == (key in STRICTER_THERE), refused_there
    codes = {(a, b) for a, b in zip(theirs, ours, strict=True) if a and b}
    assert all(a == b for a, b in codes), codes


@pytest.fixture(scope="module")
def topics_to_alter(alike: tuple[str, str]) -> tuple[str, str]:
    """The same two, with a topic for each of TEXTS: a request may name a resource once."""
    for servers in alike:
        topics = [
            CreatableTopic(name=f"v{number}", num_partitions=1, replication_factor=1)
            for number in range(len(TEXTS))
        ]
        answer = asked(servers, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        assert not any(each.error_code for each in answer.topics)
    return alike


@pytest.mark.parametrize("key", sorted(TOPIC_KEYS.keys() - {"understudy.read.only"}))
def test_a_topics_key_accepts_the_same_values(topics_to_alter: tuple[str, str], key: str) -> None:
    resources = [
        setting(ConfigResourceType.TOPIC, f"v{number}", (key, text))
        for number, text in enumerate(TEXTS)
    ]
    request = altered(*resources, validate_only=True)
    theirs, ours = [
        [each.error_code for each in asked(servers, request).responses]
        for servers in topics_to_alter
    ]
    assert_accepted_alike(key, theirs, ours)


@pytest.mark.parametrize("key", sorted(filter(is_dynamic, DESCRIBED)))
def test_a_brokers_key_accepts_the_same_values(alike: tuple[str, str], key: str) -> None:
    def answer(servers: str, text: str) -> int:
        resource = setting(ConfigResourceType.BROKER, "", (key, text))
        (answer,) = asked(servers, altered(resource, validate_only=True)).responses
        return int(answer.error_code)

    theirs, ours = [[answer(servers, text) for text in TEXTS] for servers in alike]
    assert_accepted_alike(key, theirs, ours)


@pytest.mark.parametrize(
    ("broker", "key", "value"),
    [
        pytest.param("1", "node.id", "2", id="static"),
        pytest.param("1", "ssl.keystore.location", "/x.pem", id="of all listeners"),
        pytest.param("", "listener.name.plaintext.ssl.keystore.type", "PEM", id="of all brokers"),
        pytest.param("1", "num.io.threads", "100", id="too many threads"),
        pytest.param("2", "num.io.threads", "5", id="another broker"),
    ],
)
def test_both_refuse_what_a_running_broker_cannot_be_set_to(
    alike: tuple[str, str], broker: str, key: str, value: str
) -> None:
    request = altered(setting(ConfigResourceType.BROKER, broker, (key, value)))
    for servers in alike:
        answer = asked(servers, request)
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("name", sorted({*DIFFERENT, *OURS_ALONE, *STRICTER_HERE, *STRICTER_THERE}))
def test_what_differs_is_named(name: str) -> None:
    assert f"`{name}`" in DEPARTURES.read_text()
