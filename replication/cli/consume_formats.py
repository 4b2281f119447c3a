r"""The forms of a record: Kafka's, kcat's, or JSON; and the deserialisers of its parts.

    --property print.key=true         CreateTime:17  Partition:0  Offset:5  h:v  key  value
    -f '%t %p %o %k %s\n'             text between the letters is written unchanged
    --output json                     {"topic":"t","partition":0,"offset":5,...}

Bytes are written unchanged, except that control characters are escaped on a terminal, and bytes are
converted for JSON (`output.py`, rule 2) and by a deserialiser. Kafka's form is that of
DefaultMessageFormatter; kcat's letters are

    %t topic  %p partition  %o offset  %T timestamp  %h headers  %%
    %k key    %K its length, -1 for null    %s value    %S its length    %R the same, 4 bytes

A deserialiser turns the bytes of a key, a value or a header into a number or a text:

    --key-deserializer org.apache.kafka.common.serialization.LongDeserializer
    --value-deserializer Double
    --property headers.deserializer=string

The name of a class may lack its package and the ending `Deserializer`. Numbers are printed as Java
prints them, and are numbers in JSON. Null stays null. Bytes that cannot be deserialised end the
command with their offset.
"""

import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from replication.cli.output import json_line
from replication.client.consumer.records import ConsumerRecord
from replication.config.known import nearest
from replication.visible import visible
from storage.attributes import frozen
from storage.tools.dump.json_lines import bytes_field
from storage.tools.dump.text import TIMESTAMP_NAMES

Plain: TypeAlias = bytes | str | int | float | bool
Deserialise: TypeAlias = Callable[[bytes], Plain]

_MOST_DIGITS: Final = 17
_SCIENTIFIC_FROM: Final = 7
_SCIENTIFIC_BELOW: Final = -3

Format: TypeAlias = Callable[[ConsumerRecord], bytes]
PRINTED = {"timestamp": False, "partition": False, "offset": False, "headers": False}
PRINTED |= {"key": False, "value": True}
LITERALS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
PROPERTIES = {
    **{f"print.{name}": str(shown).lower() for name, shown in PRINTED.items()},
    **LITERALS,
}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "0": "\0"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{1,2})|\\(.)|([^%\\]+)|([%\\])", re.DOTALL)


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


@frozen
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


@frozen(kw_only=True)
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


def by_properties(given: Mapping[str, str], kinds: Deserialisers) -> Format:
    """Return Kafka's form; raise ValueError for an unknown property."""
    for name in given:
        if name not in PROPERTIES:
            raise ValueError(f"{name}: no such property{nearest(name, PROPERTIES)}")
    properties = PROPERTIES | {**given}
    shown = [name for name in PRINTED if properties[f"print.{name}"].strip().lower() == "true"]
    separator, end, comma, null = (properties[name].encode() for name in LITERALS)

    def headers(record: ConsumerRecord) -> bytes:
        pairs = (
            b"%b:%b" % (key.encode(), null if value is None else kinds.headers.text(value))
            for key, value in record.headers
        )
        return comma.join(pairs) if record.headers else b"NO_HEADERS"

    parts: Mapping[str, Format] = {
        "timestamp": lambda record: (
            f"{TIMESTAMP_NAMES[record.timestamp_type]}:{record.timestamp}".encode()
        ),
        "partition": lambda record: b"Partition:%d" % record.partition,
        "offset": lambda record: b"Offset:%d" % record.offset,
        "headers": headers,
        "key": lambda record: null if record.key is None else kinds.key.text(record.key),
        "value": lambda record: null if record.value is None else kinds.value.text(record.value),
    }
    chosen = [parts[name] for name in shown]
    return lambda record: separator.join([part(record) for part in chosen]) + end


def by_pattern(text: str) -> Format:
    """Return kcat's form; raise ValueError for an unknown letter."""
    pieces: list[Format] = []
    for letter, hexadecimal, escaped, plain, alone in _TOKEN.findall(text):
        if letter and letter != "%":
            if letter not in _LETTERS:
                raise ValueError(
                    f"%{letter}: expected one of {', '.join(map('%{}'.format, _LETTERS))}"
                )
            pieces.append(_LETTERS[letter])
        elif hexadecimal:
            pieces.append(_always(bytes([int(hexadecimal, 16)])))
        else:
            constant = "%" if letter else _ESCAPES.get(escaped, escaped) or plain or alone
            pieces.append(_always(constant.encode()))
    return lambda record: b"".join([piece(record) for piece in pieces])


def for_a_terminal(form: Format) -> Format:
    """Return `form` with the control characters in what it writes escaped."""
    return lambda record: visible(form(record).decode(errors="backslashreplace")).encode()


def _always(constant: bytes) -> Format:
    return lambda _: constant


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


_LETTERS: Mapping[str, Format] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "h": lambda record: b",".join(
        key.encode() + b"=" + (value or b"") for key, value in record.headers
    ),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
}


def as_json(kinds: Deserialisers) -> Format:
    """Return the form of a JSON object in each line."""

    def line(record: ConsumerRecord) -> bytes:
        found = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": TIMESTAMP_NAMES[record.timestamp_type],
            "leader_epoch": record.leader_epoch,
            **_field("key", record.key, kinds.key),
            **_field("value", record.value, kinds.value),
            "headers": [
                {"key": key, **_field("value", value, kinds.headers)}
                for key, value in record.headers
            ],
        }
        return json_line(found).encode() + b"\n"

    return line


def _field(name: str, data: bytes | None, kind: KafkaDeserialiser) -> Mapping[str, object]:
    found = None if data is None else kind.value(data)
    if isinstance(found, float) and not math.isfinite(found):
        found = number_text(found)  # JSON has no such number
    return bytes_field(name, found) if found is None or isinstance(found, bytes) else {name: found}
