"""The history of what clients did and received: the values that `scenarios.checkers.anomalies` judges.

    ClientOperation  what one client did between a call and its answer: a transaction, a batch, a poll
    SentValue        a value that was sent in it, and the offset of its ack
    Poll             the records that a consumer received in it, in order
    History          the operations, in the order in which they began

The model is that of Jepsen's workload for Kafka. Each value is sent once, and a partition is a list
to which values are appended, so offsets say which value came first.

Rule: a history contains only promises. The ack of a batch that may be lost, as with acks=1 after a
failover, is left out of it.
"""

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import attrs

from storage.types import Offset, TopicPartition

At: TypeAlias = tuple[Offset, str]
"""A record: its offset, and its value."""


class OperationOutcome(enum.Enum):
    """The end of an operation, as far as its client knows."""

    OK = "ok"
    """It is committed, or acknowledged."""
    FAIL = "fail"
    """It is aborted, or was refused before anything was written."""
    INFO = "info"
    """It may have happened or not."""


@attrs.frozen(kw_only=True)
class SentValue:
    partition: TopicPartition
    value: str
    offset: Offset | None = None
    """The offset by its ack; None without one."""


@attrs.frozen(kw_only=True)
class Poll:
    """Records that one consumer received, and nothing that it should see lies between them."""

    partition: TopicPartition
    records: tuple[At, ...] = ()
    session: str = ""
    """The consumer, until it sought, was assigned its partitions anew, or lost records that were
    deleted: within a session it continues where its last poll ended.
    """
    begins: Offset | None = None
    """The position at which the session begins; without it, the offset of its first record."""
    ends: Offset | None = None
    """The position after the poll; without it, the offset after the last record."""
    to_end: bool = False
    """Whether it read to the end of a log to which nobody appends any more."""
    read_committed: bool = True
    at: float | None = None
    """When the records were received, in seconds; without it, by the end of the operation."""


@attrs.frozen(kw_only=True)
class ClientOperation:
    """What a transaction reads, it reads before its commit is asked for."""

    process: str
    outcome: OperationOutcome
    sends: tuple[SentValue, ...] = ()
    polls: tuple[Poll, ...] = ()
    invoked: float = 0.0
    """When it began, in seconds."""
    completed: float = math.inf
    """When its outcome was known, in seconds."""
    transactional: bool = False
    commit_asked: float = -math.inf
    """When its commit was asked for: infinity if that never happened, minus infinity if nobody
    knows when.
    """
    in_order: bool = True
    """Whether its process sends in order (KIP-98)."""


@attrs.frozen(kw_only=True)
class History:
    operations: Sequence[ClientOperation]
    log_starts: Mapping[TopicPartition, Offset] = attrs.field(factory=dict)
    """The offsets before which records were deleted; 0 for all other partitions."""
    compacted: Collection[TopicPartition] = ()
    """The partitions in which a record may be removed once its key has a later one."""
    repeated: Collection[str] = ()
    """The values that were sent more than once, and may be there as often."""
    written_by_others: Collection[TopicPartition] = ()
    """The partitions with values whose operations are not in the history."""
