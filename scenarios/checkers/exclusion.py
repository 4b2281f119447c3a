"""Exclusion after an unclean shutdown (I12, KIP-966).

When a broker registers again after an unclean shutdown, it leads no partition, is in no ISR and in
no ELR from that decision on, until it has caught up again. The controller cannot know whether its
disk lost anything, and does not ask.

Not checked in a cluster without eligible leader replicas, where the last member of an ISR stays.
"""

from collections.abc import Iterator

from replication.metadata.rules import PartitionRegistration
from scenarios.checkers.violation import Wrong
from storage.types import TopicPartition

EXCLUDED = "who may have lost its tail is neither in sync nor eligible"


def excluded(
    broker_id: int, partition: TopicPartition, registration: PartitionRegistration
) -> Iterator[Wrong]:
    """Check a partition at the moment when a broker registers after an unclean shutdown."""
    standing = {
        "leads": {registration.leader},
        "is in the ISR of": registration.isr,
        "is in the ELR of": registration.elr,
    }
    for words, members in standing.items():
        if broker_id in members:
            yield Wrong(
                EXCLUDED,
                f"b{broker_id} {words} {partition}, and was not shut down cleanly",
            )
