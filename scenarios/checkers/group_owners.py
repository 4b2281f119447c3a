"""Checks of consumer groups (KIP-848): who owns a partition, what is committed, and who waits.

    owned twice       the coordinator gave a partition to a member while another one had it, or had
                      not said yet that it gave it up
    given up early    a member said that it had given a partition up while its program still had it,
                      and the partition went to another member
    taken back        the log of committed offsets goes backwards, and not because the network kept
                      an earlier commit of the group until its member had sent it anew
    left behind       an upgrade lost a member of the classic group
    waiting           some time after the last fault, a member or a partition still waits

The coordinator's log, `__consumer_offsets`, has every change of a group in order, and our members
note what their programs have (`scenarios.world.clients.witness`).

Rule 1: in the log a partition has one owner: from the record that gives it to a member until the
record without it, neither assigned nor pending revocation, or the tombstone of the member.

Rule 2: two programs may have a partition at once only if the first one is out of the group: it was
fenced, or its session has expired, and it has not heard of that. Kafka guarantees no more than that
the coordinator takes nothing from such a member. So if a member begins to read what another one
has, the log shows between the two a tombstone of the first, and not a record in which the first
member stays and has given it up.

Rule 3: a member begins where its group has committed, so what is committed of a partition only
grows. A commit that comes late, after the partition has gone, is refused.

Rule 4: the members of a classic group are those of the consumer group that takes its place, but for
those that had left since the classic group was written. A static member is known by its instance id.

Rule 5: no member waits for ever. Once everything is well, the coordinator comes to know exactly the
members that run, and each of them has what its target assignment says, by the coordinator's state
and by its own; together they have every partition.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from replication.groups.rules.consumer_group.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupEntry,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentTopicPartitions,
)
from replication.groups.rules.records import GroupEntry, GroupMetadataValue, OffsetEntry
from scenarios.world.clients.witness import Began, Happening, Lost
from storage.types import Offset, TopicId, TopicPartition

GroupRecord: TypeAlias = ConsumerGroupEntry | GroupEntry | OffsetEntry
Owned: TypeAlias = frozenset[tuple[TopicId, int]]

_NOTHING_OWNED: Final[Owned] = frozenset()


@attrs.frozen(kw_only=True)
class OwnerChange:
    """A record after which a member has a partition, or has it no more."""

    partition: tuple[TopicId, int]
    member_id: str
    member_epoch: int
    gets: bool
    stays: bool
    """Whether the member is in the group with this record."""


@attrs.frozen(kw_only=True)
class SettlingGroup:
    """A group as its coordinator and the programs of its members have it at one moment."""

    group: str
    state: str
    target: Mapping[str, frozenset[TopicPartition]]
    """The partitions that each member is to have, by its id, as the coordinator says."""
    has: Mapping[str, frozenset[TopicPartition]]
    """The partitions that each running program has, by its id as a member."""
    partitions: frozenset[TopicPartition]
    """The partitions of the topics that the group reads."""


def waiting(group: SettlingGroup) -> Iterator[str]:
    """Yield what members of the group still wait for; nothing once the group is settled."""
    if group.state != "Stable":
        yield f"{group.group} is {group.state}"
    for member_id in sorted(group.target.keys() | group.has.keys()):
        target, has = group.target.get(member_id), group.has.get(member_id)
        if has is None:
            yield f"{group.group} has the member {member_id}, which does not run"
        elif target is None:
            yield f"{member_id} runs, and {group.group} has no such member"
        elif has != target:
            yield f"{member_id} has {_listed(has)}, and its target is {_listed(target)}"
    given = frozenset[TopicPartition]().union(*group.target.values())
    if given != group.partitions:
        yield f"{group.group} has {_listed(given)} in its target, of {_listed(group.partitions)}"


def _listed(partitions: Collection[TopicPartition]) -> str:
    return " ".join(map(str, sorted(partitions))) or "nothing"


def owned_twice(records: Sequence[GroupRecord]) -> Iterator[str]:
    owners: dict[tuple[str, tuple[TopicId, int]], str] = {}
    for group, change in changes_of(records):
        at = (group, change.partition)
        if not change.gets:
            owners.pop(at, None)
        elif owners.setdefault(at, change.member_id) != change.member_id:
            yield (
                f"{group} gave partition {change.partition[1]} to {change.member_id} in epoch "
                f"{change.member_epoch}, which {owners[at]} had"
            )


def changes_of(records: Sequence[GroupRecord]) -> Iterator[tuple[str, OwnerChange]]:
    """Yield each change of an owner in the log, with its group."""
    owned: dict[tuple[str, str], Owned] = {}
    for each in records:
        if (
            not isinstance(each, ConsumerGroupEntry)
            or each.kind is not ConsumerGroupCurrentMemberAssignmentValue
        ):
            continue
        value = each.value
        now, epoch = _NOTHING_OWNED, -1
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            epoch = value.member_epoch
            now = _owned(value.assigned_partitions) | _owned(value.partitions_pending_revocation)
        before = owned.get((each.group_id, each.name), _NOTHING_OWNED)
        owned[each.group_id, each.name] = now
        for partition in sorted(now ^ before):
            yield (
                each.group_id,
                OwnerChange(
                    partition=partition,
                    member_id=each.name,
                    member_epoch=epoch,
                    gets=partition in now,
                    stays=value is not None,
                ),
            )


def _owned(topics: Collection[CurrentTopicPartitions]) -> Owned:
    return frozenset((each.topic_id, number) for each in topics for number in each.partitions)


def given_up_early(
    happened: Sequence[Happening], records: Sequence[GroupRecord], partition: tuple[TopicId, int]
) -> Iterator[str]:
    """Yield the members that said too early that they had given up this partition."""
    changes = [(group, each) for group, each in changes_of(records) if each.partition == partition]
    has: dict[str, Began] = {}
    for each in happened:
        if isinstance(each, Lost):
            has.pop(each.reader, None)
        elif isinstance(each, Began) and each.member_id:
            for other in has.values():
                if other.group == each.group and _said_so(changes, other, each):
                    yield (
                        f"{each.reader} began in epoch {each.member_epoch}, and {other.reader} "
                        f"had it and had said that it had given it up"
                    )
            has[each.reader] = each


def _said_so(changes: Sequence[tuple[str, OwnerChange]], first: Began, second: Began) -> bool:
    """Return whether `first` gave the partition up, and stayed, before it went to `second`."""
    if first.member_id == second.member_id:
        return False
    given = [
        index
        for index, (group, each) in enumerate(changes)
        if (group, each.member_id, each.gets) == (second.group, second.member_id, True)
        and each.member_epoch <= second.member_epoch
    ]
    if not given:
        return False
    before = [each for _, each in changes[: given[-1]] if each.member_id == first.member_id]
    return bool(before) and not before[-1].gets and before[-1].stays


def taken_back(
    records: Sequence[GroupRecord], may_come_late: Collection[str] = ()
) -> Iterator[str]:
    committed: dict[tuple[str, TopicPartition], Offset] = {}
    for each in records:
        if not isinstance(each, OffsetEntry) or each.group in may_come_late:
            continue
        at = (each.group, each.partition)
        offset = -1 if each.value is None else each.value.offset
        if -1 < offset < committed.get(at, -1):
            yield f"{each.group} has committed {committed[at]} of {each.partition}, then {offset}"
        committed[at] = offset


def left_behind(records: Sequence[GroupRecord], left: Collection[str]) -> Iterator[str]:
    """Yield the members that an upgrade has lost; `left` are the ids of those that had left.

    An upgrade writes the tombstone of the classic group, each member, and then the group.
    """
    classic: dict[str, dict[str, str]] = {}
    expected: dict[str, dict[str, str]] = {}
    for each in records:
        match each:
            case GroupEntry(group, GroupMetadataValue() as value):
                classic[group] = {
                    member.group_instance_id or member.member_id: member.member_id
                    for member in value.members
                }
            case GroupEntry(group, None):
                expected[group] = classic.pop(group, {})
            case ConsumerGroupEntry(
                group, _, member_id, ConsumerGroupMemberMetadataValue() as value
            ):
                expected.get(group, {}).pop(value.instance_id or member_id, None)
            case ConsumerGroupEntry(group, _, _, ConsumerGroupMetadataValue()):
                lost = set(expected.pop(group, {}).values()).difference(left)
                yield from (f"{group} lost {member_id}" for member_id in sorted(lost))
            case _:
                pass


def mistakes_in_groups(
    records: Sequence[GroupRecord],
    happened: Mapping[TopicPartition, Sequence[Happening]],
    topic_ids: Mapping[str, TopicId],
    left: Collection[str] = (),
    may_come_late: Collection[str] = (),
) -> list[str]:
    """Return the mistakes in the groups of one partition of `__consumer_offsets`.

    `left` are the ids of the members that have left a classic group, or were removed from it. The
    groups of `may_come_late` have a member from which bytes came late, of a connection that it had
    given up: a coordinator cannot tell such a commit from a new one.
    """
    return [
        *(f"owned twice: {each}" for each in owned_twice(records)),
        *(f"taken back: {each}" for each in taken_back(records, may_come_late)),
        *(f"left behind: {each}" for each in left_behind(records, left)),
        *(
            f"given up early: {partition}: {each}"
            for partition, events in sorted(happened.items())
            if partition.topic in topic_ids
            for each in given_up_early(
                events, records, (topic_ids[partition.topic], partition.partition)
            )
        ),
    ]
