r"""A line as a record: its headers, its key and its value, as unchanged bytes.

    value                                   the default
    key<TAB>value                           parse.key=true
    h1:v1,h2:v2<TAB>key<TAB>value           parse.headers=true, too

The separators are `key.separator`, `headers.delimiter`, `headers.separator` and
`headers.key.separator`; a part that equals `null.marker` is null. A line without its separator is
an error, or with `ignore.error=true` only a value. (Kafka: LineMessageReader. Java decodes and encodes
UTF-8, and removes a `\r`; here every byte except the end of the line is kept.)
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import attrs

from replication.cli.output import CommandError
from replication.config.known import nearest
from storage.attributes import define
from storage.batch.records import Header

DEFAULTS = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
}
NULL_MARKER = "null.marker"
_SEPARATORS = ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator")
# Kafka forbids these pairs to be equal.
_DIFFERENT = [
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    *((NULL_MARKER, each) for each in _SEPARATORS),
]


class InputLine(NamedTuple):
    """A line of the input as a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@define(eq=False, kw_only=True)
class Lines:
    """A parser of lines: `feed` returns a record for each line that is complete."""

    parse_key: bool
    parse_headers: bool
    key_separator: bytes
    headers_delimiter: bytes
    headers_separator: bytes
    headers_key_separator: bytes
    ignore_error: bool
    null_marker: bytes | None
    end: bytes = b"\n"
    _rest: bytes = attrs.field(init=False, default=b"")
    _number: int = attrs.field(init=False, default=0)

    @classmethod
    def of(cls, given: Mapping[str, str], *, end: bytes = b"\n") -> "Lines":
        """Return the parser for Kafka's properties; raise ValueError if they are invalid."""
        for name in given:
            if name not in DEFAULTS and name != NULL_MARKER:
                raise ValueError(f"{name}: no such property{nearest(name, DEFAULTS)}")
        properties: dict[str, str | None] = {NULL_MARKER: None, **DEFAULTS, **given}
        for one, other in _DIFFERENT:
            if properties[one] is not None and properties[one] == properties[other]:
                raise ValueError(f"{one} and {other} may not be equal")
        empty = [name for name in _SEPARATORS if not properties[name]]
        if empty:
            raise ValueError(f"{empty[0]} is empty")

        def flag(name: str) -> bool:
            return (properties[name] or "").strip().lower() == "true"

        def part(name: str) -> bytes:
            return (properties[name] or "").encode()

        return cls(
            parse_key=flag("parse.key"),
            parse_headers=flag("parse.headers"),
            key_separator=part("key.separator"),
            headers_delimiter=part("headers.delimiter"),
            headers_separator=part("headers.separator"),
            headers_key_separator=part("headers.key.separator"),
            ignore_error=flag("ignore.error"),
            null_marker=None if properties[NULL_MARKER] is None else part(NULL_MARKER),
            end=end,
        )

    def feed(self, data: bytes) -> list[InputLine]:
        """Return the lines that are complete now."""
        *whole, self._rest = (self._rest + data).split(self.end)
        return [self._parse(line) for line in whole]

    def last(self) -> list[InputLine]:
        """Return the rest after the last end of a line, if there is one."""
        rest, self._rest = self._rest, b""
        return [self._parse(rest)] if rest else []

    def _parse(self, line: bytes) -> InputLine:
        self._number += 1
        headers: bytes | None = None
        key: bytes | None = None
        value = line
        if self.parse_headers:
            headers, value = self._cut(value, self.headers_delimiter, "headers delimiter")
        if self.parse_key:
            key, value = self._cut(value, self.key_separator, "key separator")
        found = () if headers is None or headers == self.null_marker else self._headers(headers)
        return InputLine(self._or_null(key), self._or_null(value), tuple(found))

    def _cut(self, line: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, line
        raise CommandError(f"line {self._number}: it has no {name}")

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data

    def _headers(self, text: bytes) -> Iterator[Header]:
        for pair in text.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise CommandError(f"line {self._number}: a header has no key separator")
            try:
                yield name.decode(), self._or_null(value) if found else None
            except UnicodeDecodeError as error:
                raise CommandError(f"line {self._number}: a header's name is not UTF-8") from error
