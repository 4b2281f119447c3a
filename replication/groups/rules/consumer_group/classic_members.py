"""The requests of classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    JoinGroup   says what it reads and what it has: the coordinator assigns, and answers at once
    SyncGroup   returns its partitions, encoded as an assignment of the embedded protocol
    Heartbeat   tells it to join again when it has partitions to give up, or can have more
    LeaveGroup  removes members of either kind

Rule 1: a classic member's generation is its member epoch. It moves on only by JoinGroup, in which it
says what it has; so it revokes with one JoinGroup and receives with the next.

Rule 2: a static member may come back with the other protocol; if it was the last consumer, the group
becomes a classic one.

(Kafka: GroupMetadataManager.classicGroupJoinToConsumerGroup and its brothers.)
"""

from collections.abc import Collection, Iterable

import attrs

from replication.errors import ErrorCode, ProtocolError
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    GroupChange,
)
from replication.groups.rules.consumer_group.membership import (
    Conditions,
    MigrationPolicy,
    Refusal,
    enter,
    fault_of_dynamic,
    fault_of_size,
    fault_of_static,
    replace,
    retarget,
    settle,
)
from replication.groups.rules.consumer_group.migration import (
    by_topic_id,
    can_be_classic,
    classic_metadata,
    downgraded,
    embedded,
    fence_or_downgrade,
)
from replication.groups.rules.effects import NO_MEMBER_ID, JoinResult, SyncResult
from replication.groups.rules.joining import Join
from replication.metadata.rules.image import MetadataImage
from replication.wire.consumer_protocol import PROTOCOL_TYPE, Subscription, decode_subscription


def join(change: GroupChange, request: Join, conditions: Conditions) -> JoinResult | Refusal:
    """Return the answer to a JoinGroup, and add to `change` what it changes.

    `request` names the member; `new_member_id` counts where it does not.
    """
    member_id = request.member_id or request.new_member_id
    refusal = _refusal(change.group, request, member_id, conditions)
    if refusal is not None:
        return refusal
    if request.must_know_its_id and request.member_id == NO_MEMBER_ID:
        return JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    try:
        subscription = decode_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"a malformed subscription: {error}")
    was_consumer = _replaces_consumer(change.group, request)
    member = _find(change, request, member_id)
    if isinstance(member, Refusal):
        return member
    entered = enter(change, member, _updated(member, request, subscription), conditions)
    if isinstance(entered, Refusal):
        return entered
    members = change.group.members.values()
    downgrades = was_consumer and can_be_classic(members, conditions)
    is_behind = change.group.epoch > change.group.assignment_epoch
    moved: ConsumerMember | Refusal = change.group.members[member_id]
    if not downgrades:
        retarget(change, conditions)
    if not (downgrades and is_behind):
        owned = by_topic_id(subscription.owned_partitions, conditions.image)
        moved = settle(change, member_id, owned, conditions.image, subscription_changed=entered)
    if isinstance(moved, Refusal):
        return moved
    if downgrades:
        classic = downgraded(change.group, change.group.members.values(), conditions)
        why = "with stale assignment" if is_behind else "in which nobody knows that it leads"
        cause = f"Downgrade group {classic.group_id} from consumer to classic {why}."
        change.downgrade(classic, cause=cause)
    return JoinResult(
        member_id=member_id,
        generation=moved.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )


def _refusal(
    group: ConsumerGroup, request: Join, member_id: str, conditions: Conditions
) -> Refusal | None:
    if conditions.settings.migration is MigrationPolicy.DISABLED:
        return Refusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because "
            "the group migration is disabled.",
        )
    if (refusal := fault_of_size(group, member_id, conditions.settings)) is not None:
        return refusal
    if not group.supports_classic(request.protocol_type, [each.name for each in request.protocols]):
        return Refusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )
    return None


def _replaces_consumer(group: ConsumerGroup, request: Join) -> bool:
    """Return whether the member's instance id belongs to a member that uses the new protocol."""
    instance = request.group_instance_id
    present = None if instance is None else group.static_member(instance)
    return present is not None and present.classic is None


def _find(change: GroupChange, request: Join, member_id: str) -> ConsumerMember | Refusal:
    """Return the member of a request, under its new id where it replaces a static one."""
    group, instance = change.group, request.group_instance_id
    known = group.members.get(member_id, ConsumerMember(member_id=member_id))
    if instance is None:
        return known
    if request.member_id != NO_MEMBER_ID:
        return fault_of_static(group, instance, member_id) or known
    present = group.static_member(instance)
    return known if present is None else replace(change, present, member_id)


def _updated(member: ConsumerMember, request: Join, subscription: Subscription) -> ConsumerMember:
    return attrs.evolve(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=classic_metadata(request.session_timeout_ms, request.protocols),
    )


# A member that has joined.


def _fault_of(
    group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode:
    """Return the error of a request of a classic member; NONE where it is one, in its generation."""
    if group_instance_id is None:
        refusal = fault_of_dynamic(group, member_id)
    else:
        refusal = fault_of_static(group, group_instance_id, member_id)
    if refusal is not None:
        return refusal.error
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.member_epoch == generation else ErrorCode.ILLEGAL_GENERATION


def sync(
    group: ConsumerGroup,
    image: MetadataImage,
    *,
    member_id: str,
    group_instance_id: str | None,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
) -> SyncResult:
    """Return the partitions of a member, as its JoinGroup has settled them."""
    error = _fault_of(group, member_id, group_instance_id, generation)
    if error is not ErrorCode.NONE:
        return SyncResult(error=error)
    member = group.members[member_id]
    assert member.classic is not None, "a member without a fault uses the classic protocol"
    protocol = member.classic.supported_protocols[0]
    if protocol_type not in (None, PROTOCOL_TYPE) or protocol_name not in (None, protocol.name):
        return SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_revoking = member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
    if group.assignment_epoch > member.member_epoch and not is_revoking:
        return SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncResult(
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignment=embedded(member.assigned, protocol.metadata, image),
    )


def heartbeat(
    group: ConsumerGroup, *, member_id: str, group_instance_id: str | None, generation: int
) -> ErrorCode:
    """Return the answer to a Heartbeat; REBALANCE_IN_PROGRESS where the member has to join again."""
    error = _fault_of(group, member_id, group_instance_id, generation)
    if error is not ErrorCode.NONE:
        return error
    member = group.members[member_id]
    is_revoking = member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
    may_have_all = (
        member.state is ConsumerMemberState.UNRELEASED_PARTITIONS
        and not _waits_for_others(group, member)
    )
    is_behind = member.member_epoch < group.assignment_epoch
    rejoins = is_behind or is_revoking or may_have_all
    return ErrorCode.REBALANCE_IN_PROGRESS if rejoins else ErrorCode.NONE


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether another member still has a partition of this one's target."""
    return any(
        group.owner(topic_id, partition) is not None
        for topic_id, partitions in group.target.get(member.member_id, NO_ASSIGNMENT).items()
        for partition in partitions - member.assigned.get(topic_id, frozenset())
    )


def leave(
    change: GroupChange, leaving: Iterable[tuple[str, str | None]], conditions: Conditions
) -> list[ErrorCode]:
    """Remove members by member id, instance id, or both; return the error of each."""
    errors: list[ErrorCode] = []
    gone: set[str] = set()
    for member_id, instance in leaving:
        found, error = _leaver(change.group, member_id, instance)
        errors.append(error)
        gone.update(found)
    if gone:
        fence_or_downgrade(change, gone, conditions)
    return errors


def _leaver(
    group: ConsumerGroup, member_id: str, instance: str | None
) -> tuple[Collection[str], ErrorCode]:
    """Return the member that leaves, if there is one, and the error of its part of the request.

    An administrator names only the instance id.
    """
    if instance is None:
        refusal = fault_of_dynamic(group, member_id)
    else:
        present = group.static_member(instance)
        if member_id == NO_MEMBER_ID and present is not None:
            member_id = present.member_id
        refusal = fault_of_static(group, instance, member_id)
    return ([member_id], ErrorCode.NONE) if refusal is None else ([], refusal.error)
