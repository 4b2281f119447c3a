"""Committed offsets, as consumers, transactions and administrators write and read them."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from replication.client.requests import nested
from storage.attributes import frozen
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from replication.wire.offset_fetch import OffsetFetchRequest, OffsetFetchResponsePartition

T = TypeVar("T")


@frozen
class OffsetAndMetadata:
    """The committed offset of a partition, which is read next, and a text of the program."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


def as_offset(given: Offset | OffsetAndMetadata) -> OffsetAndMetadata:
    """Return a committed offset, which may be given as a number."""
    return OffsetAndMetadata(given) if isinstance(given, int) else given


@frozen(kw_only=True)
class ConsumerGroupMetadata:
    """The group, the generation and the member that commit.

    A member that has been replaced meanwhile is fenced (KIP-447); without a member there is no
    such check.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def topics_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic: type[T],
    partition: Callable[..., object],
) -> list[T]:
    """Return `offsets` as the topics of a request, in its classes of topics and of partitions."""
    return nested(
        offsets,
        topic,
        lambda tp: partition(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        ),
    )


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> "OffsetFetchRequest":
    """Return a request for the committed offsets of `partitions`, or of all that have one.

    It fits every version: newer ones list several groups.
    """
    # A producer, which imports this module, does not need these messages.
    from replication.wire.offset_fetch import (  # noqa: PLC0415
        OffsetFetchGroup,
        OffsetFetchRequest,
        OffsetFetchTopic,
    )

    topics = None if partitions is None else nested(partitions, OffsetFetchTopic)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=[OffsetFetchGroup(group_id=group_id, topics=topics)],
        require_stable=require_stable,
    )


def committed_offset(given: "OffsetFetchResponsePartition") -> OffsetAndMetadata | None:
    """Return the committed offset of a partition without an error; None if there is none."""
    if given.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        given.committed_offset, given.metadata or "", given.committed_leader_epoch
    )
