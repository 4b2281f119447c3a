"""Unclean exclusion (I12, KIP-966): who may have lost its tail is out of leader, ISR and ELR.

A broker that was not shut down in good order registers again: from that decision on it
leads nothing, is in sync nowhere and is eligible for nothing, until it has caught up again.
Whether its disk did lose anything the controller cannot know, and does not ask.

Let off: a cluster without eligible leader replicas, where the last in sync stays in sync.
"""

from collections.abc import Iterator

from replication.metadata.rules import PartitionRegistration
from scenarios.checkers.violation import Wrong
from storage.types import TopicPartition

EXCLUDED = "who may have lost its tail is neither in sync nor eligible"


def excluded(
    broker_id: int, partition: TopicPartition, registration: PartitionRegistration
) -> Iterator[Wrong]:
    """As the partition is when such a broker has registered."""
    standing = {
        "leads": {registration.leader},
        "is in the ISR of": registration.isr,
        "is in the ELR of": registration.elr,
    }
    for words, members in standing.items():
        if broker_id in members:
            yield Wrong(
                EXCLUDED,
                f"b{broker_id} {words} {partition}, and was not shut down in good order",
            )
