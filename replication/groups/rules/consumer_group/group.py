"""A consumer group of KIP-848 as a value: what its records in `__consumer_offsets` add up to.

    group epoch        counts what has to be assigned anew: subscriptions, members, topics
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch that a member has come to

         Empty ── a member joins ──> Assigning ── a target is made ──> Reconciling <─┐
           ^                             ^                                  │         │ a target
           │                             └── the group epoch rises ─────────┤         │ is made
           └── the last member leaves ──                                    v         │
                                                                         Stable ──────┘

Rule 1: only `apply` changes a group, and only by a record. So a coordinator that reads the log has
the same group as the one that wrote it.

Rule 2: a partition has one owner, from the record that gives it to a member until the record in
which that member no longer has it, neither assigned nor pending revocation.

Rule 3: a group is not changed before its records are written. A request gets a `GroupChange`: a
copy of the group with the records that it needs. The copy takes the place of the group once they
are in the log, and is dropped if they are not.

The file is long because a group, its members and a change of it have the same parts.
(Kafka: ConsumerGroup, ConsumerGroupMember, GroupMetadataManager.replay.)
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set as AbstractSet
from typing import Final, assert_never

import attrs

from replication.coordinator.rules import KeyAndValue
from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupEntry,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
    record_of,
    tombstone_of,
)
from replication.groups.rules.group import Group
from replication.groups.rules.records import group_record
from replication.wire.consumer_group_heartbeat import LEAVE_EPOCH
from replication.wire.consumer_protocol import PROTOCOL_TYPE
from storage.attributes import define, frozen
from storage.types import TopicId

NO_ASSIGNMENT: Final[Assignment] = {}
DELETED_EPOCH: Final = -1
"""The assignment epoch of a group whose target assignment has been deleted."""


class ConsumerGroupState(enum.Enum):
    """The states of a group; the values are the words in responses. A dead group does not exist."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerMemberState(enum.IntEnum):
    """The progress of a member towards its target assignment; the values are those in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> "ConsumerMemberState":
        """Return the state of a record; UNKNOWN for a number of a later version."""
        return cls(number) if number in set(cls) else cls.UNKNOWN


@frozen(kw_only=True)
class ConsumerMember:
    """A member: what it asked for, and what it has."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """The fields of a member that uses the classic protocol; None for any other."""
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: Assignment = NO_ASSIGNMENT
    pending_revocation: Assignment = NO_ASSIGNMENT
    epochs: Mapping[TopicId, Mapping[int, int]] = attrs.field(factory=dict)
    """The assignment epoch at which it was given each partition of these two (KIP-1251)."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is ConsumerMemberState.STABLE and self.member_epoch == assignment_epoch

    def with_epochs_of(
        self, known: Mapping[TopicId, Mapping[int, int]], given_at: int = 0
    ) -> "ConsumerMember":
        """Return the member with the epochs of `known` for its partitions, and `given_at` for those
        that are not there.
        """
        epochs: dict[TopicId, dict[int, int]] = {}
        for assignment in (self.assigned, self.pending_revocation):
            for topic_id, partitions in assignment.items():
                before = known.get(topic_id, {})
                of_topic = epochs.setdefault(topic_id, {})
                of_topic.update((each, before.get(each, given_at)) for each in partitions)
        return attrs.evolve(self, epochs=epochs)

    def having(self, assigned: Assignment, epoch: int) -> "ConsumerMember":
        """Return the member, stable in this epoch with these partitions."""
        return attrs.evolve(
            self, member_epoch=epoch, previous_member_epoch=epoch, assigned=assigned
        ).with_epochs_of({}, epoch)

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def current_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state.value,
            assigned_partitions=self._current(self.assigned),
            partitions_pending_revocation=self._current(self.pending_revocation),
        )

    def _current(self, assignment: Assignment) -> list[CurrentTopicPartitions]:
        return [
            CurrentTopicPartitions(
                topic_id=topic_id,
                partitions=sorted(partitions),
                assignment_epochs=[self.epochs[topic_id][each] for each in sorted(partitions)],
            )
            for topic_id, partitions in sorted(assignment.items())
        ]

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return attrs.evolve(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        """Return the member with what a record says that it has.

        A partition without an epoch in the record, as Kafka 4.1 writes it, has the member's.
        """
        written = [*value.assigned_partitions, *value.partitions_pending_revocation]
        epochs: dict[TopicId, dict[int, int]] = {}
        for each in written:
            if each.assignment_epochs is not None:
                of_topic = epochs.setdefault(each.topic_id, {})
                of_topic.update(zip(each.partitions, each.assignment_epochs, strict=False))
        return attrs.evolve(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=ConsumerMemberState.of(value.state),
            assigned=_assignment(value.assigned_partitions),
            pending_revocation=_assignment(value.partitions_pending_revocation),
        ).with_epochs_of(epochs, max(value.member_epoch, 0))


@define
class ConsumerGroup:
    """The state of one group; members are in the order in which they joined."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    """A hash of the topics that the group reads, as they were at the group epoch."""
    assignment_epoch: int = 0
    assigned_ms: int = 0
    """When the target assignment was made, by the wall clock; 0 where that is not known."""
    members: dict[str, ConsumerMember] = attrs.field(factory=dict)
    target: dict[str, Assignment] = attrs.field(factory=dict)
    patterns: dict[str, ConsumerGroupRegularExpressionValue] = attrs.field(factory=dict)
    """The topics of each regular expression that has been resolved."""
    has_partition_metadata: bool = False
    """Whether the log has a record of Kafka 4.0 that is to be deleted."""
    _readers: Counter[str] = attrs.field(factory=Counter)
    """How many members are subscribed to each regular expression."""
    _static: dict[str, str] = attrs.field(factory=dict)
    _owners: dict[tuple[TopicId, int], str] = attrs.field(factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member that has this instance id now."""
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """Return the member that has the partition, or has not said yet that it gave it up."""
        return self._owners.get((topic_id, partition))

    @property
    def owned_count(self) -> int:
        """The number of partitions that have an owner."""
        return len(self._owners)

    def readers_of(self, pattern: str) -> int:
        """Return how many members are subscribed to this regular expression."""
        return self._readers[pattern]

    def subscribed_patterns(self) -> AbstractSet[str]:
        return self._readers.keys()

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names that a member subscribed to, with those that its pattern matches."""
        found = self.patterns.get(member.topic_regex or "")
        return member.topic_names if found is None else member.topic_names.union(found.topics)

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset[str]().union(*map(self.topics_of, self.members.values()))

    def supports_classic(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Return whether a classic member with these protocols may join: one of them has to be
        known to every classic member.
        """
        if protocol_type != PROTOCOL_TYPE:
            return False
        common = set(protocols)
        for each in self.members.values():
            if each.classic is not None:
                common &= {protocol.name for protocol in each.classic.supported_protocols}
        return bool(common)

    def copy(self) -> "ConsumerGroup":
        """Return a group that can be changed without this one; members and assignments are frozen."""
        return ConsumerGroup(
            self.group_id,
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assigned_ms,
            dict(self.members),
            dict(self.target),
            dict(self.patterns),
            self.has_partition_metadata,
            Counter(self._readers),
            dict(self._static),
            dict(self._owners),
        )

    # Records.

    def apply(self, entry: ConsumerGroupEntry) -> None:
        """Change the group as a record says; a tombstone of what is not there changes nothing."""
        if entry.value is None:
            self._delete(entry)
            return
        match entry.value:
            case ConsumerGroupMetadataValue():
                self.epoch = entry.value.epoch
                self.metadata_hash = entry.value.metadata_hash
            case ConsumerGroupPartitionMetadataValue():
                self.has_partition_metadata = True
            case ConsumerGroupMemberMetadataValue():
                self._count_readers(self.members.get(entry.name), -1)
                member = self._member(entry.name).with_metadata(entry.value)
                self._count_readers(member, 1)
                self.members[entry.name] = member
                if member.instance_id is not None:
                    self._static[member.instance_id] = entry.name
            case ConsumerGroupTargetAssignmentMetadataValue():
                self.assignment_epoch = entry.value.assignment_epoch
                self.assigned_ms = entry.value.assignment_timestamp
            case ConsumerGroupTargetAssignmentMemberValue():
                self.target[entry.name] = _assignment(entry.value.topic_partitions)
            case ConsumerGroupCurrentMemberAssignmentValue():
                self._assign(self._member(entry.name).with_current(entry.value))
            case ConsumerGroupRegularExpressionValue():
                self.patterns[entry.name] = entry.value
            case never:
                assert_never(never)

    def _delete(self, entry: ConsumerGroupEntry) -> None:
        if entry.kind is ConsumerGroupPartitionMetadataValue:
            self.has_partition_metadata = False
        elif entry.kind is ConsumerGroupMemberMetadataValue:
            self._remove(entry.name)
        elif entry.kind is ConsumerGroupTargetAssignmentMetadataValue:
            self.assignment_epoch = DELETED_EPOCH
        elif entry.kind is ConsumerGroupTargetAssignmentMemberValue:
            self.target.pop(entry.name, None)
        elif entry.kind is ConsumerGroupCurrentMemberAssignmentValue:
            if entry.name in self.members:
                gone = ConsumerGroupCurrentMemberAssignmentValue(
                    member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH
                )
                self._assign(self.members[entry.name].with_current(gone))
        elif entry.kind is ConsumerGroupRegularExpressionValue:
            self.patterns.pop(entry.name, None)

    def _member(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _assign(self, member: ConsumerMember) -> None:
        """Replace a member that has other partitions now.

        In a log that is half compacted a partition can be given to a member before the record in
        which another gave it up: the later record wins.
        """
        self._release(member.member_id)
        self.members[member.member_id] = member
        for each in (member.assigned, member.pending_revocation):
            for topic_id, partitions in each.items():
                for partition in partitions:
                    self._owners[topic_id, partition] = member.member_id

    def _remove(self, member_id: str) -> None:
        self._release(member_id)
        member = self.members.pop(member_id, None)
        self._count_readers(member, -1)
        if member is not None and self._static.get(member.instance_id or "") == member_id:
            del self._static[member.instance_id or ""]

    def _count_readers(self, member: ConsumerMember | None, change: int) -> None:
        pattern = "" if member is None else member.topic_regex or ""
        if pattern:
            self._readers[pattern] += change
            if not self._readers[pattern]:
                del self._readers[pattern]

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for each in (member.assigned, member.pending_revocation):
            for topic_id, partitions in each.items():
                for partition in partitions:
                    if self._owners.get((topic_id, partition)) == member_id:
                        del self._owners[topic_id, partition]


def replay(groups: dict[str, ConsumerGroup], entry: ConsumerGroupEntry) -> None:
    """Change the groups of a log by its next record."""
    group = groups.get(entry.group_id)
    if group is None:
        if entry.value is None:
            return
        group = groups[entry.group_id] = ConsumerGroup(entry.group_id)
    if entry.kind is ConsumerGroupMetadataValue and entry.value is None:
        del groups[entry.group_id]
    else:
        group.apply(entry)


@define(eq=False)
class GroupChange:
    """The records that a request asks for, and the group as it will be with them."""

    group: ConsumerGroup
    """The group as it is; once there are records, a copy to which they have been applied."""
    records: list[KeyAndValue] = attrs.field(factory=list, init=False)
    downgraded: Group | None = attrs.field(default=None, init=False)
    """The classic group that takes the place of this one, once the records are written."""
    rebalance_cause: str = attrs.field(default="", init=False)
    """Why `downgraded` has to rebalance; empty where it need not."""

    def put(self, value: ConsumerGroupValue, name: str = "") -> None:
        """Add a record; `name` is the member or the pattern, if it is of one."""
        self._apply(ConsumerGroupEntry(self.group.group_id, type(value), name, value))
        self.records.append(record_of(self.group.group_id, value, name))

    def delete(self, kind: type[ConsumerGroupValue], name: str = "") -> None:
        """Add a tombstone."""
        self._apply(ConsumerGroupEntry(self.group.group_id, kind, name, None))
        self.records.append(tombstone_of(self.group.group_id, kind, name))

    def _apply(self, entry: ConsumerGroupEntry) -> None:
        if not self.records:
            self.group = self.group.copy()
        self.group.apply(entry)

    def put_target(self, member_id: str, assignment: Assignment) -> None:
        topics = [
            TargetTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
        ]
        self.put(ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics), member_id)

    def remove_member(self, member_id: str) -> None:
        """Delete the three records of a member, in the order in which Kafka does."""
        self.delete(ConsumerGroupCurrentMemberAssignmentValue, member_id)
        self.delete(ConsumerGroupTargetAssignmentMemberValue, member_id)
        self.delete(ConsumerGroupMemberMetadataValue, member_id)

    def downgrade(self, classic: Group, *, cause: str) -> None:
        """Put a classic group in the place of this one, which rebalances if there is a `cause`."""
        self.delete_group()
        self.records.append(group_record(classic.group_id, classic.value()))
        self.downgraded, self.rebalance_cause = classic, cause

    def delete_group(self) -> None:
        """Delete every record of the group."""
        group = self.group
        for kind, names in (
            (ConsumerGroupCurrentMemberAssignmentValue, list(group.members)),
            (ConsumerGroupTargetAssignmentMemberValue, list(group.target)),
            (ConsumerGroupTargetAssignmentMetadataValue, [""]),
            (ConsumerGroupMemberMetadataValue, list(group.members)),
            (ConsumerGroupRegularExpressionValue, list(group.patterns)),
            (ConsumerGroupPartitionMetadataValue, [""]),
            (ConsumerGroupMetadataValue, [""]),
        ):
            for name in names:
                self.delete(kind, name)


def _assignment(
    topics: Iterable[TargetTopicPartitions | CurrentTopicPartitions],
) -> Mapping[TopicId, frozenset[int]]:
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}
