"""The choice of records: `consume --filter`; repeated filters must all match.

    TEXT                      the key or the value contains it
    key=TEXT   value=TEXT     the key or the value contains it
    key~REGEX  value~REGEX    it matches a part of the key or the value
    header.NAME               there is a header of that name
    header.NAME=TEXT  header.NAME~REGEX     a header of that name contains or matches it

Keys and values are bytes: a text is searched as UTF-8, and an expression matches bytes.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import click

from replication.client.consumer.records import ConsumerRecord

Filter: TypeAlias = Callable[[ConsumerRecord], bool]

_FORM = re.compile(
    r"(?P<part>key|value|header\.(?P<name>[^=~]+))(?:(?P<how>[=~])(?P<what>.*))?", re.DOTALL
)


def parse(text: str) -> Filter:
    """Return the filter of `text`; raise ValueError if its expression is invalid."""
    form = _FORM.fullmatch(text)
    if form is None or (form["how"] is None and form["name"] is None):
        needle = text.encode()
        return lambda record: needle in (record.key or b"") or needle in (record.value or b"")
    if form["how"] is None:
        return _has_header(form["name"], lambda _: True)
    holds = _containing(form["what"]) if form["how"] == "=" else _matching(form["what"])
    if form["name"] is not None:
        return _has_header(form["name"], holds)
    if form["part"] == "key":
        return lambda record: record.key is not None and holds(record.key)
    return lambda record: record.value is not None and holds(record.value)


def _containing(text: str) -> Callable[[bytes], bool]:
    needle = text.encode()
    return lambda data: needle in data


def _matching(expression: str) -> Callable[[bytes], bool]:
    try:
        pattern = re.compile(expression.encode())
    except re.error as error:
        raise ValueError(f"{expression}: {error}") from error
    return lambda data: pattern.search(data) is not None


def _has_header(name: str, holds: Callable[[bytes], bool]) -> Filter:
    def wanted(record: ConsumerRecord) -> bool:
        return any(key == name and holds(value or b"") for key, value in record.headers)

    return wanted


def filters(_: click.Context, option: click.Parameter, value: Sequence[str]) -> tuple[Filter, ...]:
    try:
        return tuple(map(parse, value))
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from error
