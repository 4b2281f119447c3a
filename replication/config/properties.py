r"""The text of a Java properties file (java.util.Properties.load), as a dict.

    # or ! begin a comment          only at the start of a line
    key=value  key:value  key value  mean the same; blanks around the separator are ignored
    a backslash at a line's end     goes on with the next line, less its leading blanks
    \t \n \r \f \u00e9 \anything     escapes, in keys and in values

If a key occurs twice, the last value is used. Blanks at the end of a value are part of it in
Java; Kafka's parsers trim them, and so do the parsers here.
"""

import re
from collections.abc import Iterator

from replication.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    return dict(map(_key_and_value, _logical_lines(text)))


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    natural_lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in natural_lines:
        stripped = line.lstrip(_BLANKS)
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2 == 1:
            pending += stripped[:-1]
            continue
        yield pending + stripped
        pending = ""
    if pending:
        yield pending


def _key_and_value(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:end], line), _unescape(value, line)


def _unescape(text: str, line: str) -> str:
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escaped = next(characters, "")
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = "".join(next(characters, "") for _ in range(4))
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise ConfigError(f"{line!r}: \\u needs four hexadecimal digits")
        out.append(chr(int(digits, 16)))
    return "".join(out)
