"""One full object of any message: every array has items, nothing is null or at its default."""

from collections.abc import Iterable
from typing import Any

import pytest

from replication.wire.apis import API, Api
from replication.wire.schema import Kind, Wire, fields_of

VALUES: dict[Kind, object] = {
    Kind.BOOL: True,
    Kind.INT8: -3,
    Kind.INT16: 3,
    Kind.UINT16: 9092,
    Kind.INT32: 77,
    Kind.INT64: 2**40,
    Kind.FLOAT64: 0.5,
    Kind.UUID: bytes(range(16)),
    Kind.STRING: "tést",
    Kind.BYTES: b"octets",
    Kind.RECORDS: b"a record batch",
}

EVERY_VERSION: list[tuple[Api, type, int]] = [
    (api, message, version)
    for api in API.values()
    for version in range(api.min_version, api.max_version + 1)
    for message in (api.request, api.response)
]


def parameters(messages: Iterable[tuple[Api, type, int]]) -> list[Any]:
    """Return the messages as parameters of a test.

    The versions between the oldest and the newest are `deep`.
    """
    return [
        pytest.param(
            api,
            message,
            version,
            id=f"{message.__name__} v{version}",
            marks=[] if version in (api.min_version, api.max_version) else [pytest.mark.deep],
        )
        for api, message, version in messages
    ]


def turns(api: Api, version: int) -> bool:
    """Return whether this is the oldest, the first flexible or the newest version."""
    return version in (api.min_version, api.first_flexible, api.max_version)


def sample(kind: type, *, length: int = 2) -> Any:
    """Return a full object of class `kind`, whose arrays have `length` items."""
    return kind(**{field.name: _value(field.wire, length) for field in fields_of(kind)})


def _value(wire: Wire, length: int) -> object:
    if wire.kind is Kind.STRUCT:
        assert isinstance(wire.items, type)
        return sample(wire.items, length=length)
    if wire.kind is Kind.ARRAY:
        if isinstance(wire.items, type):
            return [sample(wire.items, length=length)] * length
        return [_primitive(wire.items)] * length
    return _primitive(wire.kind)


def _primitive(kind: Kind | None) -> object:
    assert kind is not None
    return VALUES[kind]
