"""The response to a refused request: its items, each with the same error.

    request ──┬── refused as a whole ──────── refused_whole: Kafka's getErrorResponse
              └── one topic, group, ... ───── refused: one item of a response

Kafka writes this out for each request (AbstractRequest.getErrorResponse). Here a response is
built from the request by the names of its fields: an array that can hold errors is filled from
the array of the request that it answers, item by item.

Rule: only what identifies an item is copied: its name, its id, its number. Every other field has
what Kafka gives it where there is nothing to say, which is nearly always the schema's default.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from replication.errors import ErrorCode
from replication.steps import Steps, at_once
from replication.wire.apis import API, ApiKey
from replication.wire.describe_client_quotas import EntityData
from replication.wire.join_group import NULL_PROTOCOL_SINCE
from replication.wire.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from replication.wire.schema import Kind, fields_of

ERROR_FIELDS = {"error_code", "partition_error_code"}
# What Kafka gives these fields instead of their schema's defaults.
UNKNOWN = {
    "base_offset": -1,
    "high_watermark": -1,
    "committed_offset": -1,
    "low_watermark": -1,
    "leader_id": -1,
    "node_id": -1,
    "port": -1,
}
_WITH_ITEMS = {
    ApiKey.METADATA,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
}
_FETCH_HAS_ITEMS_UNTIL = 12
# Items without a place for an error, which Kafka returns all the same.
_ECHOED = {OngoingTopicReassignment, OngoingPartitionReassignment, EntityData}
_ANSWERS = {
    "topic_results": "topics",
    "results_by_transaction": "transactions",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
}
_NUMBER = ("partition_index", "partition", "index")
_IDENTITIES = {
    **dict.fromkeys(("partition_index", "partition_id", "partition", "index"), _NUMBER),
    **{
        name: (name,)
        for name in (
            *("topic_id", "group_id", "key", "transactional_id", "producer_id"),
            *("resource_type", "resource_name", "id_", "entity_type", "entity_name", "topic_name"),
        )
    },
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "user": ("name",),
}
"""The fields that identify an item of a response, and their names in a request."""
_NAMES = {"name", "topic", "group_id", "key", "transactional_id"}


def refused_whole(key: ApiKey, version: int, request: Any, code: ErrorCode) -> Any:
    """Return what Kafka responds to a request that fails as a whole (getErrorResponse).

    A response with an error for the whole has no items, except those of a few APIs.
    """
    return at_once(refused_whole_in_steps(key, version, request, code))


def refused_whole_in_steps(key: ApiKey, version: int, request: Any, code: ErrorCode) -> Steps[Any]:
    """Return the same; a request may have many items."""
    kind = API[key].response
    response = yield from refused_in_steps(kind, request, code)
    if not _has_items(key, version):
        for field in fields_of(kind):
            if field.wire.kind is Kind.ARRAY:
                setattr(response, field.name, [])
    if key is ApiKey.FETCH:
        response.session_id = request.session_id
    elif key is ApiKey.OFFSET_FETCH:
        for group in response.groups:
            group.topics = []
    elif key is ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
        for result in response.results:
            result.user = ""  # Kafka counts them, and names none
    elif key is ApiKey.DESCRIBE_CLIENT_QUOTAS:
        response.entries = None
    elif key is ApiKey.INIT_PRODUCER_ID:
        response.producer_epoch = -1
    elif key is ApiKey.JOIN_GROUP and version >= NULL_PROTOCOL_SINCE:
        response.protocol_name = None
    return response


def _has_items(key: ApiKey, version: int) -> bool:
    if key is ApiKey.FETCH:
        return version <= _FETCH_HAS_ITEMS_UNTIL
    # Before its version 3 DescribeLogDirs has no error for the whole, and an empty list means it.
    return key in _WITH_ITEMS or not (
        key is ApiKey.DESCRIBE_LOG_DIRS
        or any(
            field.name in ERROR_FIELDS and version in field.wire.versions
            for field in fields_of(API[key].response)
        )
    )


def refused(kind: type, asked: Any, code: ErrorCode) -> Any:
    """Return a `kind` that answers `asked` with `code`.

    `asked` is a request, or one item of it, which may be a bare name or number.
    """
    return at_once(refused_in_steps(kind, asked, code))


def each_refused(
    kind: type, items: Sequence[object], code: ErrorCode, message: str | None = None
) -> Steps[list[Any]]:
    """Return the same for each of `items`; they may be many."""
    answers = []
    for each in items:
        answers.append((yield from refused_in_steps(kind, each, code, message)))
        yield 1
    return answers


def refused_in_steps(
    kind: type, asked: Any, code: ErrorCode, message: str | None = None
) -> Steps[Any]:
    """Return what `refused` does, with `message` beside the code where there is a place for it."""
    is_request = type(asked) in _requests()
    values: dict[str, object] = {}
    for field in fields_of(kind):
        if field.name in ERROR_FIELDS:
            values[field.name] = code
        elif field.wire.kind is not Kind.ARRAY:
            value = None if is_request else _copied(field.name, asked)
            if value is not None:
                values[field.name] = value
            elif field.name in UNKNOWN:
                values[field.name] = UNKNOWN[field.name]
            elif field.name == "error_message":
                values[field.name] = message
        else:
            items = field.wire.items
            values[field.name] = (
                (yield from each_refused(items, _array_for(field.name, asked), code, message))
                if isinstance(items, type) and (can_err(items) or items in _ECHOED)
                else []
            )
    return kind(**values)


@cache
def can_err(kind: type) -> bool:
    """Return whether a message class has a field for an error."""
    return any(
        field.name in ERROR_FIELDS
        or (isinstance(field.wire.items, type) and can_err(field.wire.items))
        for field in fields_of(kind)
    )


@cache
def _requests() -> frozenset[type]:
    return frozenset(api.request for api in API.values())


def error_of_whole(response: Any) -> int:
    """Return the error code of a response as a whole; 0 if it has none.

    A response without a place for it has the same code in every item where its whole request is
    refused (`refused_whole`): the code of the first item is returned.
    """
    kind: type = type(response)
    for field in fields_of(kind):
        if field.name in ERROR_FIELDS:
            return int(getattr(response, field.name))
    for field in fields_of(kind):
        if isinstance(field.wire.items, type) and can_err(field.wire.items):
            items = getattr(response, field.name)
            return error_of_whole(items[0]) if items else ErrorCode.NONE
    return ErrorCode.NONE


def _copied(name: str, asked: Any) -> object | None:
    if isinstance(asked, int):
        return asked if _IDENTITIES.get(name) is _NUMBER else None
    if isinstance(asked, str):
        return asked if name in _NAMES else None
    for alias in _IDENTITIES.get(name, ()):
        if (value := getattr(asked, alias, None)) is not None:
            return value  # type: ignore[no-any-return] # whatever the message holds
    return None


def _array_for(name: str, asked: Any) -> list[Any]:
    """Return the array of `asked` that the one called `name` answers."""
    if isinstance(asked, int | str):
        return []
    kind: type = type(asked)
    arrays = {
        field.name: getattr(asked, field.name) or []
        for field in fields_of(kind)
        if field.wire.kind is Kind.ARRAY and field.name != "forgotten_topics_data"
    }
    if "upsertions" in arrays:  # and deletions: two lists of users, each of whom is answered once
        users = [*arrays["deletions"], *arrays["upsertions"]]
        return list({each.name: each for each in users}.values())
    if (same := _ANSWERS.get(name, name)) in arrays:
        return list(arrays[same])
    if name in _ANSWERS:
        return []
    # A request has one array that is answered; some have another form of it, left empty.
    return next((list(each) for each in arrays.values() if each), [])
