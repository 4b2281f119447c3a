"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, or leaves.

    request ──> is it valid? ──> whose is it? ──> 1. the member as it is now, the group epoch
                                                  2. the target assignment of that epoch
                                                  3. one step of the member towards its target
            <── the member's epoch, and its partitions if they are others

Rule 1: a member whose epoch is not the coordinator's is fenced. One epoch back is forgiven while it
has no more than it was given: its response may have been lost.

Rule 2: an error changes nothing: the change that was begun is dropped.

(Kafka: GroupMetadataManager.consumerGroupHeartbeat, GroupCoordinatorService; KIP-848, KIP-1082.)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
from replication.wire.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)

OWN_MEMBER_ID_SINCE: Final = 1
"""The version of the request from which members make their ids themselves (KIP-1082)."""
NO_LIMIT: Final = 2**31 - 1


@attrs.frozen(kw_only=True)
class ConsumerGroupSettings:
    """The limits and defaults of consumer groups on this broker (group.consumer.*)."""

    max_size: int = NO_LIMIT
    assignors: Sequence[str] = tuple(ASSIGNORS)
    """The assignors that members may ask for; the first is the default."""
    heartbeat_interval_ms: int = 5_000


@attrs.frozen(kw_only=True)
class Caller:
    """The client of a request."""

    client_id: str
    client_host: str


@attrs.frozen
class Refusal:
    """The error of a request, with the sentence that goes with it."""

    error: ErrorCode
    message: str


@attrs.frozen(kw_only=True)
class Beat:
    """The response to a heartbeat; `assigned` is None where it has not changed."""

    member_id: str
    member_epoch: int
    assigned: Assignment | None = None


def fault_in(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str]
) -> Refusal | None:
    """Return what is wrong with a request, whatever the group is."""
    epoch = request.member_epoch
    named = version >= OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
    texts = {
        "MemberId": request.member_id if named else None,
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    empty = next(
        (each for each, text in texts.items() if text is not None and not text.strip()), ""
    )
    wrong = ""
    if empty:
        wrong = f"{empty} can't be empty."
    elif epoch == JOIN_EPOCH:
        wrong = _fault_in_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        wrong = "MemberEpoch is invalid."
    if wrong:
        return Refusal(ErrorCode.INVALID_REQUEST, wrong)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    return None


def _fault_in_join(request: ConsumerGroupHeartbeatRequest) -> str:
    if request.rebalance_timeout_ms == UNCHANGED:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when joining."
    return ""


def heartbeat(
    change: GroupChange,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    image: MetadataImage,
    settings: ConsumerGroupSettings,
    *,
    image_changed: bool,
) -> Beat | Refusal:
    """Return the response to a valid request, and add to `change` what it changes.

    `image_changed` says that topics may not be what they were at the group epoch. The group of
    `change` is an empty one if the member is the first that joins. The member has an id: before
    version 1 the coordinator makes one.
    """
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return _leave(change, request, image)
    group = change.group
    if len(group.members) >= settings.max_size and request.member_id not in group.members:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    owned = _owned(request.topic_partitions)
    member = _find(group, request, owned)
    if isinstance(member, Refusal):
        return member
    if member.member_id != request.member_id:
        member = _replaced(change, member, request.member_id)
    before = member
    group = change.group
    if (refusal := _update(change, member, request, caller)) is not None:
        return refusal
    raises = _asks_for_another_target(group, member, change.group.members[request.member_id])
    if raises or image_changed:
        raise_epoch(change, image, only_if_changed=not raises)
    if change.group.epoch > change.group.assignment_epoch:
        assign(change, image, settings.assignors)
    member = change.group.members[request.member_id]
    moved = _moved(change.group, member, owned)
    if moved is None:
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    if moved != member:
        change.put(moved.current_value(), moved.member_id)
    return Beat(
        member_id=moved.member_id,
        member_epoch=moved.member_epoch,
        assigned=moved.assigned if _is_full(request) or moved.assigned != before.assigned else None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the member says everything: it joins, or it has lost a response."""
    subscribes = (request.subscribed_topic_names, request.subscribed_topic_regex) != (None, None)
    says_all = request.rebalance_timeout_ms != UNCHANGED and request.topic_partitions is not None
    return request.member_epoch == JOIN_EPOCH or (says_all and subscribes)


def _owned(topics: Iterable[HeartbeatTopicPartitions] | None) -> Assignment | None:
    if topics is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def _find(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Assignment | None
) -> ConsumerMember | Refusal:
    """Return the member of a request; a new one, or one that is to be replaced, if it joins."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            if joins:
                return ConsumerMember(member_id=request.member_id)
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {group.group_id}.",
            )
        return _fenced(member, request.member_epoch, owned) or member
    present = group.static_member(request.instance_id)
    if joins:
        if present is None:
            return group.members.get(request.member_id, ConsumerMember(member_id=request.member_id))
        if present.member_epoch != STATIC_LEAVE_EPOCH and present.classic is None:
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot "
                f"join the group because the instance id is owned by {present.member_id} member.",
            )
        return present
    if (refusal := _fault_of_static(present, request)) is not None:
        return refusal
    assert present is not None, "a static member without a fault is there"
    return _fenced(present, request.member_epoch, owned) or present


def _fault_of_static(
    present: ConsumerMember | None, request: ConsumerGroupHeartbeatRequest
) -> Refusal | None:
    if present is None:
        return Refusal(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
        )
    if present.member_id != request.member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced "
            f"by member {present.member_id}.",
        )
    return None


def _fenced(member: ConsumerMember, epoch: int, owned: Assignment | None) -> Refusal | None:
    """Return the error of a member that comes with another epoch than the coordinator's."""
    if epoch == member.member_epoch:
        return None
    is_late = epoch == member.previous_member_epoch and _is_part(owned, member.assigned)
    if epoch < member.member_epoch and is_late:
        return None
    than = "greater" if epoch > member.member_epoch else "smaller"
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.member_epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def _is_part(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items()
    )


def _replaced(change: GroupChange, former: ConsumerMember, member_id: str) -> ConsumerMember:
    """Give a static member that comes back its new id; it keeps its target and its partitions."""
    member = attrs.evolve(former, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = change.group.target.get(former.member_id, NO_ASSIGNMENT)
    change.remove_member(former.member_id)
    change.put(member.metadata_value(), member_id)
    change.put_target(member_id, target)
    change.put(member.current_value(), member_id)
    return member


def _update(
    change: GroupChange,
    member: ConsumerMember,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
) -> Refusal | None:
    """Note what the member says of itself."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    updated = attrs.evolve(
        member,
        instance_id=_newer(request.instance_id, member.instance_id),
        rack_id=_newer(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        assignor=_newer(request.server_assignor, member.assignor),
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=_newer(request.subscribed_topic_regex, member.topic_regex),
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    pattern = updated.topic_regex or ""
    if pattern and not change.group.readers_of(pattern):
        try:
            Pattern.compile(pattern)
        except InvalidPatternError as error:
            return Refusal(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
            )
    if updated != member or updated.member_id not in change.group.members:
        change.put(updated.metadata_value(), updated.member_id)
    former = member.topic_regex or ""
    if former in change.group.patterns and not change.group.readers_of(former):
        change.delete(ConsumerGroupRegularExpressionValue, former)
    return None


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


def _newer(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def _moved(
    group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None
) -> ConsumerMember | None:
    if member.is_reconciled_to(group.assignment_epoch):
        return member
    return reconcile(
        member,
        target_epoch=group.assignment_epoch,
        target=group.target.get(member.member_id, NO_ASSIGNMENT),
        is_owned=lambda topic_id, partition: group.owner(topic_id, partition) is not None,
        owned=owned,
    )


def _leave(
    change: GroupChange, request: ConsumerGroupHeartbeatRequest, image: MetadataImage
) -> Beat | Refusal:
    group = change.group
    if request.instance_id is None:
        if request.member_id not in group.members:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {group.group_id}.",
            )
        fence(change, [request.member_id], image)
    else:
        member = group.static_member(request.instance_id)
        refusal = _fault_of_static(member, request)
        if refusal is not None:
            return refusal
        assert member is not None, "a static member without a fault is there"
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            away = attrs.evolve(
                member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_ASSIGNMENT
            )
            change.put(away.current_value(), away.member_id)
        else:
            fence(change, [member.member_id], image)
    return Beat(member_id=request.member_id, member_epoch=request.member_epoch)


def fence(change: GroupChange, member_ids: Iterable[str], image: MetadataImage) -> None:
    """Remove members that leave, or that are too late, and raise the group epoch."""
    for member_id in member_ids:
        change.remove_member(member_id)
    for pattern in set(change.group.patterns) - change.group.subscribed_patterns():
        change.delete(ConsumerGroupRegularExpressionValue, pattern)
    raise_epoch(change, image)


def note_topics(
    change: GroupChange,
    found: Mapping[str, ConsumerGroupRegularExpressionValue],
    image: MetadataImage,
) -> None:
    """Note the topics of patterns; the group epoch rises if the group still asks for them, and
    they are others than before.
    """
    raises = False
    asked = change.group.subscribed_patterns()
    for pattern, value in found.items():
        if pattern in asked:
            former = change.group.patterns.get(pattern)
            raises |= set(value.topics) != set(() if former is None else former.topics)
            change.put(value, pattern)
    raise_epoch(change, image, only_if_changed=not raises)


def commit_fault(group: ConsumerGroup, *, member_id: str, member_epoch: int) -> ErrorCode:
    """Return the error of an OffsetCommit; NONE where it may be committed.

    An administrator names no member, and may commit while there are none.
    """
    if member_epoch < 0 and not group.members:
        return ErrorCode.NONE
    return member_fault(group, member_id=member_id, member_epoch=member_epoch)


def member_fault(group: ConsumerGroup, *, member_id: str, member_epoch: int) -> ErrorCode:
    """Return the error of a request of this member at this epoch (ConsumerGroup)."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.member_epoch == member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
