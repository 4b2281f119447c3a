"""The choice of records: which partitions, where to begin in them, and which records to show.

    -o earliest  beginning        the first record
    -o latest    end              the records from now on
    -o stored                     the committed offset of the group
    -o 5                          offset 5
    -o -5                         the last five records
    -o s@1700000000000            the first record from that time on

    --filter TEXT                 the key or the value contains it
    --filter key=TEXT             the key contains it; so with value=
    --filter key~REGEX            it matches a part of the key; so with value~
    --filter header.NAME          there is a header of that name
    --filter header.NAME=TEXT     a header of that name contains it; with ~ it matches

Repeated filters must all match. Keys and values are bytes: a text is searched as UTF-8, and an
expression matches bytes.

Without a group, every partition that a topic has now is read, but none that is added later.
(Kafka's console consumer creates a group for that, which stays in the cluster.)
"""

import enum
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias, assert_never

import click

from replication.cli.choosing import WantedTopics
from replication.cli.connection import NotFoundError
from replication.client.admin import Admin
from replication.client.consumer import Consumer
from replication.client.consumer.records import ConsumerRecord
from storage.attributes import frozen
from storage.types import TopicPartition

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


class Where(enum.Enum):
    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@frozen
class Place:
    """The place in a partition to begin at."""

    where: Where
    number: int = 0
    """The offset, the count, or the time in milliseconds since 1970."""


_WORDS = {
    "earliest": Place(Where.BEGINNING),
    "beginning": Place(Where.BEGINNING),
    "latest": Place(Where.END),
    "end": Place(Where.END),
    "stored": Place(Where.STORED),
}


def place(_: click.Context, option: click.Parameter, value: str | None) -> Place | None:
    if value is None or value in _WORDS:
        return None if value is None else _WORDS[value]
    if value.removeprefix("s@").isdecimal():
        where = Where.TIME if value.startswith("s@") else Where.OFFSET
        return Place(where, int(value.removeprefix("s@")))
    if value.startswith("-") and value[1:].isdecimal():
        return Place(Where.BEFORE_END, int(value[1:]))
    raise click.BadParameter(
        f"{value}: expected earliest, latest, stored, 5, -5 or s@MILLISECONDS", param=option
    )


@frozen(kw_only=True)
class WantedPartitions:
    """A choice of topics and partitions; without partitions, all of them."""

    topics: tuple[str, ...]
    include: str | None
    partitions: tuple[int, ...]

    async def found(self, admin: Admin) -> list[TopicPartition]:
        """Return the chosen partitions; raise NotFoundError for an unknown topic or partition."""
        named = WantedTopics(names=self.topics, pattern=self.include)
        topics = await named.found(admin)
        described = await admin.describe_topics(topics)
        found = [
            TopicPartition(name, each.partition)
            for name, topic in described.items()
            for each in topic.partitions
        ]
        wanted = [
            each for each in found if not self.partitions or each.partition in self.partitions
        ]
        missing = set(self.partitions) - {each.partition for each in wanted}
        if missing:
            raise NotFoundError(f"partition {min(missing)} of {', '.join(topics)} does not exist")
        return wanted


async def go_to(
    consumer: Consumer, partitions: Sequence[TopicPartition], place: Place, *, timeout_ms: int
) -> None:
    """Move a consumer to `place` in its partitions."""
    match place.where:
        case Where.STORED:
            return
        case Where.BEGINNING:
            consumer.seek_to_beginning(*partitions)
            return
        case Where.END:
            # The ends of now: records that come before the first fetch are read.
            offsets = await consumer.end_offsets(partitions, timeout_ms=timeout_ms)
        case Where.OFFSET:
            offsets = dict.fromkeys(partitions, place.number)
        case Where.BEFORE_END:
            offsets = await consumer.end_offsets(partitions, timeout_ms=timeout_ms)
            begins = await consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
            offsets = {at: max(begins[at], end - place.number) for at, end in offsets.items()}
        case Where.TIME:
            found = await consumer.offsets_for_times(
                dict.fromkeys(partitions, place.number), timeout_ms=timeout_ms
            )
            offsets = await consumer.end_offsets(partitions, timeout_ms=timeout_ms)
            offsets |= {at: each.offset for at, each in found.items() if each is not None}
        case other:
            assert_never(other)
    for at, offset in offsets.items():
        consumer.seek(at, offset)
