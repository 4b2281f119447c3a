"""The answer to what is refused: the request's own names, and one error for each of them.

Kafka writes this out for each request (AbstractRequest.getErrorResponse). Here an answer is
made of what was asked, by the names of their fields: an array that can hold errors is filled
from the array of the request that it answers, item by item.
"""

from typing import Any

from replication.errors import ErrorCode
from replication.wire.schema import Kind, fields_of

ERROR_FIELDS = {"error_code", "partition_error_code"}
# What stands where there is nothing to tell, in an answer that says why.
UNKNOWN = {
    "base_offset": -1,
    "high_watermark": -1,
    "committed_offset": -1,
    "low_watermark": -1,
    "leader_id": -1,
    "node_id": -1,
    "port": -1,
}
_ANSWERS = {
    "topic_results": "topics",
    "results_by_transaction": "transactions",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
}
_ALIASES = {
    "partition_index": ("partition_index", "partition", "index"),
    "partition_id": ("partition_index", "partition", "index"),
    "partition": ("partition", "partition_index"),
    "index": ("index", "partition_index"),
    "name": ("name", "topic"),
    "topic": ("topic", "name"),
    "user": ("name",),
}


def refused(kind: type, asked: Any, code: ErrorCode) -> Any:
    """A `kind` that answers `asked`, which may be a bare name or number, with `code`."""
    values: dict[str, object] = {}
    for field in fields_of(kind):
        if field.name in ERROR_FIELDS:
            values[field.name] = code
        elif field.wire.kind is not Kind.ARRAY:
            if (value := _copied(field.name, asked)) is not None:
                values[field.name] = value
            elif field.name in UNKNOWN:
                values[field.name] = UNKNOWN[field.name]
        elif isinstance(field.wire.items, type) and can_err(field.wire.items):
            values[field.name] = [
                refused(field.wire.items, each, code) for each in _array_for(field.name, asked)
            ]
    return kind(**values)


def can_err(kind: type) -> bool:
    """Whether there is a place for an error in it."""
    return any(
        field.name in ERROR_FIELDS
        or (isinstance(field.wire.items, type) and can_err(field.wire.items))
        for field in fields_of(kind)
    )


def _copied(name: str, asked: Any) -> object | None:
    if isinstance(asked, int):
        return asked if name in ("partition_index", "partition_id", "partition", "index") else None
    if isinstance(asked, str):
        return asked if name in ("name", "topic", "group_id", "key", "transactional_id") else None
    if name in ("error_message", "topic_authorized_operations"):
        return None
    for alias in _ALIASES.get(name, (name,)):
        if (value := getattr(asked, alias, None)) is not None:
            return value  # type: ignore[no-any-return] # whatever the message holds
    return None


def _array_for(name: str, asked: Any) -> list[Any]:
    """The array of `asked` that is answered by the one called `name`."""
    if isinstance(asked, int | str):
        return []
    kind: type = type(asked)
    arrays = {
        field.name: getattr(asked, field.name) or []
        for field in fields_of(kind)
        if field.wire.kind is Kind.ARRAY and field.name != "forgotten_topics_data"
    }
    if "upsertions" in arrays:  # beside deletions: two lists of users, each of whom is answered
        users = [*arrays["deletions"], *arrays["upsertions"]]
        return list({each.name: each for each in users}.values())
    if (same := _ANSWERS.get(name, name)) in arrays:
        return list(arrays[same])
    if name in _ANSWERS:
        return []
    # A request has one array that is answered; some have another form of it, left empty.
    return next((list(each) for each in arrays.values() if each), [])
