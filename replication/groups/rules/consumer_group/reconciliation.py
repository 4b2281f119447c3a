"""A member's way to its target assignment: it revokes first, and receives what others released.

    has = assigned            target
    ┌──────────────┐
    │ to revoke │ keeps │ to add: free now, or still owned by another member │
                └────────────────────────────────────────────────────────────┘

    STABLE ── a new target ──> UNREVOKED_PARTITIONS    keeps its epoch until it has given up
                    │                   │ it reports that it no longer has them
                    v                   v
               UNRELEASED_PARTITIONS <──┘              has its target's epoch, and waits
                    │ the others have released
                    v
                  STABLE

Rule: a member receives a partition only while nobody owns it. So no partition has two owners, and
a member that revokes nothing reads on all the while.

(Kafka: CurrentAssignmentBuilder.)
"""

from collections.abc import Callable, Collection, Iterator

import attrs

from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerMember,
    ConsumerMemberState,
)
from storage.attributes import frozen
from storage.types import TopicId

IsOwned = Callable[[TopicId, int], bool]


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    is_owned: IsOwned,
    owned: Assignment | None,
    subscribed: Collection[TopicId],
    subscription_changed: bool = False,
) -> ConsumerMember | None:
    """Return the member one step further, or as it is; None where it must be fenced.

    `owned` is what the member says that it has; None where it says nothing. It gets no partition
    of a topic that is not among the `subscribed` ones, and gives those up that it has.
    """
    wanted = _without_empty((each, target[each]) for each in target if each in subscribed)
    step = _Step(member, target_epoch, wanted, is_owned, owned)
    match member.state:
        case ConsumerMemberState.STABLE:
            if member.member_epoch != target_epoch:
                return step.take(member.member_epoch)
            return step.unsubscribe(subscribed) if subscription_changed else member
        case ConsumerMemberState.UNREVOKED_PARTITIONS:
            if step.still_has(member.pending_revocation):
                return step.unsubscribe(subscribed) if subscription_changed else member
            return step.take(member.member_epoch)
        case ConsumerMemberState.UNRELEASED_PARTITIONS:
            return step.take(member.member_epoch)
        case ConsumerMemberState.UNKNOWN:
            # A later version has written it: the member has to begin anew, without partitions.
            return None if owned is None or owned else step.take(target_epoch)


@frozen
class _Step:
    member: ConsumerMember
    target_epoch: int
    target: Assignment
    is_owned: IsOwned
    owned: Assignment | None

    def still_has(self, revoked: Assignment) -> bool:
        """Return whether the member may have one of these; it may, if it has not said."""
        if self.owned is None:
            return True
        return any(
            not partitions.isdisjoint(revoked.get(topic_id, frozenset()))
            for topic_id, partitions in self.owned.items()
        )

    def take(self, member_epoch: int) -> ConsumerMember:
        """Return the member after one step; it had come to `member_epoch`."""
        had = self.member.assigned
        kept = _without_empty(
            (topic_id, partitions & self.target.get(topic_id, frozenset()))
            for topic_id, partitions in had.items()
        )
        revoked = _minus(had, kept)
        missing = _minus(self.target, kept)
        free = _without_empty(
            (topic_id, frozenset(each for each in partitions if self._is_free(topic_id, each)))
            for topic_id, partitions in missing.items()
        )
        if revoked and self.still_has(revoked):
            return self._moved(
                ConsumerMemberState.UNREVOKED_PARTITIONS, member_epoch, kept, pending=revoked
            )
        waits = free != missing
        state = ConsumerMemberState.UNRELEASED_PARTITIONS if waits else ConsumerMemberState.STABLE
        return self._moved(state, self.target_epoch, _plus(kept, free))

    def unsubscribe(self, subscribed: Collection[TopicId]) -> ConsumerMember:
        """Return the member without the topics that it no longer reads, in the epoch that it has."""
        member = self.member
        gone = _without_empty(
            (each, partitions)
            for each, partitions in member.assigned.items()
            if each not in subscribed
        )
        if not gone:
            return member
        kept = _minus(member.assigned, gone)
        pending = _plus(member.pending_revocation, gone)
        revokes = self.still_has(pending)
        return self._moved(
            ConsumerMemberState.UNREVOKED_PARTITIONS if revokes else member.state,
            member.member_epoch,
            kept,
            pending=pending if revokes else member.pending_revocation,
        )

    def _is_free(self, topic_id: TopicId, partition: int) -> bool:
        """Return whether nobody else has the partition; the member may be about to give it up."""
        is_mine = partition in self.member.pending_revocation.get(topic_id, frozenset())
        return is_mine or not self.is_owned(topic_id, partition)

    def _moved(
        self,
        state: ConsumerMemberState,
        member_epoch: int,
        assigned: Assignment,
        *,
        pending: Assignment = NO_ASSIGNMENT,
    ) -> ConsumerMember:
        # A partition that was to be revoked, and is given back, counts as given now.
        had = attrs.evolve(self.member, pending_revocation=NO_ASSIGNMENT)
        kept = had if pending is NO_ASSIGNMENT else self.member
        epochs = kept.with_epochs_of(self.member.epochs).epochs
        return attrs.evolve(
            self.member,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member.member_epoch,
            assigned=assigned,
            pending_revocation=pending,
        ).with_epochs_of(epochs, self.target_epoch)


def _without_empty(topics: Iterator[tuple[TopicId, frozenset[int]]]) -> Assignment:
    return {topic_id: partitions for topic_id, partitions in topics if partitions}


def _minus(left: Assignment, right: Assignment) -> Assignment:
    return _without_empty(
        (topic_id, partitions - right.get(topic_id, frozenset()))
        for topic_id, partitions in left.items()
    )


def _plus(left: Assignment, right: Assignment) -> Assignment:
    return {
        topic_id: left.get(topic_id, frozenset()) | right.get(topic_id, frozenset())
        for topic_id in left.keys() | right.keys()
    }
