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

from collections.abc import Callable, Iterator

import attrs

from replication.groups.rules.consumer_group.assignors import Assignment
from replication.groups.rules.consumer_group.group import (
    NO_ASSIGNMENT,
    ConsumerMember,
    ConsumerMemberState,
)
from storage.types import TopicId

IsOwned = Callable[[TopicId, int], bool]


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    is_owned: IsOwned,
    owned: Assignment | None,
) -> ConsumerMember | None:
    """Return the member one step further, or as it is; None where it must be fenced.

    `owned` is what the member says that it has; None where it says nothing.
    """
    step = _Step(member, target_epoch, target, is_owned, owned)
    match member.state:
        case ConsumerMemberState.STABLE:
            return member if member.member_epoch == target_epoch else step.take(member.member_epoch)
        case ConsumerMemberState.UNREVOKED_PARTITIONS:
            if step.still_has(member.pending_revocation):
                return member
            return step.take(member.member_epoch + 1)
        case ConsumerMemberState.UNRELEASED_PARTITIONS:
            return step.take(member.member_epoch)
        case ConsumerMemberState.UNKNOWN:
            # A later version has written it: the member has to begin anew, without partitions.
            return None if owned is None or owned else step.take(target_epoch)


@attrs.frozen
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
            (topic_id, frozenset(each for each in partitions if not self.is_owned(topic_id, each)))
            for topic_id, partitions in missing.items()
        )
        if revoked and self.still_has(revoked):
            return self._moved(
                ConsumerMemberState.UNREVOKED_PARTITIONS, member_epoch, kept, pending=revoked
            )
        waits = free != missing
        state = ConsumerMemberState.UNRELEASED_PARTITIONS if waits else ConsumerMemberState.STABLE
        return self._moved(state, self.target_epoch, _plus(kept, free))

    def _moved(
        self,
        state: ConsumerMemberState,
        member_epoch: int,
        assigned: Assignment,
        *,
        pending: Assignment = NO_ASSIGNMENT,
    ) -> ConsumerMember:
        return attrs.evolve(
            self.member,
            state=state,
            member_epoch=member_epoch,
            previous_member_epoch=self.member.member_epoch,
            assigned=assigned,
            pending_revocation=pending,
        )


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
