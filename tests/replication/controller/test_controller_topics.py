"""Topics by table: what is made, where its replicas are, and what is refused with which words."""

import random

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.config import BrokerConfig
from replication.controller.rules.decisions import Decision
from replication.controller.rules.topics import (
    PRODUCER_ID_BLOCK,
    allocate_producer_ids,
    create_topics,
    delete_topics,
    place,
)
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import METADATA_TOPIC
from replication.wire.allocate_producer_ids import AllocateProducerIdsRequest
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from replication.wire.delete_topics import DeleteTopicsRequest, DeleteTopicState
from storage.types import NO_TOPIC_ID
from tests.replication.controller.images import after, partition_of, registered

POLICY_VIOLATION = ErrorCode.POLICY_VIOLATION
CONFIG = BrokerConfig(node_id=100, num_partitions=2, default_replication_factor=3)


def brokers(*alive: int, fenced: tuple[int, ...] = ()) -> MetadataImage:
    known = (*alive, *fenced)
    return after(
        MetadataImage(),
        [registered(each, epoch=each * 10, fenced=each in fenced) for each in known],
    )


THREE = brokers(1, 2, 3)


def topic(
    name: str, partitions: int = -1, factor: int = -1, **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def assigned(name: str, *replicas: list[int]) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
        for number, brokers in enumerate(replicas)
    ]
    return attrs.evolve(topic(name), assignments=assignments)


def create(
    *topics: CreatableTopic, image: MetadataImage = THREE, validate_only: bool = False
) -> tuple[list[CreatableTopicResult], MetadataImage]:
    decision = create_topics(
        image,
        CreateTopicsRequest(topics=list(topics), validate_only=validate_only),
        config=CONFIG,
        chance=random.Random(7),
    )
    return decision.answer.topics, after(image, decision.records)


def test_defaults_are_the_brokers_and_every_broker_leads() -> None:
    (result,), image = create(topic("orders", 3, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 3)
    made = image.topics["orders"]
    assert made.topic_id == result.topic_id != NO_TOPIC_ID
    assert {partition.leader for partition in made.partitions.values()} == {1, 2, 3}
    for partition in made.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    (result,), image = create(topic("orders"))
    assert len(image.topics["orders"].partitions) == 2


def test_overrides_are_recorded_and_answered_with_the_whole_configuration() -> None:
    (result,), image = create(topic("orders", min_insync_replicas="2"))
    assert image.topics["orders"].configs == {"min.insync.replicas": "2"}
    assert result.configs is not None
    found = {each.name: (each.value, each.config_source) for each in result.configs}
    assert found["min.insync.replicas"] == ("2", 1)
    assert found["segment.bytes"] == ("1073741824", 5)


def test_an_assignment_is_kept_and_fenced_replicas_are_not_in_sync() -> None:
    image = brokers(1, 2, fenced=(3,))
    (result,), made = create(assigned("orders", [3, 1], [2, 3]), image=image)
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    first = partition_of(made, "orders")
    assert (first.replicas, first.isr, first.leader) == ((3, 1), (1,), 1)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        pytest.param(topic(""), "INVALID_TOPIC_EXCEPTION", id="no name"),
        pytest.param(topic(".."), "INVALID_TOPIC_EXCEPTION", id="a path"),
        pytest.param(topic("a/b"), "INVALID_TOPIC_EXCEPTION", id="a slash"),
        pytest.param(topic("ä"), "INVALID_TOPIC_EXCEPTION", id="a letter of another alphabet"),
        pytest.param(topic("a\n"), "INVALID_TOPIC_EXCEPTION", id="a line end"),
        pytest.param(topic("a" * 250), "INVALID_TOPIC_EXCEPTION", id="too long"),
        pytest.param(topic(METADATA_TOPIC), "INVALID_REQUEST", id="the cluster's own"),
        pytest.param(topic("__understudy_metadata"), "INVALID_REQUEST", id="its former name"),
        pytest.param(topic("the_first"), "INVALID_TOPIC_EXCEPTION", id="the.first is there"),
        pytest.param(topic("the.first"), "TOPIC_ALREADY_EXISTS", id="there already"),
        pytest.param(topic("t", 0), "INVALID_PARTITIONS", id="no partitions"),
        pytest.param(topic("t", -2), "INVALID_PARTITIONS", id="fewer"),
        pytest.param(topic("t", 1, 0), "INVALID_REPLICATION_FACTOR", id="no replicas"),
        pytest.param(topic("t", 1, 4), "INVALID_REPLICATION_FACTOR", id="more than brokers"),
        pytest.param(topic("t", 1, 1, segment_byte="1"), "INVALID_CONFIG", id="an unknown key"),
        pytest.param(topic("t", 1, 1, segment_bytes="x"), "INVALID_CONFIG", id="a wrong value"),
        pytest.param(topic("t", 1, 1, segment_bytes=None), "INVALID_CONFIG", id="no value"),
        pytest.param(
            attrs.evolve(assigned("t", [1]), num_partitions=1), "INVALID_REQUEST", id="both ways"
        ),
        pytest.param(
            attrs.evolve(assigned("t", [1]), replication_factor=1), "INVALID_REQUEST", id="and so"
        ),
        pytest.param(assigned("t", [1], []), "INVALID_REPLICA_ASSIGNMENT", id="without a replica"),
        pytest.param(assigned("t", [1, 1]), "INVALID_REPLICA_ASSIGNMENT", id="twice by one"),
        pytest.param(assigned("t", [1, 2], [1]), "INVALID_REPLICA_ASSIGNMENT", id="unequal"),
        pytest.param(assigned("t", [1, 9]), "INVALID_REPLICA_ASSIGNMENT", id="by a stranger"),
        pytest.param(
            attrs.evolve(
                assigned("t"),
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            "INVALID_REPLICA_ASSIGNMENT",
            id="numbered from 1",
        ),
    ],
)
def test_what_is_refused(asked: CreatableTopic, error: str) -> None:
    _, image = create(topic("the.first"))
    (refused, fine), made = create(asked, topic("fine"), image=image)
    assert ErrorCode(refused.error_code).name == error
    assert refused.error_message
    assert fine.error_code == ErrorCode.NONE  # a refusal concerns only its topic
    assert made.topics.keys() == {"the.first", "fine"}


def test_one_name_twice_is_refused_and_answered_once() -> None:
    """librdkafka takes an answer that names a topic twice for a broken one."""
    results, image = create(topic("a"), topic("a"), topic("b"))
    codes = [(each.name, ErrorCode(each.error_code).name) for each in results]
    assert codes == [("a", "INVALID_REQUEST"), ("b", "NONE")]
    assert image.topics.keys() == {"b"}


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        pytest.param([topic("a", 9_999)], False, id="as many as may be"),
        pytest.param([topic("a", 10_001)], True, id="one more"),
        pytest.param([topic("a", 2**31 - 1)], True, id="two billion"),
        pytest.param([topic("a", 9_999), topic("b")], True, id="the default counts"),
        pytest.param([topic("a", 9_999), assigned("b", [1], [2])], True, id="assignments count"),
        pytest.param([topic("a", 9_999), topic("b", -5)], False, id="fewer than none do not"),
        pytest.param([topic("a", 9_999), topic("a", 9_999)], False, id="a name counts once"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_request_makes_at_most_ten_thousand_partitions(
    asked: list[CreatableTopic], refused: bool, validate_only: bool
) -> None:
    results, image = create(*asked, validate_only=validate_only)
    found = {each.error_message for each in results if each.error_code == POLICY_VIOLATION}
    assert found == ({"Excessively large number of partitions per request."} if refused else set())
    assert not (refused and image.topics)


def test_names_collide_with_topics_that_exist_not_with_others_of_the_request() -> None:
    results, image = create(topic("a.b"), topic("a_b"))
    assert [each.error_code for each in results] == [0, 0]
    assert image.topics.keys() == {"a.b", "a_b"}
    results, _ = create(topic("a.b"), image=create(topic("a_b"))[1])
    assert [each.error_code for each in results] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("validate_only", [True, False])
def test_a_request_makes_at_most_ten_thousand_records(validate_only: bool) -> None:
    """The topic is a record as well, and so is each of its settings."""
    for asked in ([topic("a", 10_000)], [topic("a", 9_999, retention_ms="1")]):
        results, image = create(*asked, validate_only=validate_only)
        found = [(each.error_code, each.error_message) for each in results]
        assert found == [(POLICY_VIOLATION, "Unable to perform excessively large batch operation.")]
        assert not image.topics


def test_validation_alone_makes_nothing_and_answers_as_if_it_did() -> None:
    (result,), image = create(topic("orders", 3), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert result.topic_id != NO_TOPIC_ID
    assert image is not THREE
    assert not image.topics


def test_with_every_broker_fenced_nothing_is_placed() -> None:
    (result,), _ = create(topic("t", 1, 1), image=brokers(fenced=(1, 2)))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    (result,), _ = create(assigned("t", [1, 2]), image=brokers(fenced=(1, 2)))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@given(
    alive=st.integers(1, 6),
    fenced=st.integers(0, 3),
    partitions=st.integers(1, 20),
    factor=st.integers(1, 10),
    seed=st.integers(0, 9),
)
def test_replicas_are_spread_and_led_by_brokers_that_are_alive(
    *, alive: int, fenced: int, partitions: int, factor: int, seed: int
) -> None:
    well = tuple(range(1, alive + 1))
    image = brokers(*well, fenced=tuple(range(20, 20 + fenced)))
    if factor > alive + fenced:
        with pytest.raises(KafkaError):
            place(image, partitions=partitions, factor=factor, chance=random.Random(seed))
        return
    placed = place(image, partitions=partitions, factor=factor, chance=random.Random(seed))
    again = place(image, partitions=partitions, factor=factor, chance=random.Random(seed))
    assert placed == again
    leads = dict.fromkeys(well, 0)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(well).issuperset(replicas) or set(replicas).issuperset(well)
        leads[replicas[0]] += 1
    assert max(leads.values()) - min(leads.values()) <= 1


def delete(image: MetadataImage, *states: DeleteTopicState) -> tuple[list[str], MetadataImage]:
    decision = delete_topics(image, DeleteTopicsRequest(topics=list(states)), config=CONFIG)
    codes = [ErrorCode(each.error_code).name for each in decision.answer.responses]
    return codes, after(image, decision.records)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    (first, second, _), image = create(topic("a"), topic("b"), topic("c"))
    codes, left = delete(
        image,
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=second.topic_id),
        DeleteTopicState(name="nobody"),
        DeleteTopicState(topic_id=bytes(15) + b"\x09"),
        DeleteTopicState(),
        DeleteTopicState(name="c", topic_id=first.topic_id),
    )
    assert codes == [
        "NONE",
        "NONE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INVALID_REQUEST",
        "INVALID_REQUEST",
    ]
    assert left.topics.keys() == {"c"}


@pytest.mark.parametrize("again", ["by name", "by id"])
def test_a_topic_named_twice_is_answered_once_and_not_deleted(again: str) -> None:
    (first, _), image = create(topic("a"), topic("b"))
    by_name = DeleteTopicState(name="a")
    twice = by_name if again == "by name" else DeleteTopicState(topic_id=first.topic_id)
    codes, left = delete(image, by_name, DeleteTopicState(name="b"), twice)
    assert codes == ["INVALID_REQUEST", "NONE"]
    assert left.topics.keys() == {"a"}


def test_older_versions_delete_by_a_list_of_names() -> None:
    _, image = create(topic("a"))
    decision = delete_topics(image, DeleteTopicsRequest(topic_names=["a"]), config=CONFIG)
    assert [each.name for each in decision.answer.responses] == ["a"]
    assert not after(image, decision.records).topics


def test_blocks_of_producer_ids_never_overlap() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=10)
    first = allocate_producer_ids(THREE, request)
    second = allocate_producer_ids(after(THREE, first.records), request)
    assert (first.answer.producer_id_start, first.answer.producer_id_len) == (0, 1000)
    assert second.answer.producer_id_start == PRODUCER_ID_BLOCK
    stale = allocate_producer_ids(THREE, attrs.evolve(request, broker_epoch=9))
    assert stale == Decision(stale.answer)
    assert stale.answer.error_code == ErrorCode.STALE_BROKER_EPOCH
