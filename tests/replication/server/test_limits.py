"""What a request may change at most: refused before it is forwarded, and as Kafka refuses it."""

from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import MAX_RECORDS, TOO_LARGE
from replication.server.limits import LIMITED, MAX_NUMBERS, Size, limited, size_of, work_of
from replication.server.server import RequestContext
from replication.steps import at_once
from replication.wire.apis import API, ApiKey
from replication.wire.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from replication.wire.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from replication.wire.delete_topics import DeleteTopicsRequest
from replication.wire.elect_leaders import ElectionTopic, ElectLeadersRequest
from tests.replication.wire.samples import sample

CONTEXT = RequestContext(ApiKey.CREATE_TOPICS, 7, "test", "h:1", "PLAINTEXT")


async def answered(key: ApiKey, request: Any) -> Any:
    """Return the answer of a handler that answers nothing, or the refusal."""

    async def nothing(_context: RequestContext, _request: object) -> None:
        return None

    return await limited(key, nothing)(CONTEXT, request)


def topics(count: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=str(each)) for each in range(count)])


async def test_a_request_with_too_many_items_is_refused_item_by_item() -> None:
    assert await answered(ApiKey.CREATE_TOPICS, topics(MAX_RECORDS)) is None
    refusal = await answered(ApiKey.CREATE_TOPICS, topics(MAX_RECORDS + 1))
    assert len(refusal.topics) == MAX_RECORDS + 1
    answers = {(each.error_code, each.error_message) for each in refusal.topics}
    assert answers == {(ErrorCode.POLICY_VIOLATION, TOO_LARGE)}


async def test_items_of_items_count_and_so_do_bare_names_and_numbers() -> None:
    configs = [CreatableTopicConfig(name=str(each)) for each in range(MAX_RECORDS)]
    many = CreateTopicsRequest(topics=[CreatableTopic(name="t", configs=configs)])
    assert (await answered(ApiKey.CREATE_TOPICS, many)).topics[0].error_code
    names = DeleteTopicsRequest(topic_names=["t"] * (MAX_RECORDS + 1))
    assert len((await answered(ApiKey.DELETE_TOPICS, names)).responses) == MAX_RECORDS + 1
    numbers = [ElectionTopic(topic="t", partitions=[0] * (MAX_NUMBERS + 1))]
    elections = ElectLeadersRequest(topic_partitions=numbers)
    assert await answered(ApiKey.ELECT_LEADERS, elections) is not None


async def test_replicas_count_as_numbers_and_not_as_items() -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=each, broker_ids=[1, 2, 3])
        for each in range(MAX_RECORDS - 1)
    ]
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=assignments)])
    assert at_once(size_of(request)) == Size(MAX_RECORDS, 3 * (MAX_RECORDS - 1))
    assert await answered(ApiKey.CREATE_TOPICS, request) is None


async def test_what_reads_is_not_limited() -> None:
    assert await answered(ApiKey.METADATA, topics(MAX_RECORDS + 1)) is None


@pytest.mark.parametrize("key", sorted(LIMITED - {ApiKey.UNREGISTER_BROKER}))  # it has none
def test_every_array_of_a_limited_request_counts(key: ApiKey) -> None:
    size = at_once(size_of(sample(API[key].request)))
    assert size.items > 0


def test_partitions_that_are_only_counted_are_work_all_the_same() -> None:
    image = MetadataImage()
    growing = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5_000)])
    assert work_of(growing, at_once(size_of(growing)), image) == 5_002
    huge = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2**31 - 1)])
    assert work_of(huge, at_once(size_of(huge)), image) == MAX_RECORDS + 2
