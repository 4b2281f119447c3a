"""What comparing copies of a log has found, as values."""

import enum
from typing import Any, TypeAlias

import attrs

from storage.types import LeaderEpoch, Offset, TopicPartition


class Difference(enum.Enum):
    """What differs where two copies part."""

    MISSING_TAIL = "missing tail"  # one ends where another goes on
    GAP = "gap"  # one lacks offsets that another has
    EPOCH = "epoch"  # two leaders wrote at the same offset
    BYTES = "bytes"  # the same offset and epoch, but other bytes
    CORRUPT = "corrupt"  # bytes that are no batch, or whose CRC-32C is wrong
    TOPIC_ID = "topic id"  # two topics of one name
    MISSING_COPY = "missing copy"  # fewer copies than there should be


@attrs.frozen(kw_only=True)
class CopyAt:
    """What one copy holds where they part: None for what it does not have."""

    directory: str
    leader_epoch: LeaderEpoch | None = None
    base_offset: Offset | None = None
    last_offset: Offset | None = None
    file: str | None = None
    position: int | None = None
    damage: str | None = None
    topic_id: str | None = None


@attrs.frozen(kw_only=True)
class Compared:
    """How far a partition's copies are equal: offsets [start_offset, end_offset)."""

    start_offset: Offset
    end_offset: Offset
    batches: int = 0
    records: int = 0
    size: int = 0
    last_epoch: LeaderEpoch | None = None


@attrs.frozen(kw_only=True)
class Same:
    """Every copy holds the same batches."""

    partition: TopicPartition
    directories: tuple[str, ...]
    compared: Compared

    def __str__(self) -> str:
        c = self.compared
        return (
            f"{self.partition}: same in {len(self.directories)} copies,"
            f" offsets {c.start_offset} to {c.end_offset} (exclusive),"
            f" {c.batches} batches, {c.records} records"
        )


@attrs.frozen(kw_only=True)
class Different:
    """The copies part at `offset`; `compared` is what is equal before it."""

    partition: TopicPartition
    directories: tuple[str, ...]
    difference: Difference
    offset: Offset
    copies: tuple[CopyAt, ...]
    compared: Compared

    def __str__(self) -> str:
        held = "; ".join(map(_describe_copy, self.copies))
        return f"{self.partition}: parts at offset {self.offset} ({self.difference.value}): {held}"


@attrs.frozen(kw_only=True)
class Alone:
    """There is one copy only, and nothing to compare it with."""

    partition: TopicPartition
    directories: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.partition}: only in {self.directories[0]}"


PartitionResult: TypeAlias = Same | Different | Alone


@attrs.frozen
class Comparison:
    """The result for every partition found, in order of topic and partition."""

    directories: tuple[str, ...]
    partitions: tuple[PartitionResult, ...]

    @property
    def same(self) -> bool:
        """Nothing differs."""
        return not self.differences

    @property
    def differences(self) -> tuple[Different, ...]:
        return tuple(result for result in self.partitions if isinstance(result, Different))

    def to_dict(self) -> dict[str, Any]:
        """As JSON would have it."""
        return {
            "same": self.same,
            "directories": list(self.directories),
            "partitions": [_result_to_dict(result) for result in self.partitions],
        }


def _describe_copy(copy: CopyAt) -> str:
    if copy.damage is not None:
        what = f"damaged in {copy.file} at byte {copy.position}: {copy.damage}"
    elif copy.topic_id is not None:
        what = f"topic id {copy.topic_id}"
    elif copy.leader_epoch is None:
        what = "nothing"
    else:
        what = f"{copy.base_offset}-{copy.last_offset} of epoch {copy.leader_epoch}"
    return f"{copy.directory} has {what}" if copy.damage is None else f"{copy.directory} is {what}"


def _result_to_dict(result: PartitionResult) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "topic": result.partition.topic,
        "partition": result.partition.partition,
        "directories": list(result.directories),
    }
    match result:
        case Same():
            answer |= {"result": "same", **attrs.asdict(result.compared)}
        case Different():
            answer |= {
                "result": "different",
                "difference": result.difference.value,
                "offset": result.offset,
                "copies": [attrs.asdict(copy) for copy in result.copies],
                "equal_before": attrs.asdict(result.compared),
            }
        case Alone():
            answer |= {"result": "alone"}
    return answer
