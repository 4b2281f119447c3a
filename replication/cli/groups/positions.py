"""How far a group has read each partition, and which member reads it.

There is a position for each partition with a committed offset or an assigned member, and one for
each member without partitions.
"""

from collections.abc import Iterable

import attrs

from replication.client.admin import Admin
from replication.client.admin.values import GroupDescription, GroupMember
from replication.client.offsets import OffsetAndMetadata
from replication.errors import KafkaError, ProtocolError
from replication.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, partitions_of
from replication.wire.list_offsets import LATEST
from storage.types import NO_LEADER_EPOCH, TopicPartition


@attrs.frozen(kw_only=True)
class GroupPosition:
    """The position of a group in one partition; None means unknown or absent."""

    group: str
    topic: str | None = None
    partition: int | None = None
    leader_epoch: int | None = None
    """The leader epoch of the record before the offset, if the committer knew it."""
    current_offset: int | None = None
    log_end_offset: int | None = None
    reader: GroupMember | None = None

    @property
    def lag(self) -> int | None:
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset


@attrs.frozen
class GroupPositions:
    """A group, and its position in each partition."""

    group: GroupDescription
    positions: tuple[GroupPosition, ...]


async def describe(admin: Admin, group_id: str) -> GroupPositions:
    """Return a group and its positions; raise KafkaError if there is no such group."""
    group = (await admin.describe_groups([group_id]))[group_id]
    committed = await admin.list_group_offsets(group_id)
    readers = {
        partition: member for member in group.members for partition in assigned(group, member)
    }
    partitions = sorted({*committed, *readers})
    ends = await log_ends(admin, partitions)
    positions = [
        GroupPosition(
            group=group_id,
            topic=each.topic,
            partition=each.partition,
            leader_epoch=_epoch(committed.get(each)),
            current_offset=committed[each].offset if each in committed else None,
            log_end_offset=ends.get(each),
            reader=readers.get(each),
        )
        for each in partitions
    ]
    idle = [member for member in group.members if member not in readers.values()]
    positions += [GroupPosition(group=group_id, reader=member) for member in idle]
    return GroupPositions(group, tuple(positions))


def _epoch(committed: OffsetAndMetadata | None) -> int | None:
    if committed is None or committed.leader_epoch == NO_LEADER_EPOCH:
        return None
    return committed.leader_epoch


def assigned(group: GroupDescription, member: GroupMember) -> list[TopicPartition]:
    """Return the partitions of a member; none if its assignment is not the consumer protocol's."""
    if group.protocol_type != PROTOCOL_TYPE or not member.assignment:
        return []
    try:
        return partitions_of(decode_assignment(member.assignment).assigned_partitions)
    except ProtocolError:
        return []


async def log_ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets of the partitions that exist and have a leader."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    found: dict[TopicPartition, int] = {}
    for wanted in by_topic.values():
        try:
            listed = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
        except KafkaError:
            continue  # a deleted topic must not hide the others
        found |= {partition: each.offset for partition, each in listed.items()}
    return found
