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

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from replication.errors import ErrorCode
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    ConsumerMember,
    GroupChange,
)
from replication.groups.rules.consumer_group.membership import (
    Conditions,
    Refusal,
    enter,
    fault_of_dynamic,
    fault_of_size,
    fault_of_static,
    replace,
    retarget,
    settle,
)
from replication.groups.rules.consumer_group.migration import fence_or_downgrade
from replication.groups.rules.consumer_group.records import ConsumerGroupRegularExpressionValue
from replication.groups.rules.consumer_group.target import raise_epoch
from replication.metadata.rules.image import MetadataImage
from replication.wire.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from storage.attributes import frozen

OWN_MEMBER_ID_SINCE: Final = 1
"""The version of the request from which members make their ids themselves (KIP-1082)."""


@frozen(kw_only=True)
class Caller:
    """The client of a request."""

    client_id: str
    client_host: str


@frozen(kw_only=True)
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
    conditions: Conditions,
) -> Beat | Refusal:
    """Return the response to a valid request, and add to `change` what it changes.

    The group of `change` is an empty one if the member is the first that joins. The member has an
    id: before version 1 the coordinator makes one.
    """
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return _leave(change, request, conditions)
    refusal = fault_of_size(change.group, request.member_id, conditions.settings)
    if refusal is not None:
        return refusal
    owned = _owned(request.topic_partitions)
    member = _find(change.group, request, owned)
    if isinstance(member, Refusal):
        return member
    if member.member_id != request.member_id:
        member = replace(change, member, request.member_id)
    entered = enter(change, member, _updated(member, request, caller), conditions)
    if isinstance(entered, Refusal):
        return entered
    retarget(change, conditions)
    moved = settle(change, member.member_id, owned, conditions.image, subscription_changed=entered)
    if isinstance(moved, Refusal):
        return moved
    return Beat(
        member_id=moved.member_id,
        member_epoch=moved.member_epoch,
        assigned=moved.assigned if _is_full(request) or moved.assigned != member.assigned else None,
    )


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member as it describes itself now."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return attrs.evolve(
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
    known = group.members.get(request.member_id, ConsumerMember(member_id=request.member_id))
    if request.instance_id is None:
        if joins:
            return known
        return (
            fault_of_dynamic(group, request.member_id)
            or _fenced(known, request.member_epoch, owned)
            or known
        )
    present = group.static_member(request.instance_id)
    if joins:
        if present is None:
            return known
        if present.member_epoch != STATIC_LEAVE_EPOCH and present.classic is None:
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot "
                f"join the group because the instance id is owned by {present.member_id} member.",
            )
        return present
    return (
        fault_of_static(group, request.instance_id, request.member_id)
        or _fenced(known, request.member_epoch, owned)
        or known
    )


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


def _newer(said: str | None, known: str | None) -> str | None:
    return known if said is None else said


def _leave(
    change: GroupChange, request: ConsumerGroupHeartbeatRequest, conditions: Conditions
) -> Beat | Refusal:
    group, member_id = change.group, request.member_id
    if request.instance_id is None:
        refusal = fault_of_dynamic(group, member_id)
    else:
        refusal = fault_of_static(group, request.instance_id, member_id)
    if refusal is not None:
        return refusal
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = attrs.evolve(
            group.members[member_id],
            member_epoch=STATIC_LEAVE_EPOCH,
            pending_revocation=NO_ASSIGNMENT,
        ).with_epochs_of({})
        change.put(away.current_value(), member_id)
    else:
        fence_or_downgrade(change, {member_id}, conditions)
    return Beat(member_id=member_id, member_epoch=request.member_epoch)


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
