"""The change of a group with members from one protocol to the other, without a pause (KIP-848).

    upgrade    a consumer joins a classic group whose members use Kafka's embedded protocol:
               generation ─> group epoch, and the members live on as classic members
    downgrade  the last consumer leaves a group that has classic members too:
               group epoch ─> generation, target assignments ─> assignments

Rule: the records of both are in one batch: the old group's tombstones, then the new group. So a
coordinator that reads the log finds one of the two groups.

(Kafka: GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup,
ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, ConsumerGroupMigrationPolicy.)
"""

from collections.abc import Collection
from typing import Final

from replication.errors import ErrorCode, ProtocolError
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerGroup,
    ConsumerMember,
    GroupChange,
)
from replication.groups.rules.consumer_group.membership import Conditions, Refusal, fence
from replication.groups.rules.consumer_group.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from replication.groups.rules.group import Group, GroupState, Member, Protocol
from replication.metadata.rules.image import MetadataImage
from replication.wire import consumer_protocol
from replication.wire.codec import version_of
from replication.wire.consumer_protocol import (
    LATEST_ASSIGNMENT,
    PROTOCOL_TYPE,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

NOT_LOOKED_AT: Final = 0
"""The metadata hash of a group whose target does not come from the topics as they are now.

A classic group may be in a rebalance, without assignments, or its leader may not have heard of new
partitions. Kafka notes the present topics. If the consumer that joins is a static member that comes
back, nothing else raises the epoch there, and what nobody was given stays so.
"""

# Upgrade.


def upgrade(change: GroupChange, classic: Group, conditions: Conditions) -> Refusal | None:
    """Make `change` the consumer group that a classic group with members becomes; or say why it
    cannot become one.
    """
    members, assigned = [], {}
    try:
        why = _bar_to_upgrade(classic, conditions)
        if not why:
            members = [_upgraded(classic, each) for each in classic.members.values()]
            assigned = {
                each.member_id: assigned_in(each.assignment, conditions.image)
                for each in classic.members.values()
            }
    except ProtocolError:
        why = "the embedded consumer protocol is malformed."
    if why:
        return Refusal(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}",
        )
    for member in members:
        change.put(member.metadata_value(), member.member_id)
    change.put(ConsumerGroupMetadataValue(epoch=classic.generation, metadata_hash=NOT_LOOKED_AT))
    for member_id, assignment in assigned.items():
        change.put_target(member_id, assignment)
    change.put(ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=classic.generation))
    for member in members:
        stable = member.having(assigned[member.member_id], classic.generation)
        change.put(stable.current_value(), member.member_id)
    return None


def _bar_to_upgrade(classic: Group, conditions: Conditions) -> str:
    """Return why a group cannot be upgraded, if so; raise ProtocolError for other assignments."""
    if not conditions.settings.migration.upgrades:
        return "online upgrade is disabled."
    if not classic.is_consumers:
        return "the group does not use the consumer embedded protocol."
    if len(classic.members) > conditions.settings.max_size:
        return "the group size exceeds the consumer group maximum size."
    given = [each.assignment for each in classic.members.values() if each.assignment]
    if any(decode_assignment(each).user_data for each in given):
        return (
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade."
        )
    return ""


def _upgraded(classic: Group, member: Member) -> ConsumerMember:
    """Return a classic member as a consumer group knows it; raise ProtocolError if it cannot be read."""
    names = member.protocol_names
    chosen = classic.protocol_name if classic.protocol_name in names else names[0]
    subscription = decode_subscription(member.metadata(chosen))
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(
    session_timeout_ms: int, protocols: Collection[Protocol]
) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=each.name, metadata=each.metadata) for each in protocols
        ],
    )


def assigned_in(assignment: bytes, image: MetadataImage) -> Assignment:
    """Return the partitions of an embedded assignment, by topic id; those of topics that exist."""
    given = decode_assignment(assignment).assigned_partitions if assignment else []
    return by_topic_id(given, image)


def by_topic_id(named: Collection[TopicPartitions], image: MetadataImage) -> Assignment:
    """Return partitions by topic id; those of topics that exist."""
    return {
        image.topics[each.topic].topic_id: frozenset(each.partitions)
        for each in named
        if each.topic in image.topics and each.partitions
    }


# Downgrade.


def fence_or_downgrade(
    change: GroupChange, member_ids: Collection[str], conditions: Conditions
) -> None:
    """Remove members that leave, or that are too late; without consumers the group is classic."""
    group = change.group
    staying = [each for each in group.members.values() if each.member_id not in member_ids]
    if not can_be_classic(staying, conditions):
        fence(change, member_ids, conditions.image)
        return
    change.downgrade(
        downgraded(group, staying, conditions),
        cause=f"Downgrade group {group.group_id} from consumer to classic for member leaving.",
    )


def can_be_classic(members: Collection[ConsumerMember], conditions: Conditions) -> bool:
    """Return whether the group of these members, which has no others, is to become a classic one."""
    settings = conditions.settings
    return (
        bool(members)
        and all(each.classic is not None for each in members)
        and settings.migration.downgrades
        and len(members) <= settings.classic_max_size
    )


def downgraded(
    group: ConsumerGroup, members: Collection[ConsumerMember], conditions: Conditions
) -> Group:
    """Return the classic group of these members: stable, each with its target assignment."""
    classic = Group(
        group.group_id,
        state=GroupState.STABLE,
        state_since_ms=conditions.wall_ms,
        protocol_type=PROTOCOL_TYPE,
        generation=group.epoch,
    )
    for each in members:
        classic.add(_downgraded(each))
    classic.protocol_name = classic.select_protocol()
    classic.note_subscriptions()
    for member in classic.members.values():
        target = group.target.get(member.member_id, NO_ASSIGNMENT)
        member.assignment = embedded(
            target, member.metadata(classic.protocol_name), conditions.image
        )
    return classic


def _downgraded(member: ConsumerMember) -> Member:
    assert member.classic is not None, "a group of classic members is downgraded"
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            Protocol(each.name, each.metadata) for each in member.classic.supported_protocols
        ),
    )


def embedded(assigned: Assignment, subscription: bytes, image: MetadataImage) -> bytes:
    """Return an assignment as a classic member reads it, in the version of its subscription; topics
    that have been deleted are left out.
    """
    topics = [
        TopicPartitions(topic=image.topic_names_by_id[topic_id], partitions=sorted(partitions))
        for topic_id, partitions in assigned.items()
        if topic_id in image.topic_names_by_id
    ]
    version = min(max(version_of(subscription), 0), LATEST_ASSIGNMENT)
    return encode_assignment(consumer_protocol.Assignment(assigned_partitions=topics), version)
