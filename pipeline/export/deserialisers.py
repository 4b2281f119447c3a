"""Keys and values as more than bytes, by the names of Kafka's deserialisers.

    bytes     unchanged                         binary
    string    UTF-8, invalid bytes replaced     string      (StringDeserializer)
    short int long                              int16 ...   (ShortDeserializer, ...)
    float double                                            (FloatDeserializer, ...)
    uuid      36 characters                     string      (UUIDDeserializer)
    boolean   0 or 1                                        (BooleanDeserializer)
    module:function   of your own: a pyarrow array of binary in, an array as long out

Rule: null stays null. Bytes that are no value of the kind are an error that names the record, as
with Kafka's deserialisers; nothing is guessed.
"""

import importlib
import struct
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from replication.errors import UnderstudyError

Convert: TypeAlias = Callable[[pa.Array], pa.Array]


class DeserialiseError(UnderstudyError):
    """An error: an unknown deserialiser, or bytes that it cannot read."""


@attrs.frozen
class Deserialiser:
    """A deserialiser by its name, so that it can be sent to workers."""

    name: str

    def check(self) -> None:
        """Raise DeserialiseError if there is no deserialiser of this name."""
        _find(self.name)

    def convert(self, values: pa.Array, where: Callable[[int], str]) -> pa.Array:
        """Convert the values; `where` names the record of a row, for errors."""
        try:
            found = _find(self.name)(values)
        except _BadValueError as error:
            raise DeserialiseError(f"{where(error.row)}: {error}") from error
        if len(found) != len(values):
            raise DeserialiseError(f"{self.name} made {len(found)} values of {len(values)}")
        return found

    @property
    def type(self) -> pa.DataType:
        """The type of the converted values."""
        return _find(self.name)(pa.array([], pa.binary())).type


class _BadValueError(ValueError):
    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def _each(
    convert: Callable[[bytes], Any], kind: pa.DataType, name: str, values: pa.Array
) -> pa.Array:
    made = []
    for row, value in enumerate(values.to_pylist()):
        try:
            made.append(None if value is None else convert(value))
        except (ValueError, struct.error) as error:
            raise _BadValueError(row, f"{len(value)} bytes are no {name}: {error}") from error
    return pa.array(made, kind)


def _unpack(code: str, value: bytes) -> Any:
    (found,) = struct.unpack(code, value)
    return found


def _uuid(value: bytes) -> str:
    return str(uuid.UUID(value.decode("ascii")))


def _boolean(value: bytes) -> bool:
    if value not in (b"\0", b"\1"):
        raise ValueError("neither 0 nor 1")
    return value == b"\1"


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _string(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())  # which checks it all at once
    except pa.ArrowInvalid:
        return _each(_text, pa.string(), "string", values)


def _as_is(values: pa.Array) -> pa.Array:
    return values


_FIXED: Final = {
    "short": (">h", pa.int16()),
    "int": (">i", pa.int32()),
    "long": (">q", pa.int64()),
    "float": (">f", pa.float32()),
    "double": (">d", pa.float64()),
}
UNCHANGED: Final = "bytes"
KNOWN: Final[dict[str, Convert]] = {
    UNCHANGED: _as_is,
    "string": _string,
    "uuid": partial(_each, _uuid, pa.string(), "uuid"),
    "boolean": partial(_each, _boolean, pa.bool_(), "boolean"),
    **{
        name: partial(_each, partial(_unpack, code), kind, name)
        for name, (code, kind) in _FIXED.items()
    },
}


def _find(name: str) -> Convert:
    if name in KNOWN:
        return KNOWN[name]
    module, separator, function = name.partition(":")
    if not separator:
        known = ", ".join(KNOWN)
        raise DeserialiseError(f"no deserialiser {name!r}: there are {known}, and module:function")
    try:
        found: Convert = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DeserialiseError(f"deserialiser {name!r}: {error}") from error
    return found
