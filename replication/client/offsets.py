"""How far a partition has been read: what consumers, transactions and administrators commit."""

import attrs

from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


@attrs.frozen
class OffsetAndMetadata:
    """What is committed of a partition: the next offset to read, and a word of one's own."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@attrs.frozen(kw_only=True)
class ConsumerGroupMetadata:
    """Who commits: a group, and which member in which generation, so that a member that has been
    replaced meanwhile is fenced (KIP-447). Without a member nobody is.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
