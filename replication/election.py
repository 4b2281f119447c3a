"""Who may lead next, and what the ISR is then (PartitionChangeBuilder, KIP-631, KIP-841).

    clean       the present leader if it still may; else the first replica, in assignment
                order, that is in the ISR and active
    unclean     only where the topic says so: the first active replica; the ISR is then that
                replica alone, because nobody knows what the others hold, and the leader
                counts as recovering until it says otherwise
    offline     nobody may: the leader is -1, the ISR stays as it was

Rule 1: the ISR never becomes empty. Its last member stays in it, fenced or not, because it
alone is known to hold every committed record, and it leads again when it comes back.

Rule 2: a leader is named in a change only where it differs from the present one, for naming
one bumps the leader epoch. An ISR that only shrinks keeps its leader and its leader epoch.

    isr {1,2,3} leader 1, broker 1 fenced   ->  isr {2,3} leader 2   leader epoch + 1
    isr {1,2,3} leader 1, broker 3 fenced   ->  isr {1,2}            leader epoch as it was
    isr {1}     leader 1, broker 1 fenced   ->  isr {1}   leader -1  leader epoch + 1
"""

import enum
from collections.abc import Callable

import attrs

from replication.metadata import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRegistration,
)
from storage.types import TopicId


class ElectionCause(enum.Enum):
    CLEAN = "clean"
    UNCLEAN = "unclean"
    OFFLINE = "offline"


@attrs.frozen
class Election:
    """A partition's new leader (NO_LEADER for none) and ISR; `cause` is None where the
    leader is the one it had.
    """

    leader: int
    isr: tuple[int, ...]
    cause: ElectionCause | None = None


def elect(
    partition: PartitionRegistration,
    *,
    is_active: Callable[[int], bool],
    leaving: int | None = None,
    unclean: bool = False,
) -> Election:
    """Elect after `leaving`, if any, has dropped out. `is_active` says who may lead: registered,
    not fenced, not shutting down; what it says of `leaving` does not matter.
    """

    def may_lead(replica: int) -> bool:
        return replica != leaving and is_active(replica)

    left = tuple(replica for replica in partition.isr if replica != leaving)
    isr = left or partition.isr
    if partition.leader in left and may_lead(partition.leader):
        return Election(partition.leader, isr)
    for replica in partition.replicas:
        if replica in left and may_lead(replica):
            return Election(replica, isr, ElectionCause.CLEAN)
    if unclean:
        for replica in partition.replicas:
            if may_lead(replica):
                return Election(replica, (replica,), ElectionCause.UNCLEAN)
    cause = None if partition.leader == NO_LEADER else ElectionCause.OFFLINE
    return Election(NO_LEADER, isr, cause)


def change_record(
    partition: PartitionRegistration, election: Election, *, topic_id: TopicId, number: int
) -> PartitionChangeRecord | None:
    """What the log must say for `election` to hold; None where nothing changes."""
    recovering = (
        election.cause is ElectionCause.UNCLEAN
        and partition.leader_recovery_state is not LeaderRecoveryState.RECOVERING
    )
    record = PartitionChangeRecord(
        topic_id=topic_id,
        partition=number,
        isr=election.isr if election.isr != partition.isr else None,
        leader=election.leader if election.leader != partition.leader else None,
        leader_recovery_state=LeaderRecoveryState.RECOVERING if recovering else None,
    )
    return None if record == PartitionChangeRecord(topic_id, number) else record
