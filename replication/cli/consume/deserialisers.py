"""Keys, values and headers as more than bytes, by the names of Kafka's deserialisers.

    --key-deserializer org.apache.kafka.common.serialization.LongDeserializer
    --value-deserializer Double
    --property headers.deserializer=string

A class's name may be said whole, without its package, or without `Deserializer`. Numbers are
printed as Java prints them, and are numbers in JSON.

Rule: null stays null. Bytes that are none of the kind end the command with where they stand.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from replication.config.known import nearest

Plain: TypeAlias = bytes | str | int | float | bool
Deserialise: TypeAlias = Callable[[bytes], Plain]

_MOST_DIGITS: Final = 17
_SCIENTIFIC_FROM: Final = 7
_SCIENTIFIC_BELOW: Final = -3


class _Single(float):
    """Of four bytes: as few digits as tell it from its neighbours."""


def _as_is(data: bytes) -> bytes:
    return data


def _unpacked(code: str) -> Callable[[bytes], int]:
    def deserialise(data: bytes) -> int:
        (found,) = struct.unpack(code, data)
        return int(found)

    return deserialise


def _float(data: bytes) -> _Single:
    return _Single(struct.unpack(">f", data)[0])


def _double(data: bytes) -> float:
    return float(struct.unpack(">d", data)[0])


def _boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError("neither 0 nor 1")
    return data == b"\1"


def _uuid(data: bytes) -> str:
    return str(uuid.UUID(data.decode("ascii")))


KNOWN: Final[Mapping[str, Deserialise]] = {
    "string": _as_is,
    "bytearray": _as_is,
    "bytebuffer": _as_is,
    "bytes": _as_is,
    "short": _unpacked(">h"),
    "integer": _unpacked(">i"),
    "int": _unpacked(">i"),
    "long": _unpacked(">q"),
    "float": _float,
    "double": _double,
    "boolean": _boolean,
    "uuid": _uuid,
}


class NotOfTheKindError(ValueError):
    """Bytes that a deserialiser can make nothing of."""


@attrs.frozen
class Deserialiser:
    """`name` as it was said; ValueError where there is none of it."""

    name: str = "bytes"
    _do: Deserialise = attrs.field(init=False)

    @_do.default
    def _found(self) -> Deserialise:
        kind = self.name.rpartition(".")[2].removesuffix("Deserializer").lower()
        if kind not in KNOWN:
            raise ValueError(f"{self.name}: no such deserializer{nearest(kind, KNOWN)}")
        return KNOWN[kind]

    def value(self, data: bytes) -> Plain:
        try:
            return self._do(data)
        except (ValueError, struct.error) as error:
            raise NotOfTheKindError(f"{len(data)} bytes are no {self.name}: {error}") from error

    def text(self, data: bytes) -> bytes:
        """As Java prints it."""
        match self.value(data):
            case bytes(found):
                return found
            case bool(found):
                return b"true" if found else b"false"
            case float(found):
                return number_text(found).encode()
            case found:
                return str(found).encode()


BYTES: Final = Deserialiser()


@attrs.frozen(kw_only=True)
class Deserialisers:
    key: Deserialiser = BYTES
    value: Deserialiser = BYTES
    headers: Deserialiser = BYTES


def number_text(number: float) -> str:
    """`1.0`, `1.0E10`, `NaN`: Double.toString and Float.toString."""
    if number != number:  # noqa: PLR0124 - so is what is no number
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent = _shortest(number).partition("e")
    sign, digits = "-" * mantissa.startswith("-"), mantissa.strip("-").replace(".", "")
    digits, point = digits.rstrip("0") or "0", int(exponent)
    if number and not _SCIENTIFIC_BELOW <= point < _SCIENTIFIC_FROM:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point}"
    if point < 0:
        return f"{sign}0.{'0' * (-point - 1)}{digits}"
    whole = digits[: point + 1].ljust(point + 1, "0")
    return f"{sign}{whole}.{digits[point + 1 :] or '0'}"


def _shortest(number: float) -> str:
    """`1.5e+00`, with as few digits as come back to the same bytes."""
    code = ">f" if isinstance(number, _Single) else ">d"
    wanted = struct.pack(code, number)
    texts = (f"{number:.{digits}e}" for digits in range(_MOST_DIGITS))
    return next(each for each in texts if _packs_to(code, float(each), wanted))


def _packs_to(code: str, number: float, wanted: bytes) -> bool:
    try:
        return struct.pack(code, number) == wanted
    except OverflowError:
        return False  # rounded beyond the largest there is
