"""kio as the judge of our bytes: its entities, drawn at random, and turned into ours.

kio is an independent implementation, generated from Kafka's own message definitions. It
keeps one dataclass per message *version*; a field of ours corresponds to the field of the
same name, but for times: kio says `timeout` as a timedelta, we say `timeout_ms`.
"""

import dataclasses
import datetime as dt
import importlib
import io
import types
import typing
import uuid
from collections.abc import Hashable
from functools import cache
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

from replication.wire.apis import Api
from replication.wire.schema import NO_ID, Field, Kind, fields_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)


def kio_class(api: Api, message: type, version: int) -> Any:
    """kio's class for our `message` at `version`."""
    package = api.key.name.lower()
    kind = "request" if message is api.request else "response"
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return getattr(module, message.__name__)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_entity(kind: Any, data: bytes) -> Any:
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data), "kio reads all that we write"
    return entity


# -- drawing

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
}

# Long enough, now and then, that a compact length takes two bytes.
STRINGS = st.text(max_size=6) | st.integers(120, 140).map(lambda size: "é" * (size // 2))


def _uuid(raw: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=raw) if any(raw) else None


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": STRINGS,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.none() | st.binary(min_size=16, max_size=16).map(_uuid),
    "error_code": st.sampled_from(list(ErrorCode)),
    "timedelta_i32": st.integers(*INTEGERS["int32"]).map(
        lambda number: i32Timedelta.parse(number * MILLISECOND)
    ),
    "timedelta_i64": st.integers(*INTEGERS["int32"]).map(
        lambda number: i64Timedelta.parse(number * MILLISECOND)
    ),
    "datetime_i64": st.integers(0, 2**34).map(
        lambda seconds: TZAware.parse(EPOCH + dt.timedelta(seconds=seconds))
    ),
}
PRIMITIVES |= {name: st.integers(*bounds) for name, bounds in INTEGERS.items()}


@cache
def entities(kind: Hashable) -> st.SearchStrategy[Any]:
    """Entities of one of kio's classes."""
    make: Any = kind
    drawn = {field.name: _values(field) for field in dataclasses.fields(make)}
    return st.fixed_dictionaries(drawn).map(lambda values: make(**values))


def _values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    item, is_array, is_nullable = _unwrap(field.type)
    values: st.SearchStrategy[Any]
    if dataclasses.is_dataclass(item):
        assert isinstance(item, type)
        values = entities(item)
    else:
        kafka_type = field.metadata["kafka_type"]
        values = PRIMITIVES[kafka_type]
        if is_array and kafka_type == "uuid":
            values = values.filter(lambda value: value is not None)
    if is_array:
        values = st.lists(values, max_size=3).map(tuple)
    if is_nullable and not (field.metadata.get("kafka_type") == "uuid" and not is_array):
        values = st.none() | values
    if "tag" in field.metadata and field.default is not dataclasses.MISSING:
        # What is at its default does not travel.
        values = st.just(field.default) | values
        if field.default is not None and field.metadata.get("kafka_type") != "uuid":
            values = values.filter(lambda value: value is not None)
    return values


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """The type inside `X | None` and `tuple[X, ...]`; whether an array; whether nullable."""
    is_array = is_nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
        is_nullable = True
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
        is_array = True
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        # An array of ids: kio's ids are all optional, the array itself is not.
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    return annotation, is_array, is_nullable


# -- turning kio's entities into our messages


def ours(entity: Any, kind: type, version: int) -> Any:
    """Our object of class `kind` that says what kio's `entity` says."""
    theirs = {
        _our_name(field.name): getattr(entity, field.name) for field in dataclasses.fields(entity)
    }
    values = {}
    for field in fields_of(kind):
        if version not in field.wire.versions:
            continue
        name = field.name if field.name in theirs else field.name.removesuffix("_ms")
        values[field.name] = _our_value(theirs.pop(name), field, version)
    assert not theirs, f"{kind.__name__} v{version} lacks {sorted(theirs)}"
    return kind(**values)


def _our_name(name: str) -> str:
    return name.replace("k_raft", "kraft")


def _our_value(value: Any, field: Field, version: int) -> Any:
    wire = field.wire
    if wire.kind is Kind.ARRAY:
        if value is None:
            return None
        if isinstance(wire.items, type):
            return [ours(item, wire.items, version) for item in value]
        return [_our_primitive(item) for item in value]
    if wire.kind is Kind.STRUCT:
        assert isinstance(wire.items, type)
        if value is None:
            return None
        return ours(value, wire.items, version)
    if value is None and wire.kind is Kind.UUID:
        return NO_ID
    if value is None and wire.kind is Kind.INT64:
        return -1  # a time that is not known
    return _our_primitive(value)


def _our_primitive(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case ErrorCode():
            return int(value.value)
        case dt.timedelta():
            return value // MILLISECOND
        case dt.datetime():
            return (value - EPOCH) // MILLISECOND
        case _:
            return value


# -- comparing declarations


def disagreements(kind: Any, message: type, version: int) -> list[str]:
    """Return the differences in nulls and defaults between our declaration and kio's class."""
    theirs = {
        _our_name(field.name.removesuffix("_ms")): field for field in dataclasses.fields(kind)
    }
    found = []
    for field in fields_of(message):
        if version not in field.wire.versions:
            continue
        their = theirs[field.name.removesuffix("_ms")]
        item, is_array, is_nullable = _unwrap(their.type)
        name = f"{message.__name__}.{field.name}"
        # Null of an id or of a time is a value like any other on the wire.
        sized = field.wire.kind in (Kind.STRING, Kind.RECORDS, Kind.ARRAY, Kind.STRUCT)
        if sized and is_nullable != (version in field.wire.nullable):
            found.append(f"{name}: null")
        if dataclasses.is_dataclass(item):
            assert isinstance(field.wire.items, type)
            found += disagreements(item, field.wire.items, version)
        if their.default is not dataclasses.MISSING and not is_array:
            expected = _our_value(their.default, field, version)
            if expected != field.default:
                found.append(f"{name}: default {field.default!r} instead of {expected!r}")
    return found
