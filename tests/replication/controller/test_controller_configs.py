"""Configuration at run time, as the controller decides it: all of a resource's changes, or none."""

from collections.abc import Mapping

import attrs
import pytest

from replication.config import ConfigOperation
from replication.controller.rules.configs import alter_configs, incremental_alter_configs
from replication.errors import ErrorCode
from replication.metadata.rules.image import BrokerRegistration, MetadataImage
from replication.wire.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.replication.controller.images import broker_config, partition_of, topic_config
from tests.replication.controller.running_controller import CONFIG

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
ORDERS = bytes(range(16))
TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


def image(*more: MetadataRecord) -> MetadataImage:
    """A topic whose only replica in sync is fenced, and an alive one that is not in sync."""
    brokers = {
        each: BrokerRegistration(each, 7, bytes(16), (), fenced=each == 1) for each in (1, 2)
    }
    records = (
        TopicRecord(name="orders", topic_id=ORDERS),
        PartitionRecord(
            topic_id=ORDERS,
            partition_id=0,
            replicas=[1, 2],
            isr=[1],
            leader=NO_LEADER,
            leader_epoch=0,
            partition_epoch=0,
        ),
        *more,
    )
    return MetadataImage(brokers=brokers).apply_all(records, offset=9, leader_epoch=0)


def change(
    kind: int, name: str, *changes: tuple[str, ConfigOperation, str | None]
) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def incrementally(
    before: MetadataImage, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> tuple[list[AlterConfigsResourceResponse], MetadataImage]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    decision = incremental_alter_configs(before, request, config=CONFIG)
    return decision.answer.responses, before.apply_all(
        decision.records, offset=before.offset, leader_epoch=0
    )


def as_a_whole(
    before: MetadataImage, kind: int, name: str, configs: Mapping[str, str]
) -> tuple[AlterConfigsResourceResponse, MetadataImage]:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    decision = alter_configs(before, AlterConfigsRequest(resources=[resource]), config=CONFIG)
    (answer,) = decision.answer.responses
    return answer, before.apply_all(decision.records, offset=before.offset, leader_epoch=0)


def test_what_is_named_changes_and_the_rest_stays() -> None:
    before = image(
        topic_config("orders", "retention.ms", "5"),
        topic_config("orders", "flush.ms", "6"),
    )
    (answer,), after = incrementally(
        before,
        change(
            TOPIC,
            "orders",
            ("segment.bytes", SET, "1000"),
            ("flush.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        ),
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.resource_type, answer.resource_name) == (TOPIC, "orders")
    assert after.topics["orders"].configs == {
        "retention.ms": "5",
        "segment.bytes": "1000",
        "cleanup.policy": "delete,compact",
    }


def test_the_older_api_removes_keys_that_it_does_not_name() -> None:
    before = image(
        topic_config("orders", "retention.ms", "5"),
        topic_config("orders", "flush.ms", "6"),
    )
    answer, after = as_a_whole(before, TOPIC, "orders", {"flush.ms": "7"})
    assert answer.error_code == ErrorCode.NONE
    assert after.topics["orders"].configs == {"flush.ms": "7"}
    answer, after = as_a_whole(after, BROKER, "", {"log.retention.ms": "7"})
    assert after.broker_configs == {None: {"log.retention.ms": "7"}}
    answer, after = as_a_whole(after, BROKER, "", {})
    assert after.broker_configs == {}


def test_a_broker_and_all_of_them_are_kept_apart() -> None:
    answers, after = incrementally(
        image(),
        change(BROKER, "2", ("num.replica.fetchers", SET, "2")),
        change(BROKER, "", ("log.retention.ms", SET, "5")),
    )
    assert [each.error_code for each in answers] == [0, 0]
    assert after.broker_configs == {
        2: {"num.replica.fetchers": "2"},
        None: {"log.retention.ms": "5"},
    }


@pytest.mark.parametrize(
    ("resource", "error", "message"),
    [
        (change(TOPIC, "nothing"), "UNKNOWN_TOPIC_OR_PARTITION", "The topic 'nothing' does not"),
        (change(TOPIC, ""), "INVALID_REQUEST", "Default topic resources are not allowed."),
        (change(TOPIC, "a b"), "INVALID_TOPIC_EXCEPTION", "topic 'a b'"),
        (
            change(TOPIC, "orders", ("no.such.key", SET, "1")),
            "INVALID_CONFIG",
            "Unknown topic config name: no.such.key",
        ),
        (
            change(TOPIC, "orders", ("retention.ms", SET, "-2")),
            "INVALID_CONFIG",
            "Invalid value for retention.ms=-2: expected a whole number of at least -1",
        ),
        (
            change(TOPIC, "orders", ("cleanup.policy", SET, "delete,,compact")),
            "INVALID_CONFIG",
            "Invalid value for cleanup.policy=delete,,compact",
        ),
        (
            change(TOPIC, "orders", ("compression.type", SET, "x" * 40_000)),
            "INVALID_CONFIG",
            "The configuration value cannot be added because it exceeds the maximum value size",
        ),
        (
            change(TOPIC, "orders", ("retention.ms", APPEND, "5")),
            "INVALID_CONFIG",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (change(BROKER, "9"), "BROKER_ID_NOT_REGISTERED", "No broker with id 9 found."),
        (change(BROKER, "one"), "INVALID_REQUEST", "Unable to parse broker name"),
        (
            change(ConfigResourceType.BROKER_LOGGER, "1"),
            "INVALID_REQUEST",
            "Unexpected resource type 8",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_kind_of_words(
    resource: IncrementalAlterConfigsResource, error: str, message: str
) -> None:
    (answer,), after = incrementally(image(), resource)
    assert answer.error_code == ErrorCode[error]
    assert (answer.error_message or "").startswith(message)
    assert after == image()


def test_the_minimum_isr_is_set_for_topics_and_for_the_cluster_and_for_no_single_broker() -> None:
    """The ELR (KIP-966) follows from it, here and at the leaders."""
    before = image(broker_config("", "min.insync.replicas", "2"))
    own = change(BROKER, "2", ("min.insync.replicas", SET, "1"))
    gone = change(BROKER, "", ("min.insync.replicas", DELETE, None))
    answers, after = incrementally(before, own, gone)
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_CONFIG] * 2
    assert after == before
    less = change(BROKER, "", ("min.insync.replicas", SET, "1"))
    (answer,), after = incrementally(before, less)
    assert answer.error_code == ErrorCode.NONE
    assert after.broker_configs[None] == {"min.insync.replicas": "1"}


@pytest.mark.parametrize(
    ("resource", "counted"),
    [
        pytest.param(change(TOPIC, "orders", ("min.insync.replicas", SET, "3")), 1, id="larger"),
        pytest.param(change(TOPIC, "orders", ("min.insync.replicas", SET, "1")), 0, id="smaller"),
        pytest.param(change(TOPIC, "orders", ("flush.ms", SET, "1")), 0, id="another key"),
        pytest.param(change(BROKER, "", ("min.insync.replicas", SET, "3")), 1, id="for all topics"),
    ],
)
def test_a_leader_hears_of_a_larger_minimum_before_it_changes_the_isr(
    resource: IncrementalAlterConfigsResource, counted: int
) -> None:
    """The leader's proposals carry an older partition epoch until it has heard, so the controller refuses
    them (KIP-966).
    """
    before = image(
        broker_config("", "min.insync.replicas", "2"),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        PartitionChangeRecord(partition_id=0, topic_id=ORDERS, leader=1),
    )
    _, after = incrementally(before, resource)
    led = partition_of(before, "orders")
    assert partition_of(after, "orders") == attrs.evolve(
        led, partition_epoch=led.partition_epoch + counted
    )


def test_one_wrong_key_of_a_topic_changes_none_of_it_and_another_topic_all_the_same() -> None:
    other = TopicRecord(name="other", topic_id=bytes(range(16, 32)))
    answers, after = incrementally(
        image(other),
        change(TOPIC, "orders", ("flush.ms", SET, "1"), ("retention.ms", SET, "soon")),
        change(TOPIC, "other", ("flush.ms", SET, "1")),
    )
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert after.topics["orders"].configs == {}
    assert after.topics["other"].configs == {"flush.ms": "1"}


def test_validating_only_answers_the_same_and_changes_nothing() -> None:
    good = change(TOPIC, "orders", ("flush.ms", SET, "1"))
    bad = change(TOPIC, "orders", ("flush.ms", SET, "x"))
    for resource, code in ((good, ErrorCode.NONE), (bad, ErrorCode.INVALID_CONFIG)):
        (answer,), after = incrementally(image(), resource, validate_only=True)
        assert answer.error_code == code
        assert after == image()


def test_what_is_set_already_is_not_written_again() -> None:
    before = image(
        topic_config("orders", "flush.ms", "1"),
        broker_config("", "a", "b"),
    )
    request = IncrementalAlterConfigsRequest(
        resources=[change(TOPIC, "orders", ("flush.ms", SET, "1")), change(BROKER, "")]
    )
    assert incremental_alter_configs(before, request, config=CONFIG).records == ()


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(
            change(TOPIC, "orders", ("unclean.leader.election.enable", SET, "true")), id="a topic"
        ),
        pytest.param(
            change(BROKER, "", ("unclean.leader.election.enable", SET, "true")), id="all brokers"
        ),
    ],
)
def test_allowing_unclean_elections_elects_leaders_at_once(
    resource: IncrementalAlterConfigsResource,
) -> None:
    assert partition_of(image(), "orders").leader == NO_LEADER
    _, after = incrementally(image(), resource)
    assert partition_of(after, "orders").leader == 2
    _, after = incrementally(image(), change(TOPIC, "orders", ("flush.ms", SET, "1")))
    assert partition_of(after, "orders").leader == NO_LEADER
