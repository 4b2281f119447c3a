"""Committed offsets, as consumers, transactions and administrators write them."""

import attrs

from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


@attrs.frozen
class OffsetAndMetadata:
    """The committed offset of a partition, which is read next, and a text of the program."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


@attrs.frozen(kw_only=True)
class ConsumerGroupMetadata:
    """The group, the generation and the member that commit.

    A member that has been replaced meanwhile is fenced (KIP-447); without a member there is no
    such check.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
