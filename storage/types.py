"""The field's nouns, as types.

    offset          where a record stands in its partition's log; an *end* is exclusive
    leader epoch    the number of the leadership in which it was appended
    topic id        16 bytes; tells a topic from a later one of the same name (KIP-516)

Offsets and epochs are plain integers at run time: they go through arithmetic on every
line, and a wrapper that must be unwrapped each time hides more than it guards.
Functions that take two of them take them by keyword.
"""

from typing import NamedTuple, TypeAlias

import attrs

Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
TopicId: TypeAlias = bytes
Buffer: TypeAlias = bytes | bytearray | memoryview

NO_OFFSET: Offset = -1
# A log can end there: no record stands at it, for a log's end is an offset too.
LAST_LOG_END: Offset = 2**63 - 1
NO_LEADER_EPOCH: LeaderEpoch = -1
NO_BROKER_EPOCH = -1
NO_TOPIC_ID: TopicId = bytes(16)


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as its directory is named, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.frozen(order=True)
class OffsetAndEpoch:
    """Where a log stands: `offset` is exclusive, `leader_epoch` that of the record before it."""

    offset: Offset
    leader_epoch: LeaderEpoch
