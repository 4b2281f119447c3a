"""A partition moves to other brokers while it is led and written (KIP-455).

    wanted       {1,2,3} -> {4,5,3}
    begin        replicas 4,5,3,1,2   adding 4,5   removing 1,2     4 and 5 start to follow
    complete     replicas 4,5,3                                     once 4, 5 and 3 are in sync
    cancel       replicas 3,1,2                                     4 and 5 are dropped

Rule 1: wanted replicas come first, so that the first of them is the preferred leader.

Rule 2: `adding` are the brokers that held no replica when the first of several reassignments began, so
that a cancel leads back to the beginning, however often the target was changed meanwhile.
Kafka forgets the beginning with the second target that adds a replica
(ReplicationControlManager.changePartitionReassignment).

(PartitionReassignmentReplicas, PartitionReassignmentRevert.)
"""

from collections.abc import Iterable

import attrs

from replication.metadata.rules.image import PartitionRegistration


def is_reassigned(partition: PartitionRegistration) -> bool:
    return bool(partition.adding or partition.removing)


def begun(partition: PartitionRegistration, target: Iterable[int]) -> PartitionRegistration:
    """Return the partition on the way to `target`, which names each replica once."""
    wanted = tuple(target)
    original = _without(partition.replicas, partition.adding)
    removing = _without(partition.replicas, wanted)
    replicas = wanted + removing
    return attrs.evolve(
        partition, replicas=replicas, adding=_without(replicas, original), removing=removing
    )


def completed(partition: PartitionRegistration) -> PartitionRegistration:
    """Return the partition without the removed replicas, once all that stay are in sync."""
    replicas = _without(partition.replicas, partition.removing)
    if not is_reassigned(partition) or not replicas or not set(replicas) <= set(partition.isr):
        return partition
    isr = _without(partition.isr, partition.removing)
    return attrs.evolve(partition, replicas=replicas, isr=isr, adding=(), removing=())


def cancelled(partition: PartitionRegistration) -> PartitionRegistration:
    """Return the partition as it was before the reassignment.

    Its ISR and ELR are empty where only new replicas were in them: the next leader may then lack
    records that were committed since.
    """
    return attrs.evolve(
        partition,
        replicas=_without(partition.replicas, partition.adding),
        isr=_without(partition.isr, partition.adding),
        elr=_without(partition.elr, partition.adding),
        adding=(),
        removing=(),
    )


def _without(replicas: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    gone = set(others)
    return tuple(replica for replica in replicas if replica not in gone)
