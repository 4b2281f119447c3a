"""The same requests of administrators to Apache Kafka and to us, with one expected answer."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from replication.cli.isolated import IsolatedCluster
from replication.cli.probe import ask
from replication.config import ConfigOperation
from replication.errors import ErrorCode
from replication.wire.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from replication.wire.apis import API, api_of
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from replication.wire.describe_client_quotas import (
    EXACT,
    ComponentData,
    DescribeClientQuotasRequest,
)
from replication.wire.describe_cluster import (
    CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from replication.wire.elect_leaders import ElectionTopic, ElectLeadersRequest
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from replication.wire.schema import Kind
from storage.types import NO_TOPIC_ID
from tests.interop import tools
from tests.interop.kafka import Kafka

pytestmark = pytest.mark.interop

SECONDS = 60.0
TIMEOUT_MS = 30_000
SHA_256, SHA_512 = 1, 2


@pytest.fixture(params=["kafka", "our_brokers"])
def servers(request: pytest.FixtureRequest) -> str:
    """The addresses of Apache Kafka, and then of our brokers."""
    cluster: Kafka | IsolatedCluster = request.getfixturevalue(request.param)
    return cluster.bootstrap_servers


def asked(servers: str, request: Any) -> Any:
    """Return what the first of `servers` answers, in the newest version that we speak."""
    host, port = servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    version = API[api_of(type(request)).key].max_version
    return ask(host, int(port), request, version=version, timeout_seconds=SECONDS)


def asked_until(servers: str, request: Any, holds: Callable[[Any], bool]) -> Any:
    """Ask again until the answer holds: a broker hears later what its controller has done."""
    deadline = time.monotonic() + SECONDS
    while not holds(answer := asked(servers, request)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)  # a real broker, with a bound
    return answer


def topics(*names: str, validate_only: bool = False) -> CreateTopicsRequest:
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=new, validate_only=validate_only)


def codes(answer: Any, name: str = "name") -> dict[str, str]:
    """Return the name of each item's error."""
    items = answer.results if hasattr(answer, "results") else answer.topics
    return {getattr(each, name): ErrorCode(each.error_code).name for each in items}


def test_names_collide_with_topics_that_exist_not_with_others_of_the_request(servers: str) -> None:
    assert codes(asked(servers, topics("m.n", "m_n"))) == {"m.n": "NONE", "m_n": "NONE"}
    assert codes(asked(servers, topics("x.y"))) == {"x.y": "NONE"}
    assert codes(asked(servers, topics("x_y"))) == {"x_y": "INVALID_TOPIC_EXCEPTION"}


def test_a_topic_that_is_only_validated_is_answered_with_an_id(servers: str) -> None:
    (answer,) = asked(servers, topics("only-validated", validate_only=True)).topics
    assert (answer.error_code, answer.num_partitions) == (0, 1)
    assert answer.topic_id != NO_TOPIC_ID
    assert codes(asked(servers, topics("only-validated"))) == {"only-validated": "NONE"}


def test_a_user_is_altered_once_in_a_request_whatever_the_mechanism(servers: str) -> None:
    def upserted(name: str, mechanism: int) -> ScramCredentialUpsertion:
        secrets = {"salt": b"salt", "salted_password": b"x" * 32}
        return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=4096, **secrets)

    def deleted(name: str, mechanism: int) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(name=name, mechanism=mechanism)

    for mechanism in (SHA_256, SHA_512):
        request = AlterUserScramCredentialsRequest(upsertions=[upserted("u", mechanism)])
        assert codes(asked(servers, request), "user") == {"u": "NONE"}
    request = AlterUserScramCredentialsRequest(
        deletions=[deleted("u", SHA_256), deleted("u", SHA_512), deleted("none", SHA_256)],
        upsertions=[
            *(upserted("v", SHA_256), upserted("v", SHA_512)),
            # What was wrong with it first is what it is refused for.
            upserted("none", SHA_256),
        ],
    )
    assert codes(asked(servers, request), "user") == {
        "u": "DUPLICATE_RESOURCE",
        "v": "DUPLICATE_RESOURCE",
        "none": "RESOURCE_NOT_FOUND",
    }


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(0, "UNSUPPORTED_ENDPOINT_TYPE"), (CONTROLLERS, "MISMATCHED_ENDPOINT_TYPE")],
)
def test_only_brokers_are_described(servers: str, endpoint_type: int, error: str) -> None:
    answer = asked(servers, DescribeClusterRequest(endpoint_type=endpoint_type))
    assert ErrorCode(answer.error_code).name == error
    assert answer.endpoint_type == 1


def test_no_client_quotas_are_set(servers: str) -> None:
    def found(*components: tuple[str, int, str | None]) -> tuple[int, int | None]:
        items = [ComponentData(entity_type=a, match_type=b, match=c) for a, b, c in components]
        answer = asked(servers, DescribeClientQuotasRequest(components=items))
        return answer.error_code, None if answer.entries is None else len(answer.entries)

    assert found() == (0, 0)
    assert found(("user", EXACT, "a"), ("client-id", EXACT, "b")) == (0, 0)
    assert found(("user", EXACT, "a"), ("ip", EXACT, "b")) == (ErrorCode.INVALID_REQUEST, None)
    assert found(("topic", EXACT, "a")) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_kafka_configs_describes_a_user(servers: str) -> None:
    user = ["--entity-type=users", "--entity-name=dora"]
    adding = ["--alter", "--add-config=SCRAM-SHA-256=[password=x]"]
    tools.run_tool(tools.CONFIGS, "--bootstrap-server", servers, *user, *adding)
    said = tools.run_tool(tools.CONFIGS, "--bootstrap-server", servers, *user, "--describe")
    assert "user-principal 'dora' are SCRAM-SHA-256=iterations=4096" in said


@pytest.mark.slow
@pytest.mark.parametrize("whose", [Kafka, IsolatedCluster])
def test_a_fenced_broker_is_described_where_fenced_ones_are_included(
    tmp_path: Path, whose: type[Kafka | IsolatedCluster]
) -> None:
    with whose(data_dir=tmp_path, brokers=2) as cluster:
        cluster.wait_until_ready()
        cluster.kill(2)

        def fenced(answer: DescribeClusterResponse) -> dict[int, bool]:
            return {each.broker_id: each.is_fenced for each in answer.brokers}

        request = DescribeClusterRequest(include_fenced_brokers=True)
        expected = {1: False, 2: True}
        asked_until(cluster.bootstrap_servers, request, lambda answer: fenced(answer) == expected)
        answer = asked(cluster.bootstrap_servers, DescribeClusterRequest())
        assert fenced(answer) == {1: False}


# What one request names twice, and what it asks to validate only.


def outcome(answer: Any) -> Any:
    """Return the errors of an answer, with the names they are for, in no order."""
    names = ("topic", "name", "user", "resource_name", "partition_index", "partition_id")
    found = [
        str(getattr(answer, each)) for each in names if getattr(answer, each, None) is not None
    ]
    if hasattr(answer, "error_code"):
        found.append(ErrorCode(answer.error_code).name)
    parts = [
        getattr(answer, each.name) or []
        for each in attrs.fields(type(answer))
        if each.metadata["wire"].kind is Kind.ARRAY and each.name != "configs"
    ]
    found += sorted(str(outcome(each)) for part in parts for each in part if attrs.has(type(each)))
    return found


def setting(kind: int, name: str, *configs: tuple[str, str]) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
            for key, value in configs
        ],
    )


def altered(
    *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


named_topic = partial(setting, ConfigResourceType.TOPIC, "named")


def moved(*replicas: int) -> ReassignablePartition:
    return ReassignablePartition(partition_index=0, replicas=list(replicas))


def named(*partitions: ReassignablePartition) -> ReassignableTopic:
    return ReassignableTopic(name="named", partitions=list(partitions))


def grown(count: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name="named", count=count, assignments=None)


REQUESTS = {
    "topics created twice": topics("twice", "twice", "once"),
    "partitions created twice": CreatePartitionsRequest(
        topics=[grown(2), grown(3)], timeout_ms=TIMEOUT_MS
    ),
    "partitions only validated": CreatePartitionsRequest(
        topics=[grown(2)], validate_only=True, timeout_ms=TIMEOUT_MS
    ),
    "too few partitions only validated": CreatePartitionsRequest(
        topics=[grown(1)], validate_only=True, timeout_ms=TIMEOUT_MS
    ),
    "a resource altered twice": altered(
        named_topic(("retention.ms", "1")), named_topic(("retention.bytes", "1"))
    ),
    "a key altered twice": altered(named_topic(*[("retention.ms", "1")] * 2)),
    "a wrong value only validated": altered(
        named_topic(("retention.ms", "soon")), validate_only=True
    ),
    "a partition reassigned twice": AlterPartitionReassignmentsRequest(
        topics=[named(moved(1), moved(1))]
    ),
    "a topic reassigned twice": AlterPartitionReassignmentsRequest(
        topics=[named(moved(1)), named(moved(1))]
    ),
    "a partition elected twice": ElectLeadersRequest(
        election_type=0, topic_partitions=[ElectionTopic(topic="named", partitions=[0, 0])]
    ),
    "a user described twice": DescribeUserScramCredentialsRequest(
        users=[UserName(name="x"), UserName(name="x")]
    ),
    "a topic deleted twice by name": DeleteTopicsRequest(
        topics=[DeleteTopicState(name="named"), DeleteTopicState(name="named")],
        timeout_ms=TIMEOUT_MS,
    ),
    "a topic deleted by nothing": DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None)], timeout_ms=TIMEOUT_MS
    ),
}


@pytest.fixture(scope="module")
def both(kafka: Kafka, our_brokers: IsolatedCluster) -> tuple[str, str]:
    """The addresses of both; each has a topic `named` of one partition on broker 1."""
    for servers in (kafka.bootstrap_servers, our_brokers.bootstrap_servers):
        on_one = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
        topic = CreatableTopic(
            name="named", num_partitions=-1, replication_factor=-1, assignments=on_one
        )
        assert codes(asked(servers, CreateTopicsRequest(topics=[topic]))) == {"named": "NONE"}
    return kafka.bootstrap_servers, our_brokers.bootstrap_servers


@pytest.mark.parametrize("what", REQUESTS)
def test_both_answer_alike(both: tuple[str, str], what: str) -> None:
    theirs, ours = [outcome(asked(servers, REQUESTS[what])) for servers in both]
    assert ours == theirs


def test_a_topic_named_and_identified_at_once_is_not_deleted(servers: str) -> None:
    (made,) = asked(servers, topics("both-ways")).topics
    states = [DeleteTopicState(name="both-ways"), DeleteTopicState(topic_id=made.topic_id)]
    answer = asked(servers, DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS))
    assert {ErrorCode(each.error_code).name for each in answer.responses} == {"INVALID_REQUEST"}
    assert codes(asked(servers, topics("both-ways"))) == {"both-ways": "TOPIC_ALREADY_EXISTS"}
