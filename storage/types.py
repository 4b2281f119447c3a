"""The types of offsets, leader epochs, topic ids and partitions.

    offset          the place of a record in its partition's log; an *end* is exclusive
    leader epoch    the number of the leadership in which it was appended
    topic id        16 bytes that distinguish a topic from a later one of the same name (KIP-516)

Offsets and epochs are plain integers at run time, because almost every line computes with them.
A function that takes two of them takes them by keyword.
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
    """One partition of one topic; it prints as the name of its directory, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@attrs.frozen(order=True)
class OffsetAndEpoch:
    """The end of a log: `offset` is exclusive, and `leader_epoch` is that of the record before it."""

    offset: Offset
    leader_epoch: LeaderEpoch
