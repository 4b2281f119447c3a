"""The entries of a dump, one value for each line: a file's contents, or something wrong with it.

Contents say what the file holds. A finding is damage where a reader that trusts the file
would be misled; `is_damage` tells. The other findings are what kafka-dump-log points out and
a sound log may have: offsets that compaction took, and an index entry for an append of
several batches (it names the last offset of the append, and where its first batch begins).
"""

from typing import Final, TypeAlias

import attrs

from storage.attributes import frozen
from storage.batch.record_batch import BatchHeader
from storage.batch.records import ControlRecordType, EndTransactionMarker, Record
from storage.checkpoint import CleanShutdown, MetaProperties
from storage.producers.snapshot import ProducerState
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition

_CONTROL_NAMES: Final = {kind.value: kind.name for kind in ControlRecordType}


@frozen(kw_only=True)
class DumpOptions:
    """The flags of kafka-dump-log that change what is read."""

    deep_iteration: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False
    max_bytes: int | None = None


@frozen
class FileStarted:
    """`base_offset`: what the name of a segment's file says."""

    path: str
    base_offset: Offset | None = None
    # Of a snapshot of a metadata log, whose name has both.
    epoch: LeaderEpoch | None = None


@frozen
class BatchEntry:
    position: int
    header: BatchHeader
    is_valid: bool


@frozen
class RecordEntry:
    """`control_type` and `marker`: of a record in a control batch."""

    header: BatchHeader = attrs.field(repr=False)
    record: Record
    control_type: int | None = None
    marker: EndTransactionMarker | None = None

    @property
    def control_name(self) -> str:
        return _CONTROL_NAMES.get(-1 if self.control_type is None else self.control_type, "UNKNOWN")


@frozen
class OffsetIndexEntry:
    offset: Offset
    position: int


@frozen
class TimeIndexEntry:
    timestamp: int
    offset: Offset


@frozen
class SpareRoom:
    """The zeroes that a log which was not closed ends with."""

    path: str
    position: int
    size: int


@frozen
class EmptyIndex:
    path: str


@frozen
class SanityPassed:
    path: str


@frozen
class ProducerEntry:
    state: ProducerState


@frozen(kw_only=True)
class AbortedTransactionEntry:
    version: int
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


@frozen
class CheckpointEntry:
    topic_partition: TopicPartition
    offset: Offset


@frozen
class LeaderEpochEntry:
    epoch: LeaderEpoch
    start_offset: Offset


@frozen
class PartitionMetadata:
    topic_id: TopicId


@frozen
class DirectoryMetadata:
    properties: MetaProperties


@frozen
class ShutdownMarker:
    marker: CleanShutdown


@frozen
class UnknownFile:
    path: str


# Findings.


@frozen
class Damage:
    """`resumed_at`: the byte of the file where the dump went on."""

    path: str
    position: int
    reason: str
    resumed_at: int | None = None

    def __str__(self) -> str:
        on = "" if self.resumed_at is None else f"; goes on at byte {self.resumed_at}"
        return f"{self.path}, byte {self.position}: {self.reason}{on}"


@frozen
class InvalidBytes:
    """The bytes that the file ends with after its last whole batch."""

    path: str
    position: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.size} bytes after the last batch"


@frozen
class NonConsecutiveOffsets:
    path: str
    previous: Offset
    offset: Offset


@frozen
class IndexMismatch:
    """The batch that an index entry points to does not end with the entry's offset."""

    path: str
    index_offset: Offset
    log_offset: Offset
    # Where the batch begins after the entry's offset, a read for it would miss records.
    misleads: bool


@frozen
class TimestampMismatch:
    path: str
    index_timestamp: int
    log_timestamp: int


@frozen
class TimestampOutOfOrder:
    path: str
    index_timestamp: int
    previous_timestamp: int


@frozen
class IndexedOffsetNotFound:
    """`log_offset`: where the batch that ought to end with it ends; -1 where there is none."""

    path: str
    index_offset: Offset
    log_offset: Offset


Finding: TypeAlias = (
    Damage
    | InvalidBytes
    | NonConsecutiveOffsets
    | IndexMismatch
    | TimestampMismatch
    | TimestampOutOfOrder
    | IndexedOffsetNotFound
)
Entry: TypeAlias = (
    FileStarted
    | BatchEntry
    | RecordEntry
    | OffsetIndexEntry
    | TimeIndexEntry
    | SpareRoom
    | EmptyIndex
    | SanityPassed
    | ProducerEntry
    | AbortedTransactionEntry
    | CheckpointEntry
    | LeaderEpochEntry
    | PartitionMetadata
    | DirectoryMetadata
    | ShutdownMarker
    | UnknownFile
    | Finding
)


def is_damage(entry: Entry) -> bool:
    """Return whether `entry` says that its file is not what it should be."""
    match entry:
        case BatchEntry(is_valid=valid):
            return not valid
        case IndexMismatch(misleads=misleads):
            return misleads
        case Damage() | InvalidBytes() | TimestampMismatch() | TimestampOutOfOrder():
            return True
        case IndexedOffsetNotFound():
            return True
        case _:
            return False
