"""For every list that a request can have: that request, with as many items as are asked for.

    Fetch            topics    topics.partitions    forgotten_topics_data    ...
    DescribeGroups   groups
    ...

They are made from the messages themselves, so that no API is forgotten. The items of a list differ
from each other; the lists around it have one item each, which is the topic that there is.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from replication.broker.handlers import broker_handlers
from replication.wire.apis import API, ApiKey
from replication.wire.frames import MAX_ITEMS, MAX_ITEMS_OF
from replication.wire.schema import Field, Kind, fields_of
from tests.replication.server.attacked import TOPIC, Hostile

Path = tuple[str, ...]

_TOPIC_TYPE = 2  # of a configuration's resource
_NAMES = {"name", "topic", "group_id", "resource_name", "transactional_id", "principal"}
_NUMBERS = {"partition_index", "partition", "index"}


def long_lists() -> Iterator[tuple[str, Hostile]]:
    """Yield each list's name, such as `FETCH topics.partitions`, and its request."""
    served = set(broker_handlers(None))  # type: ignore[arg-type]  # only its keys
    for key in sorted(served - {ApiKey.PRODUCE}):
        api = API[key]
        for path in _paths(api.request):
            for version in (api.max_version, api.min_version):
                if _is_there(api.request, path, version):
                    request = partial(_request, api.request, path)
                    most = min(MAX_ITEMS, MAX_ITEMS_OF.get(key, MAX_ITEMS)) - 1_000
                    hostile = Hostile(request=request, version=version, measured=most)
                    yield f"{key.name} {'.'.join(path)}", hostile
                    break


def _paths(kind: type, prefix: Path = ()) -> Iterator[Path]:
    for field in fields_of(kind):
        if field.wire.kind is Kind.ARRAY:
            yield (*prefix, field.name)
            if isinstance(field.wire.items, type):
                yield from _paths(field.wire.items, (*prefix, field.name))


def _is_there(kind: type, path: Path, version: int) -> bool:
    field = next(each for each in fields_of(kind) if each.name == path[0])
    if version not in field.wire.versions:
        return False
    return len(path) == 1 or _is_there(_items(field), path[1:], version)


def _items(field: Field) -> type:
    assert isinstance(field.wire.items, type), "only structs have lists"
    return field.wire.items


def _request(kind: type, path: Path, count: int) -> object:
    request = _struct(kind, 0, path, count)
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = 30_000
    if hasattr(request, "allow_auto_topic_creation"):
        request.allow_auto_topic_creation = False  # that is a request of its own, in `HOSTILE`
    return request


def _struct(kind: type, number: int, path: Path, count: int) -> Any:
    """Make a struct that differs from others by `number`; the list at `path` has `count` items."""
    values: dict[str, object] = {}
    for field in fields_of(kind):
        if field.wire.kind is Kind.ARRAY:
            on_path = path[:1] == (field.name,)
            values[field.name] = _array(field, path[1:], count) if on_path else []
        elif field.name in _NAMES:
            values[field.name] = f"{TOPIC}-{number}" if number else TOPIC
        elif field.name in _NUMBERS:
            values[field.name] = number
        elif field.name == "topic_id":
            values[field.name] = number.to_bytes(16, "big")
        elif field.name == "resource_type":
            values[field.name] = _TOPIC_TYPE
    return kind(**values)


def _array(field: Field, path: Path, count: int) -> list[Any]:
    if isinstance(field.wire.items, type):
        numbers = range(1) if path else range(count)
        return [_struct(field.wire.items, number, path, count) for number in numbers]
    if field.wire.items is Kind.STRING:
        return [f"{TOPIC}-{number}" for number in range(count)]
    if field.wire.items is Kind.INT8:
        return [number % 128 for number in range(count)]
    return list(range(count))
