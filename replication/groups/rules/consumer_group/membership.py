"""The changes that a member's request makes to its group, by either protocol.

    the member of the request ──> enter: what it says of itself, the group epoch
                                  retarget: the target assignment of that epoch
                                  settle: one step of the member towards its target

heartbeat.py (KIP-848) and classic_members.py (JoinGroup) find the member and say who it is now;
both then go these steps. (Kafka: GroupMetadataManager.)
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import ASSIGNORS, Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    ConsumerMember,
    GroupChange,
)
from replication.groups.rules.consumer_group.patterns import InvalidPatternError, Pattern
from replication.groups.rules.consumer_group.reconciliation import reconcile
from replication.groups.rules.consumer_group.records import ConsumerGroupRegularExpressionValue
from replication.groups.rules.consumer_group.target import assign, raise_epoch
from replication.metadata.rules.image import MetadataImage
from storage.attributes import frozen
from storage.types import TopicPartition

NO_LIMIT: Final = 2**31 - 1


class MigrationPolicy(enum.Enum):
    """The directions in which groups with members change their protocol; the words of the key."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@frozen(kw_only=True)
class ConsumerGroupSettings:
    """The limits and defaults of consumer groups on this broker (group.consumer.*)."""

    max_size: int = NO_LIMIT
    classic_max_size: int = NO_LIMIT
    """The most members of a classic group (`group.max.size`): a larger group is not downgraded."""
    assignors: Sequence[str] = tuple(ASSIGNORS)
    """The assignors that members may ask for; the first is the default."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


@frozen
class Conditions:
    """The conditions of a change beside the group itself: metadata, settings, and the wall clock."""

    image: MetadataImage
    settings: ConsumerGroupSettings
    wall_ms: int
    image_changed: bool = True
    """Whether topics may not be what they were at the group epoch."""
    assignment_interval_ms: int = 0
    """The least time between two target assignments of the group."""


@frozen
class Refusal:
    """The error of a request, with the sentence that goes with it."""

    error: ErrorCode
    message: str


def fault_of_size(
    group: ConsumerGroup, member_id: str, settings: ConsumerGroupSettings
) -> Refusal | None:
    """Return the error of a member for whom the group has no room."""
    if len(group.members) < settings.max_size or member_id in group.members:
        return None
    return Refusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
    )


def fault_of_dynamic(group: ConsumerGroup, member_id: str) -> Refusal | None:
    """Return the error of a request by a member id that the group does not have."""
    if member_id in group.members:
        return None
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def fault_of_static(group: ConsumerGroup, instance_id: str, member_id: str) -> Refusal | None:
    """Return the error of a request by an instance id that the group does not have, or that
    belongs to another member.
    """
    present = group.static_member(instance_id)
    if present is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if present.member_id != member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced "
            f"by member {present.member_id}.",
        )
    return None


def replace(change: GroupChange, former: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a static member that comes back its new id; it keeps its target and its partitions."""
    member = attrs.evolve(former, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = change.group.target.get(former.member_id, NO_ASSIGNMENT)
    change.remove_member(former.member_id)
    change.put(member.metadata_value(), member_id)
    change.put_target(member_id, target)
    change.put(member.current_value(), member_id)
    return member


# The steps.


def enter(
    change: GroupChange, before: ConsumerMember, after: ConsumerMember, conditions: Conditions
) -> Refusal | bool:
    """Note what a member says of itself, and raise the group epoch where the group now reads other
    topics; return whether the member's subscription has changed.
    """
    pattern, former = after.topic_regex or "", before.topic_regex or ""
    if pattern and not change.group.readers_of(pattern):
        try:
            Pattern.compile(pattern)
        except InvalidPatternError as error:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
            )
    if after != before or after.member_id not in change.group.members:
        change.put(after.metadata_value(), after.member_id)
    if former in change.group.patterns and not change.group.readers_of(former):
        change.delete(ConsumerGroupRegularExpressionValue, former)
    raises = _asks_for_another_target(change.group, before, after)
    if raises or conditions.image_changed:
        raise_epoch(change, conditions.image, only_if_changed=not raises)
    return after.topic_names != before.topic_names or pattern != former


def _asks_for_another_target(
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> bool:
    """Return whether the member reads other topics than before.

    A pattern that nobody asked for before has no topics yet: they are resolved later, and then the
    group epoch rises.
    """
    if group.epoch == 0 or after.topic_names != before.topic_names:
        return True
    pattern = after.topic_regex or ""
    return pattern != (before.topic_regex or "") and (not pattern or pattern in group.patterns)


def retarget(change: GroupChange, conditions: Conditions) -> None:
    """Make the target assignment of the group epoch, where there is none yet.

    The former one has to be old enough: members that join together are assigned together. One from
    the future says nothing: the clock has gone back, and would hold up the group until it is there.
    """
    group, interval_ms = change.group, conditions.assignment_interval_ms
    is_early = 0 < group.assigned_ms <= conditions.wall_ms < group.assigned_ms + interval_ms
    if group.epoch > group.assignment_epoch and not is_early:
        assign(
            change,
            conditions.image,
            conditions.settings.assignors,
            wall_ms=conditions.wall_ms,
        )


def settle(
    change: GroupChange,
    member_id: str,
    owned: Assignment | None,
    image: MetadataImage,
    *,
    subscription_changed: bool,
) -> ConsumerMember | Refusal:
    """Take a member one step towards its target, and return it as it then is.

    `owned` is what the member says that it has; None where it says nothing.
    """
    group = change.group
    member = group.members[member_id]
    if member.is_reconciled_to(group.assignment_epoch) and not subscription_changed:
        return member
    topics = (image.topics.get(name) for name in group.topics_of(member))
    moved = reconcile(
        member,
        target_epoch=group.assignment_epoch,
        target=group.target.get(member_id, NO_ASSIGNMENT),
        is_owned=lambda topic_id, partition: group.owner(topic_id, partition) is not None,
        owned=owned,
        subscribed=frozenset(each.topic_id for each in topics if each is not None),
        subscription_changed=subscription_changed,
    )
    if moved is None:
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    if moved != member:
        change.put(moved.current_value(), member_id)
    return moved


def fence(change: GroupChange, member_ids: Iterable[str], image: MetadataImage) -> None:
    """Remove members that leave, or that are too late, and raise the group epoch."""
    for member_id in member_ids:
        change.remove_member(member_id)
    for pattern in set(change.group.patterns) - change.group.subscribed_patterns():
        change.delete(ConsumerGroupRegularExpressionValue, pattern)
    raise_epoch(change, image)


# Offsets.


def commit_faults(
    group: ConsumerGroup,
    partitions: Iterable[TopicPartition],
    image: MetadataImage,
    *,
    member_id: str,
    member_epoch: int,
    from_old_client: bool = False,
) -> ErrorCode | dict[TopicPartition, ErrorCode]:
    """Return the error of a commit, or those of single partitions; with neither it may be committed.

    An administrator names no member, and may commit while there are none. A member that has not
    heard of its newest epoch may commit for the partitions that it was given by the epoch that it
    knows (KIP-1251). `from_old_client`: the request cannot carry a member epoch.
    """
    if member_epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if from_old_client and member.classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    stale = _stale(member)
    if member_epoch > member.member_epoch:
        return stale
    faults = {}
    for each in partitions:
        topic = image.topics.get(each.topic)
        known = {} if topic is None else member.epochs.get(topic.topic_id, {})
        if member_epoch < known.get(each.partition, member_epoch + 1):
            faults[each] = stale
    return faults or ErrorCode.NONE


def fetch_fault(group: ConsumerGroup, *, member_id: str, member_epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch by this member at this epoch."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.member_epoch == member_epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    is_consumer = member.classic is None
    return ErrorCode.STALE_MEMBER_EPOCH if is_consumer else ErrorCode.ILLEGAL_GENERATION
