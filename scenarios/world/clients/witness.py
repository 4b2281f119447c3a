"""The acts of our clients and the records that they received, in the order in which both happened.

Began       a reader begins to read a partition: it was assigned, or sought
Given       a reader received a record
Committed   the commit of a group's position was acknowledged
Lost        a reader no longer reads a partition

WitnessedTransaction   what was sent in it, and how it ended, as far as its producer knows
"""

import enum
import math
from collections import defaultdict
from typing import TypeAlias

import attrs

from scenarios.world.client import NoAnswer, SentRecords
from storage.types import Offset, TopicPartition

THERE = NoAnswer("there, nobody says where")
"""The outcome of a record that is acknowledged without its offset."""
LEFT = NoAnswer("its producer was gone")
"""The outcome of a record whose producer has ended before it knew one."""


@attrs.frozen(kw_only=True)
class Began:
    reader: str
    group: str | None
    read_committed: bool
    at: Offset | None = None
    """The first offset, where 0 also stands for the log start; None if the group decides."""
    member_id: str = ""
    member_epoch: int = -1
    """The epoch in which a member with the protocol of KIP-848 has heard of the partition."""


@attrs.frozen(kw_only=True)
class Given:
    reader: str
    offset: Offset
    value: str
    at: float = 0.0
    """When, in virtual seconds."""


@attrs.frozen(kw_only=True)
class Lost:
    reader: str


@attrs.frozen(kw_only=True)
class Committed:
    group: str
    offset: Offset


Happening: TypeAlias = Began | Given | Lost | Committed


class Ending(enum.Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "outcome unknown"


@attrs.define(eq=False, kw_only=True)
class WitnessedTransaction:
    producer: str
    batches: list[SentRecords] = attrs.field(factory=list)
    copied: list[tuple[TopicPartition, Offset, str]] = attrs.field(factory=list)
    """The records that it was made from, as a read_committed consumer received them."""
    ending: Ending = Ending.UNKNOWN
    done: bool = False
    """Whether nothing more will happen to it."""
    began_at: float = 0.0
    commit_asked_at: float = math.inf
    ended_at: float = math.inf
    """When its producer knew how it ended."""

    def end(self, ending: Ending, now: float) -> None:
        self.ending, self.ended_at = ending, now

    @property
    def failed(self) -> list[str]:
        """The values for which its producer raised an error."""
        return [
            value
            for batch in self.batches
            if isinstance(batch.outcome, NoAnswer) and batch.outcome not in (THERE, LEFT)
            for value in batch.values
        ]


@attrs.define(eq=False)
class Witness:
    happened: dict[TopicPartition, list[Happening]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    transactions: list[WitnessedTransaction] = attrs.field(factory=list, init=False)

    def note(self, partition: TopicPartition, happening: Happening) -> None:
        self.happened[partition].append(happening)
