"""The error of a rule stands in the right place of every API and version, and only there."""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pytest

from replication.errors import ErrorCode
from replication.faults import FaultRule, RequestSender
from replication.faults.rules.answers import errors_in
from replication.faults.rules.parts import (
    ANSWERED_AS_A_WHOLE,
    NAMES,
    NamedPart,
    partition_number,
    parts_of,
    topic_name,
)
from replication.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from replication.wire.apis import API, Api, ApiKey
from replication.wire.describe_configs import ConfigResourceType
from replication.wire.fetch import FetchRequest, FetchResponse, ForgottenTopic
from replication.wire.frames import decode_response, encode_response
from replication.wire.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from replication.wire.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from replication.wire.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from replication.wire.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from replication.wire.refusals import refused
from replication.wire.schema import fields_of
from tests.replication.faults.asking import (
    OTHER,
    OTHER_ID,
    TOPIC_ID,
    Met,
    T,
    call,
    name_of,
    received,
)
from tests.replication.wire.samples import sample

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
OF_T = OffsetDeleteTopic(name=T, partitions=[OffsetDeletePartition()])
EVERY = [pytest.param(api, id=api.name) for api in API.values()]
BY_TOPIC = [
    pytest.param(API[key], id=API[key].name) for key in sorted(NAMES.keys() - ANSWERED_AS_A_WHOLE)
]


def versions(api: Api) -> Iterable[int]:
    return range(api.min_version, api.max_version + 1)


def read_by_a_client(response: Any, api: Api, version: int) -> Any:
    frame = b"".join(
        part
        for part in encode_response(response, version=version, correlation_id=1)
        if isinstance(part, bytes | memoryview)
    )
    return decode_response(memoryview(frame)[4:], api_key=api.key, version=version)[1]


@pytest.mark.parametrize("api", EVERY)
def test_every_answer_of_every_version_has_a_place_for_an_error(api: Api) -> None:
    for version in versions(api):
        asked = call(api, received(sample(api.request), version), version)
        plan = Met().plan(asked, FaultRule(error=CODE, sender=RequestSender.ANYONE))
        real = None if plan.rest is None else refused(api.response, plan.rest, ErrorCode.NONE)
        read = read_by_a_client(plan.answer(real), api, version)
        assert CODE in errors_in(read, version), f"version {version}"


# -- by topic


def of_two_topics(api: Api, version: int) -> Any:
    """Return a request of this version that names two topics."""
    request = sample(api.request)
    for places in NAMES[api.key]:
        for outer in getattr(request, places.within) if places.within else [request]:
            (first, *_) = getattr(outer, places.topics)
            topics = [named(first, T, TOPIC_ID), named(first, OTHER, OTHER_ID)]
            setattr(outer, places.topics, topics)
    return received(request, version)


def named(item: Any, name: str, topic_id: bytes) -> Any:
    if isinstance(item, str):
        return name
    known = {
        "name": name,
        "topic": name,
        "topic_id": topic_id,
        "resource_name": name,
        "resource_type": ConfigResourceType.TOPIC,
    }
    kind: type = type(item)
    fields = {field.name for field in fields_of(kind)}
    return attrs.evolve(item, **{key: known[key] for key in known.keys() & fields})


def given(message: Any, version: int) -> Iterator[tuple[str, set[int]]]:
    """Return the errors of each topic in an answer."""
    kind: type = type(message)
    for field in fields_of(kind):
        items = getattr(message, field.name)
        for item in items if isinstance(items, list) else ():
            if not attrs.has(type(item)):
                continue
            name = topic_name(item, name_of)
            if name in (T, OTHER):
                yield name, errors_in(item, version)
            else:
                yield from given(item, version)


@pytest.mark.parametrize("api", BY_TOPIC)
def test_only_the_topic_that_a_rule_names_has_the_error(api: Api) -> None:
    rule = FaultRule(api=api.key, topic=T, error=CODE, sender="anyone")
    for version in versions(api):
        asked = call(api, of_two_topics(api, version), version)
        assert {part.topic for part in asked.parts} == {T, OTHER}
        plan = Met().plan(asked, rule)
        assert plan.rest is not None, "the other one is handled"
        handled = {part.topic for part in parts_of(api.key, plan.rest, name_of)}
        assert handled == ({T, OTHER} if plan.overwriting else {OTHER})
        response = plan.answer(refused(api.response, plan.rest, ErrorCode.NONE))
        errors = given(read_by_a_client(response, api, version), version)
        assert {name: CODE in found for name, found in errors} == {T: True, OTHER: False}


def test_a_request_for_one_topic_has_no_error_as_a_whole() -> None:
    rule = FaultRule(api="OFFSET_DELETE", topic=T, error=CODE)
    asked = call(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(topics=[OF_T]), 0)
    plan = Met().plan(asked, rule)
    assert plan.rest is None
    answer = plan.answer(None)
    assert answer.error_code == ErrorCode.NONE
    assert [each.error_code for each in answer.topics[0].partitions] == [CODE]


@pytest.mark.parametrize("version", [1, 2, 7, 9])
def test_offsets_refused_as_a_whole_are_answered_as_kafka_does(version: int) -> None:
    topics = [OffsetFetchTopic(name=T, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=topics)])
    rule = FaultRule(api="OFFSET_FETCH", error="NOT_COORDINATOR")
    response = Met().plan(call(ApiKey.OFFSET_FETCH, request, version), rule).answer(None)
    (group,) = response.groups or [response]
    if version == 1:
        assert group.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    else:
        assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_only_the_partition_that_a_rule_names_has_the_error() -> None:
    data = [PartitionProduceData(index=index, records=b"r") for index in range(3)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name=T, partition_data=data)])
    plan = Met().plan(
        call(ApiKey.PRODUCE, request, 9),
        FaultRule(api="Produce", topic=T, partition=1, error=CODE),
        FaultRule(api=0, topic=T, partition=2, error="kafka_storage_error"),
    )
    (left,) = plan.rest.topic_data
    assert [each.index for each in left.partition_data] == [0]
    assert len(data) == 3
    (topic,) = plan.answer(refused_with_none(request, left)).responses
    assert {each.index: each.error_code for each in topic.partition_responses} == {
        0: ErrorCode.NONE,
        1: CODE,
        2: ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert {each.base_offset for each in topic.partition_responses if each.error_code} == {-1}


def refused_with_none(request: ProduceRequest, topic: TopicProduceData) -> Any:
    return refused(ProduceResponse, attrs.evolve(request, topic_data=[topic]), ErrorCode.NONE)


# -- what cannot be taken out


def test_a_partition_of_a_fetch_session_gets_its_error_without_being_named_again() -> None:
    request = FetchRequest(session_id=7, session_epoch=3, max_wait_ms=500)
    session = [NamedPart(T, 0, TOPIC_ID), NamedPart(T, 1, TOPIC_ID), NamedPart(OTHER, 0, OTHER_ID)]
    asked = call(ApiKey.FETCH, request, 17, in_session=session)
    plan = Met().plan(asked, FaultRule(api="FETCH", topic=T, partition=1, error=CODE))
    assert plan.rest.max_wait_ms == 0, "an error does not wait for records"
    (topic,) = plan.answer(FetchResponse(session_id=7)).responses
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition_index) == (TOPIC_ID, 1)
    assert (partition.error_code, partition.high_watermark) == (CODE, -1)
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert plan.answer(lost) == lost


def test_an_error_of_the_fetch_session_is_at_the_top_level() -> None:
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    asked = call(ApiKey.FETCH, FetchRequest(), 17, in_session=[NamedPart(T, 0, TOPIC_ID)])
    plan = Met().plan(asked, FaultRule(api="FETCH", topic=T, error=code))
    assert plan.rest is None
    assert plan.answer(None).error_code == code


def test_metadata_of_all_topics() -> None:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(2)]
    real = MetadataResponse(
        topics=[
            MetadataResponseTopic(name=name, partitions=list(partitions)) for name in (T, OTHER)
        ]
    )
    asked = call(ApiKey.METADATA, MetadataRequest(topics=None), 12)
    rule = FaultRule(api="METADATA", topic=T, error="LEADER_NOT_AVAILABLE")
    mine, other = Met().plan(asked, rule).answer(real).topics
    assert (mine.error_code, mine.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    assert other == real.topics[1]
    one = attrs.evolve(rule, partition=1)
    mine, other = Met().plan(asked, one).answer(real).topics
    assert [each.error_code for each in mine.partitions] == [0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert mine.partitions[1].leader_id == -1
    assert other == real.topics[1]


# -- requests that are refused


def test_each_scram_user_is_answered_once() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="a"), ScramCredentialDeletion(name="b")],
        upsertions=[ScramCredentialUpsertion(name="b"), ScramCredentialUpsertion(name="c")],
    )
    answer = refused(AlterUserScramCredentialsResponse, request, CODE)
    assert [each.user for each in answer.results] == ["a", "b", "c"]


def test_a_forgotten_partition_is_not_answered() -> None:
    request = FetchRequest(forgotten_topics_data=[ForgottenTopic(topic=T, partitions=[0])])
    assert refused(FetchResponse, request, CODE).responses == []


def test_every_field_name_of_a_partition_number_is_known() -> None:
    assert partition_number(3) == 3
    assert partition_number(PartitionProduceData(index=4)) == 4
    assert partition_number(MetadataResponsePartition(partition_index=5)) == 5
