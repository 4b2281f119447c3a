"""The new offsets of a group without members, and setting them.

    earliest  latest          the ends of the log
    offset N                  N
    shift N                   the committed offset plus N
    datetime                  the first record from that time on; the end if there is none
    current                   the committed offset; the end if there is none
    file                      the offset that is given for the partition

An offset outside the log becomes the nearer end of the log. (Kafka: ConsumerGroupCommand.)
"""

import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

import attrs

from replication.client.admin import Admin
from replication.client.offsets import OffsetAndMetadata
from replication.errors import ErrorCode, KafkaError
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.types import TopicPartition

WITHOUT_MEMBERS = ("Empty", "Dead")


class To(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    SHIFT = "shift"
    DATETIME = "datetime"
    CURRENT = "current"
    FILE = "file"


Offsets: TypeAlias = Mapping[TopicPartition, int]


@attrs.frozen
class ResetTarget:
    """The rule for the new offsets."""

    to: To
    number: int = 0
    """The offset, the shift, or the time in milliseconds since 1970."""
    offsets: Offsets = attrs.field(factory=dict)
    """The offset of each partition, if it comes from a file."""


async def partitions_named(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `topic` (all) or of `topic:0,2` (these)."""
    found: set[TopicPartition] = set()
    for text in topics:
        topic, colon, numbers = text.rpartition(":")
        if not colon:
            described = (await admin.describe_topics([text]))[text]
            found |= {TopicPartition(text, each.partition) for each in described.partitions}
            continue
        found |= {TopicPartition(topic, int(number)) for number in numbers.split(",")}
    return sorted(found)


async def planned(
    admin: Admin, group_id: str, topics: Sequence[str] | None, target: ResetTarget
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition of `topics`, or of all with a committed offset.

    Raise KafkaError if the group has members.
    """
    await _check_has_no_members(admin, group_id)
    committed = await admin.list_group_offsets(group_id)
    wanted = sorted(target.offsets or committed)
    if topics is not None:
        wanted = await partitions_named(admin, topics)
    first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
    last = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
    at: Mapping[TopicPartition, int] = {}
    if target.to is To.DATETIME:
        listed = await admin.list_offsets(dict.fromkeys(wanted, target.number))
        at = {partition: each.offset for partition, each in listed.items() if each.offset >= 0}
    return {
        each: new_offset(
            each,
            target,
            begin=first[each].offset,
            end=last[each].offset,
            current=committed[each].offset if each in committed else None,
            at_time=at.get(each),
        )
        for each in wanted
    }


def new_offset(
    partition: TopicPartition,
    target: ResetTarget,
    *,
    begin: int,
    end: int,
    current: int | None,
    at_time: int | None,
) -> int:
    match target.to:
        case To.EARLIEST:
            return begin
        case To.LATEST:
            return end
        case To.OFFSET:
            wanted = target.number
        case To.SHIFT:
            if current is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{partition} has no committed offset to shift"
                )
            wanted = current + target.number
        case To.DATETIME:
            wanted = end if at_time is None else at_time
        case To.CURRENT:
            wanted = end if current is None else current
        case To.FILE:
            wanted = target.offsets[partition]
        case other:
            assert_never(other)
    return min(max(wanted, begin), end)


async def put(admin: Admin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    await admin.alter_group_offsets(
        group_id, {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    )


async def check_put(admin: Admin, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Read the committed offsets back; raise KafkaError if they are not `offsets`."""
    committed = await admin.list_group_offsets(group_id, offsets)
    for partition, offset in offsets.items():
        found = committed.get(partition)
        if found is None or found.offset != offset:
            there = "nothing" if found is None else found.offset
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{group_id} was set to {offset} of {partition}, but {there} is committed",
            )


async def _check_has_no_members(admin: Admin, group_id: str) -> None:
    try:
        state = (await admin.describe_groups([group_id]))[group_id].state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # these offsets create the group
    if state not in WITHOUT_MEMBERS:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"offsets can only be reset while group {group_id} has no members; it is {state}",
        )
