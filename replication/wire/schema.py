"""Kafka's messages, declared: one class for all versions of one request or response.

A message is an attrs class. Each field says, through one of the functions below, its
type on the wire, the versions that carry it, the versions in which it may be null, its
tag if it travels in the tagged section (KIP-482), and its default:

    @define(kw_only=True)
    class FetchPartition:
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)
        replica_directory_id: bytes = uuid("17+", tag=0)

Rule 1: a class holds the fields of all versions. Writing a version leaves out the fields
it lacks; reading one leaves them at their defaults. So a sender may fill `replica_id` and
`replica_state` both, and the version chosen later takes the one it knows.

Rule 2: `codec` turns (class, version) into two flat functions on first use; nothing here
runs on the path of a message.

Rule 3: messages are mutable (`define`): an object is built field by field straight
off the wire, at a third of what a frozen one costs. A struct that stands as a *default*
is shared by all messages that do not set it, and is therefore frozen.

Rule 4: numbers are plain ints (an error code too: a newer peer may send one we have no
name for), ids 16 raw bytes, records a view of the frame or whatever has a `size`.
"""

import enum
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import attrs

from storage.attributes import define as define, frozen  # noqa: PLC0414 - which exports it
from storage.types import Buffer

NO_ID = bytes(16)
MAX_VERSION = 32767


@runtime_checkable
class Region(Protocol):
    """Record bytes that are not in memory, such as a stretch of a log file."""

    @property
    def size(self) -> int: ...


Part: TypeAlias = Buffer | Region
"""A piece of an encoded message."""


class Versions(NamedTuple):
    """An inclusive range of versions."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse Kafka's notation: "3", "4-12", "7+", or "" for none."""
        if not text:
            return cls(1, 0)
        lowest, dash, highest = text.partition("-")
        if dash:
            return cls(int(lowest), int(highest))
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        return cls(int(text), int(text))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


class Kind(enum.Enum):
    """The type of a field on the wire; the value of one with a fixed size is its `struct` code."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"


FIXED_SIZES = {
    Kind.BOOL: 1,
    Kind.INT8: 1,
    Kind.INT16: 2,
    Kind.UINT16: 2,
    Kind.INT32: 4,
    Kind.INT64: 8,
    Kind.FLOAT64: 8,
    Kind.UUID: 16,
}


@frozen(kw_only=True)
class Wire:
    """The form of one field on the wire."""

    kind: Kind
    versions: Versions
    nullable: Versions = Versions(1, 0)
    tag: int | None = None
    tagged: Versions = Versions(1, 0)
    items: "Kind | type | None" = None
    """The type of an array's items, or the class of a struct."""


class Field(NamedTuple):
    """The name, the form on the wire and the default of one field of a message class."""

    name: str
    wire: Wire
    default: object


def _declare(
    kind: Kind,
    versions: str,
    default: object,
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str | None = None,
    items: Kind | type | None = None,
) -> Any:
    wire = Wire(
        kind=kind,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        tagged=Versions.parse("" if tag is None else versions if tagged is None else tagged),
        items=items,
    )
    return attrs.field(default=default, metadata={"wire": wire})


def _fixed(kind: Kind, zero: object) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        default: object = zero,
        tag: int | None = None,
        tagged: str | None = None,
    ) -> Any:
        return _declare(kind, versions, default, tag=tag, tagged=tagged)

    return declare


boolean = _fixed(Kind.BOOL, zero=False)
int8 = _fixed(Kind.INT8, zero=0)
int16 = _fixed(Kind.INT16, zero=0)
uint16 = _fixed(Kind.UINT16, zero=0)
int32 = _fixed(Kind.INT32, zero=0)
int64 = _fixed(Kind.INT64, zero=0)
float64 = _fixed(Kind.FLOAT64, zero=0.0)
uuid = _fixed(Kind.UUID, zero=NO_ID)


def string(
    versions: str = "0+",
    *,
    nullable: str = "",
    default: str | None = "",
    tag: int | None = None,
) -> Any:
    """Declare UTF-8 text with a length in front."""
    return _declare(Kind.STRING, versions, default, nullable=nullable, tag=tag)


def octets(versions: str = "0+", *, nullable: str = "", default: bytes | None = b"") -> Any:
    """Declare bytes with a length in front; they are copied out of the frame."""
    return _declare(Kind.BYTES, versions, default, nullable=nullable)


def records(versions: str = "0+", *, nullable: str = "0+", default: bytes | None = None) -> Any:
    """Declare record batches: read as a view of the frame, written as a part of their own."""
    return _declare(Kind.RECORDS, versions, default, nullable=nullable)


def struct(
    kind: type,
    versions: str = "0+",
    *,
    default: object,
    nullable: str = "",
    tag: int | None = None,
) -> Any:
    """Declare a struct, in line or in the tagged section; `default` is shared, so frozen."""
    return _declare(Kind.STRUCT, versions, default, nullable=nullable, tag=tag, items=kind)


def array(
    items: Kind | type,
    versions: str = "0+",
    *,
    nullable: str = "",
    null_by_default: bool = False,
    tag: int | None = None,
) -> Any:
    """Declare an array of structs (given by their class) or of primitives (by their Kind)."""
    default: object = None if null_by_default else attrs.Factory(list)
    return _declare(Kind.ARRAY, versions, default, nullable=nullable, tag=tag, items=items)


@cache
def fields_of(message: type) -> tuple[Field, ...]:
    """Return the declared fields of a message class, in the order of the bytes."""
    return tuple(
        Field(attribute.name, attribute.metadata["wire"], attribute.default)
        for attribute in attrs.fields(message)
    )


@cache
def is_frozen(message: type) -> bool:
    """Return whether objects of the class must be built through its constructor."""
    return "__setattr__" in vars(message)
