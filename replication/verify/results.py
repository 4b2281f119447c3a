"""The results of comparing copies of a log, and the causes of differences.

    difference    cause         condition
    missing tail  lag           one ends where another goes on
                  truncation    ... and its checkpoints say that it once went further
    gap           gap           another has these offsets, and no cleaner has been there
                  compaction    ... or one has, and copies must be equal byte for byte
    lost key      compaction    the last record of a key is missing, and there is no later one
    epoch         rewrite       two leaders wrote there, and the CRCs are equal: a copy that was
                                made by producing
                  truncation    ... or not: the copy with the older epoch should have truncated
    bytes         rewrite       one leader's batch, in two forms
    corrupt       corruption    no batch, or one whose CRC-32C is wrong

Rule: a cause is a function of the difference and of what each copy holds there, so that other
readers of logs (`pipeline.audit`) name the same cause.
"""

import enum
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs

from replication.errors import UnderstudyError
from storage.attributes import frozen
from storage.types import LeaderEpoch, Offset, TopicPartition


class CannotCompareError(UnderstudyError):
    """A directory or a cluster that is missing, or sources without anything to compare."""


class Difference(enum.Enum):
    """The kind of difference at the offset where copies diverge."""

    MISSING_TAIL = "missing tail"  # one ends where another goes on
    GAP = "gap"  # one lacks offsets that another has
    EPOCH = "epoch"  # two leaders wrote at the same offset
    BYTES = "bytes"  # the same offset and epoch, but other bytes
    CORRUPT = "corrupt"  # bytes that are no batch, or whose CRC-32C is wrong
    TOPIC_ID = "topic id"  # two topics of one name
    MISSING_COPY = "missing copy"  # fewer copies than there should be
    LOST_KEY = "lost key"  # the last record of a key is gone from one, and nothing came after it


class Cause(enum.Enum):
    """The cause of a difference."""

    LAG = "lag"
    TRUNCATION = "truncation"
    CORRUPTION = "corruption"
    GAP = "gap"
    REWRITE = "rewrite"
    COMPACTION = "compaction"


@frozen(kw_only=True)
class CopyAt:
    """The part of one copy at the offset of a difference; None for what it does not have."""

    directory: str  # or the bootstrap servers, with the broker where there are several
    leader_epoch: LeaderEpoch | None = None
    base_offset: Offset | None = None
    last_offset: Offset | None = None
    file: str | None = None
    position: int | None = None
    damage: str | None = None
    topic_id: str | None = None
    crc: int | None = None
    # The end that its checkpoints name, if the copy ends before that.
    reached: Offset | None = None
    # The offset below which a cleaner has been at work.
    cleaned_before: Offset | None = None


@frozen(kw_only=True)
class Compared:
    """The range in which a partition's copies are equal: [start_offset, end_offset)."""

    start_offset: Offset
    end_offset: Offset
    batches: int = 0
    records: int = 0
    size: int = 0
    last_epoch: LeaderEpoch | None = None


@frozen(kw_only=True)
class Same:
    """Copies with the same batches; compacted ones with the same last record of each key."""

    partition: TopicPartition
    directories: tuple[str, ...]
    compared: Compared
    keys: int | None = None
    """The number of keys with a last record; None if all bytes were compared."""

    def __str__(self) -> str:
        c = self.compared
        keys = "" if self.keys is None else f", {self.keys} keys"
        return (
            f"{self.partition}: same in {len(self.directories)} copies,"
            f" offsets {c.start_offset} to {c.end_offset} (exclusive),"
            f" {c.batches} batches, {c.records} records{keys}"
        )


@frozen(kw_only=True)
class Different:
    """Copies that diverge at `offset`; `compared` is the equal range before it."""

    partition: TopicPartition
    directories: tuple[str, ...]
    difference: Difference
    offset: Offset
    copies: tuple[CopyAt, ...]
    compared: Compared

    @property
    def cause(self) -> Cause | None:
        """The cause, None if it cannot be known from the copies."""
        return cause_of(self.difference, self.offset, self.copies)

    def __str__(self) -> str:
        held = "; ".join(map(_describe_copy, self.copies))
        cause = self.cause
        how = self.difference.value
        if cause is not None and cause.value != how:
            how = f"{how}: {cause.value}"
        return f"{self.partition}: diverges at offset {self.offset} ({how}): {held}"


@frozen(kw_only=True)
class Alone:
    """A partition with only one copy, which was compared with nothing."""

    partition: TopicPartition
    directories: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.partition}: only in {self.directories[0]}"


@frozen(kw_only=True)
class NotCompared:
    """A partition in several places that could not be compared."""

    partition: TopicPartition
    directories: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}: could not be compared: {self.reason}"


# The results for readable copies; copies of a live cluster may be unreadable.
PartitionResult: TypeAlias = Same | Different | Alone
Outcome: TypeAlias = PartitionResult | NotCompared


@frozen
class Comparison:
    """The result for every partition found, in order of topic and partition."""

    directories: tuple[str, ...]
    partitions: tuple[Outcome, ...]

    @property
    def same(self) -> bool:
        """Whether all partitions could be compared, and none differs."""
        return not self.differences and not self.not_compared

    @property
    def differences(self) -> tuple[Different, ...]:
        return tuple(result for result in self.partitions if isinstance(result, Different))

    @property
    def not_compared(self) -> tuple[NotCompared, ...]:
        return tuple(result for result in self.partitions if isinstance(result, NotCompared))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values for JSON."""
        return {
            "same": self.same,
            "directories": list(self.directories),
            "partitions": [_result_to_dict(result) for result in self.partitions],
        }


def cause_of(difference: Difference, offset: Offset, copies: Sequence[CopyAt]) -> Cause | None:
    """Return the cause of a difference, by the table of this module."""
    match difference:
        case Difference.MISSING_TAIL:
            lacking = [copy for copy in copies if copy.base_offset is None]
            cut = any(copy.reached is not None for copy in lacking)
            return Cause.TRUNCATION if cut else Cause.LAG
        case Difference.GAP:
            cleaned = any((copy.cleaned_before or 0) > offset for copy in copies)
            return Cause.COMPACTION if cleaned else Cause.GAP
        case Difference.LOST_KEY:
            return Cause.COMPACTION
        case Difference.EPOCH:
            crcs = {copy.crc for copy in copies if copy.crc is not None}
            return Cause.REWRITE if len(crcs) == 1 else Cause.TRUNCATION
        case Difference.BYTES:
            return Cause.REWRITE
        case Difference.CORRUPT:
            return Cause.CORRUPTION
        case Difference.TOPIC_ID | Difference.MISSING_COPY:
            return None


def _describe_copy(copy: CopyAt) -> str:
    if copy.damage is not None:
        place = "" if copy.file is None else f" in {copy.file} at byte {copy.position}"
        what = f"damaged{place}: {copy.damage}"
    elif copy.topic_id is not None:
        what = f"topic id {copy.topic_id}"
    elif copy.base_offset is None:
        what = "nothing" if copy.reached is None else f"nothing, and once reached {copy.reached}"
    else:
        what = f"{copy.base_offset}-{copy.last_offset}"
        what += "" if copy.leader_epoch is None else f" of epoch {copy.leader_epoch}"
        what += "" if copy.crc is None else f", CRC {copy.crc:08x}"
    return f"{copy.directory} has {what}" if copy.damage is None else f"{copy.directory} is {what}"


def _result_to_dict(result: Outcome) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "topic": result.partition.topic,
        "partition": result.partition.partition,
        "directories": list(result.directories),
    }
    match result:
        case Same():
            answer |= {"result": "same", **attrs.asdict(result.compared), "keys": result.keys}
        case Different():
            answer |= {
                "result": "different",
                "difference": result.difference.value,
                "cause": None if result.cause is None else result.cause.value,
                "offset": result.offset,
                "copies": [attrs.asdict(copy) for copy in result.copies],
                "equal_before": attrs.asdict(result.compared),
            }
        case Alone():
            answer |= {"result": "alone"}
        case NotCompared():
            answer |= {"result": "not compared", "reason": result.reason}
    return answer
