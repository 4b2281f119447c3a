"""How far a partition has been read: what consumers, transactions and administrators commit."""

import attrs

from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


@attrs.frozen
class OffsetAndMetadata:
    """What is committed of a partition: the next offset to read, and a word of one's own."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
