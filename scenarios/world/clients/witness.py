"""What our clients did and were told, in the order in which it happened.

Began       a reader begins to read a partition: assigned to it, or sought
Given       it was handed a record
Committed   a group was told that its position is written down
Lost        a reader reads a partition no more

Transaction what was sent in one, and how it ended, as far as its producer knows
"""

import enum
from collections import defaultdict
from typing import TypeAlias

import attrs

from scenarios.world.client import SentBatch
from storage.types import Offset, TopicPartition


@attrs.frozen(kw_only=True)
class Began:
    reader: str
    group: str | None
    read_committed: bool
    at: Offset | None = None
    """Where it is to begin: 0 is also wherever the log does. None where its group says so."""


@attrs.frozen(kw_only=True)
class Given:
    reader: str
    offset: Offset
    value: str


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
    UNKNOWN = "nobody knows"


@attrs.define(eq=False, kw_only=True)
class Transaction:
    producer: str
    batches: list[SentBatch]
    ending: Ending = Ending.UNKNOWN
    done: bool = False
    """Nothing more will become of it."""


@attrs.define(eq=False)
class Witness:
    happened: dict[TopicPartition, list[Happening]] = attrs.field(
        factory=lambda: defaultdict(list), init=False
    )
    transactions: list[Transaction] = attrs.field(factory=list, init=False)

    def note(self, partition: TopicPartition, happening: Happening) -> None:
        self.happened[partition].append(happening)
