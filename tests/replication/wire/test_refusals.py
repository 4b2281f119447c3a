"""A refused request is answered with the names in it, an error, and the schema's defaults."""

from collections.abc import Iterator
from typing import Any

import pytest

from replication.errors import ErrorCode
from replication.wire.apis import API, Api, ApiKey
from replication.wire.fetch import FetchableTopicResponse
from replication.wire.refusals import ERROR_FIELDS, refused, refused_whole
from replication.wire.schema import Kind, fields_of
from tests.replication.wire.full_requests import TOPIC, full_request

CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_ID = b"0123456789abcdef"
IDENTITIES = {
    *("name", "topic", "topic_id", "partition_index", "partition", "partition_id", "index"),
    *("group_id", "key", "user", "transactional_id", "resource_type", "resource_name"),
    *("producer_id", "id_"),
}
NOTHING = {-1, "", b"", None}
"""What Kafka gives some fields where there is nothing to say, whatever the schema has."""


def informative_fields(message: Any, *, is_item: bool = False) -> Iterator[tuple[str, object]]:
    """Yield each field that says more than an error and the name of what it is about."""
    kind: type = type(message)
    for field in fields_of(kind):
        value = getattr(message, field.name)
        if field.wire.kind is Kind.ARRAY:
            for each in value or ():
                yield from informative_fields(each, is_item=True)
        elif not (field.name in ERROR_FIELDS or (is_item and field.name in IDENTITIES)) and (
            value not in (field.default, *NOTHING)
        ):
            yield field.name, value


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in API.values()])
def test_a_refusal_says_nothing_but_names_and_the_error(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request = full_request(api.key, version, TOPIC_ID)
        assert dict(informative_fields(refused_whole(api.key, version, request, CODE))) == {}, (
            version
        )


def test_a_refused_partition_of_a_fetch_has_no_high_watermark_and_no_list_that_is_null() -> None:
    request = full_request(ApiKey.FETCH, 17, TOPIC_ID)
    request.topics[0].partitions[0].high_watermark = 2**63 - 1
    request.topics[0].partitions[0].log_start_offset = 5
    topic = refused(FetchableTopicResponse, request.topics[0], CODE)
    assert (topic.topic, topic.topic_id) == (TOPIC, TOPIC_ID)
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.error_code) == (0, CODE)
    assert (partition.high_watermark, partition.log_start_offset) == (-1, -1)
    assert partition.aborted_transactions == []


@pytest.mark.parametrize(("version", "items"), [(12, 1), (13, 0)])
def test_a_fetch_that_fails_names_its_partitions_up_to_version_12(version: int, items: int) -> None:
    response = refused_whole(
        ApiKey.FETCH, version, full_request(ApiKey.FETCH, version, TOPIC_ID), CODE
    )
    assert (response.error_code, len(response.responses)) == (CODE, items)
