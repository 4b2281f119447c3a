"""The search for a value that cannot be encoded, after encoding has failed.

Encoders do not check values, for speed. If a program puts a text where a number belongs, the error
names the place: `topics[0].num_partitions='3'`.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from replication.wire.schema import FIXED_SIZES, Kind, Wire, fields_of

_BYTES = (bytes, bytearray, memoryview)


def misfit(message: object, version: int) -> str:
    """Return the first value that does not fit its field at `version`; empty if all fit."""
    return next(_in_struct(message, version, ""), "")


def _in_struct(message: object, version: int, path: str) -> Iterator[str]:
    kind: type = type(message)
    for field in fields_of(kind):
        if version in field.wire.versions:
            value = getattr(message, field.name)
            if value is not None or version not in field.wire.nullable:
                yield from _in_field(value, field.wire, version, f"{path}{field.name}")


def _in_field(value: Any, wire: Wire, version: int, path: str) -> Iterator[str]:
    if wire.kind is not Kind.ARRAY:
        yield from _in_value(value, wire.items or wire.kind, version, path)
    elif not isinstance(value, Sequence) or isinstance(value, str):
        yield f"{path}={value!r}"
    else:
        for index, item in enumerate(value):
            assert wire.items is not None, "an array is of something"
            yield from _in_value(item, wire.items, version, f"{path}[{index}]")


def _in_value(value: Any, kind: Kind | type, version: int, path: str) -> Iterator[str]:
    if not isinstance(kind, Kind):
        if isinstance(value, kind):
            yield from _in_struct(value, version, f"{path}.")
        else:
            yield f"{path}={value!r}"
    elif not _fits(value, kind):
        yield f"{path}={value!r}"


def _fits(value: Any, kind: Kind) -> bool:
    if kind is Kind.STRING:
        return isinstance(value, str)
    if kind is Kind.BYTES:
        return isinstance(value, _BYTES)
    if kind not in FIXED_SIZES:
        return True  # records: whatever has a size
    try:
        struct.pack(f">{kind.value}", value)
    except struct.error:
        return False
    return True
