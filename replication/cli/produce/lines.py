r"""A line as a record: its headers, its key, its value; all of them bytes as they came.

    value                                   as it is
    key<TAB>value                           parse.key=true
    h1:v1,h2:v2<TAB>key<TAB>value           parse.headers=true, too

What parts them is `key.separator`, `headers.delimiter`, `headers.separator` and
`headers.key.separator`; what equals `null.marker` is null. A line that cannot be parted is an
error, or with `ignore.error=true` all value. (LineMessageReader. Java decodes and encodes UTF-8,
and takes a `\r` off; here every byte but what ends a line is kept.)
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import attrs

from replication.cli.output import CommandError
from replication.config.known import nearest
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
# Which may not be the same, as Kafka has it.
_APART = [
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    *((NULL_MARKER, each) for each in _SEPARATORS),
]


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@attrs.define(eq=False, kw_only=True)
class Lines:
    """What is fed to it comes out as records, once a line is whole."""

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
        """From Kafka's properties; ValueError where they cannot be."""
        for name in given:
            if name not in DEFAULTS and name != NULL_MARKER:
                raise ValueError(f"{name}: no such property{nearest(name, DEFAULTS)}")
        told: dict[str, str | None] = {NULL_MARKER: None, **DEFAULTS, **given}
        for one, other in _APART:
            if told[one] is not None and told[one] == told[other]:
                raise ValueError(f"{one} and {other} may not be equal")
        empty = [name for name in _SEPARATORS if not told[name]]
        if empty:
            raise ValueError(f"{empty[0]} is empty")

        def flag(name: str) -> bool:
            return (told[name] or "").strip().lower() == "true"

        def part(name: str) -> bytes:
            return (told[name] or "").encode()

        return cls(
            parse_key=flag("parse.key"),
            parse_headers=flag("parse.headers"),
            key_separator=part("key.separator"),
            headers_delimiter=part("headers.delimiter"),
            headers_separator=part("headers.separator"),
            headers_key_separator=part("headers.key.separator"),
            ignore_error=flag("ignore.error"),
            null_marker=None if told[NULL_MARKER] is None else part(NULL_MARKER),
            end=end,
        )

    def feed(self, data: bytes) -> list[Line]:
        """The lines that are whole now."""
        *whole, self._rest = (self._rest + data).split(self.end)
        return [self._parse(line) for line in whole]

    def last(self) -> list[Line]:
        """What came after the last line's end, if anything did."""
        rest, self._rest = self._rest, b""
        return [self._parse(rest)] if rest else []

    def _parse(self, line: bytes) -> Line:
        self._number += 1
        headers: bytes | None = None
        key: bytes | None = None
        value = line
        if self.parse_headers:
            headers, value = self._cut(value, self.headers_delimiter, "headers delimiter")
        if self.parse_key:
            key, value = self._cut(value, self.key_separator, "key separator")
        found = () if headers is None or headers == self.null_marker else self._headers(headers)
        return Line(self._or_null(key), self._or_null(value), tuple(found))

    def _cut(self, line: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, line
        raise CommandError(f"line {self._number}: there is no {name} in it")

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data

    def _headers(self, text: bytes) -> Iterator[Header]:
        for pair in text.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise CommandError(f"line {self._number}: a header without a key separator")
            try:
                yield name.decode(), self._or_null(value) if found else None
            except UnicodeDecodeError as error:
                raise CommandError(f"line {self._number}: a header's name is no UTF-8") from error
