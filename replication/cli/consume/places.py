"""The partitions to read and where to begin: `--topic`, `--include`, `--partition`, `--offset`.

    earliest  beginning      the first record
    latest    end            the records from now on
    stored                   the committed offset of the group
    5                        offset 5
    -5                       the last five records
    s@1700000000000          the first record from that time on

Without a group, every partition that a topic has now is read, but none that is added later.
(Kafka's console consumer creates a group for that, which stays in the cluster.)
"""

import enum
from collections.abc import Sequence
from typing import assert_never

import attrs
import click

from replication.cli.patience import NotFoundError
from replication.cli.topics import choosing
from replication.client.admin import Admin
from replication.client.consumer import Consumer
from storage.types import TopicPartition


class Where(enum.Enum):
    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@attrs.frozen
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


@attrs.frozen(kw_only=True)
class WantedPartitions:
    """A choice of topics and partitions; without partitions, all of them."""

    topics: tuple[str, ...]
    include: str | None
    partitions: tuple[int, ...]

    async def found(self, admin: Admin) -> list[TopicPartition]:
        """Return the chosen partitions; raise NotFoundError for an unknown topic or partition."""
        named = choosing.WantedTopics(names=self.topics, pattern=self.include)
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
