"""Keys, values and headers as numbers and texts, by the names of Kafka's deserialisers.

    --key-deserializer org.apache.kafka.common.serialization.LongDeserializer
    --value-deserializer Double
    --property headers.deserializer=string

The name of a class may lack its package and the ending `Deserializer`. Numbers are printed as Java
prints them, and are numbers in JSON.

Rule: null stays null. Bytes that cannot be deserialised end the command with their offset.
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
    """A float of four bytes, printed with as few digits as identify it."""


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


class NotDeserialisableError(ValueError):
    """A deserialiser cannot read these bytes."""


@attrs.frozen
class KafkaDeserialiser:
    """The deserialiser of a name; ValueError if it is unknown."""

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
            raise NotDeserialisableError(
                f"{len(data)} bytes are not a valid {self.name}: {error}"
            ) from error

    def text(self, data: bytes) -> bytes:
        """Return the text that Java prints for it."""
        match self.value(data):
            case bytes(found):
                return found
            case bool(found):
                return b"true" if found else b"false"
            case float(found):
                return number_text(found).encode()
            case found:
                return str(found).encode()


BYTES: Final = KafkaDeserialiser()


@attrs.frozen(kw_only=True)
class Deserialisers:
    """The deserialisers of a record's parts."""

    key: KafkaDeserialiser = BYTES
    value: KafkaDeserialiser = BYTES
    headers: KafkaDeserialiser = BYTES


def number_text(number: float) -> str:
    """Return a number as Double.toString and Float.toString do: `1.0`, `1.0E10`, `NaN`."""
    if number != number:  # noqa: PLR0124 - only NaN differs from itself
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
    """Return a number such as `1.5e+00`, with the fewest digits that give the same bytes."""
    code = ">f" if isinstance(number, _Single) else ">d"
    wanted = struct.pack(code, number)
    texts = (f"{number:.{digits}e}" for digits in range(_MOST_DIGITS))
    return next(each for each in texts if _packs_to(code, float(each), wanted))


def _packs_to(code: str, number: float, wanted: bytes) -> bool:
    try:
        return struct.pack(code, number) == wanted
    except OverflowError:
        return False  # rounded beyond the largest float
