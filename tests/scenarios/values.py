"""A partition as the controller has it, by hand, and which rules it is against."""

from collections.abc import Iterable
from typing import Any

import attrs

from replication.metadata.rules.image import PartitionRegistration
from scenarios.checkers.leadership import Decided
from scenarios.checkers.observed import Wrong
from storage.types import TopicPartition

PARTITION = TopicPartition("t", 0)
SOUND = PartitionRegistration(
    replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=7
)


def decided(registration: PartitionRegistration = SOUND, **otherwise: Any) -> Decided:
    changed = attrs.evolve(registration, **otherwise)
    return Decided(
        partition=PARTITION, registration=changed, min_isr=2, may_be_in_isr=lambda each: each != 9
    )


def rules(wrongs: Iterable[Wrong]) -> list[str]:
    return [wrong.rule for wrong in wrongs]
