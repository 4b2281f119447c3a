"""The contents of the files that are read whole: snapshots, aborted transactions, checkpoints."""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from storage.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    COMPACTION_GAP_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
    read_clean_shutdown,
    read_file,
    read_meta_properties,
    read_partition_metadata,
)
from storage.filesystem import FileSystem
from storage.producers.snapshot import SNAPSHOT_BYTES, decode_snapshot
from storage.tools.dump.entries import (
    AbortedTransactionEntry,
    CheckpointEntry,
    Damage,
    DirectoryMetadata,
    Entry,
    LeaderEpochEntry,
    PartitionMetadata,
    ProducerEntry,
    ShutdownMarker,
)

T = TypeVar("T")

# version i16, producer id, first offset, last offset, last stable offset
_ABORTED: Final = struct.Struct(">hqqqq")


def _snapshot(file_system: FileSystem, path: str) -> Iterator[Entry]:
    data = _there(path, read_file(file_system, path, most=SNAPSHOT_BYTES))
    for state in decode_snapshot(data):
        yield ProducerEntry(state)


def _aborted_transactions(file_system: FileSystem, path: str) -> Iterator[Entry]:
    file = file_system.open_for_reading(path)
    try:
        size, at = file.size(), 0
        while len(entry := file.read(at, _ABORTED.size)) == _ABORTED.size:
            version, producer_id, first, last, stable = _ABORTED.unpack(entry)
            if version != 0:
                yield Damage(path, at, f"an entry of version {version}")
                return
            yield AbortedTransactionEntry(
                version=version,
                producer_id=producer_id,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )
            at += _ABORTED.size
        if at < size:
            yield Damage(path, at, f"{size - at} bytes after the last whole entry")
    finally:
        file.close()


def _offsets(file_system: FileSystem, path: str) -> Iterator[Entry]:
    _contents(file_system, path)
    for topic_partition, offset in OffsetCheckpoint(file_system, path).read().items():
        yield CheckpointEntry(topic_partition, offset)


def _leader_epochs(file_system: FileSystem, path: str) -> Iterator[Entry]:
    _contents(file_system, path)
    for epoch, start_offset in LeaderEpochCheckpoint(file_system, path).read():
        yield LeaderEpochEntry(epoch, start_offset)


def _partition_metadata(file_system: FileSystem, path: str) -> Iterator[Entry]:
    yield PartitionMetadata(
        _there(path, read_partition_metadata(file_system, os.path.dirname(path)))
    )


def _meta_properties(file_system: FileSystem, path: str) -> Iterator[Entry]:
    yield DirectoryMetadata(_there(path, read_meta_properties(file_system, os.path.dirname(path))))


def _clean_shutdown(file_system: FileSystem, path: str) -> Iterator[Entry]:
    yield ShutdownMarker(_there(path, read_clean_shutdown(file_system, os.path.dirname(path))))


def _contents(file_system: FileSystem, path: str) -> bytes:
    return _there(path, read_file(file_system, path))


def _there(path: str, found: T | None) -> T:
    """Return `found`. Raise FileNotFoundError for None: a file that was named has to be there."""
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), path)
    return found


# By name, or by suffix.
SMALL_FILES: Final[Mapping[str, Callable[[FileSystem, str], Iterator[Entry]]]] = {
    ".snapshot": _snapshot,
    ".txnindex": _aborted_transactions,
    RECOVERY_POINT_CHECKPOINT: _offsets,
    LOG_START_OFFSET_CHECKPOINT: _offsets,
    HIGH_WATERMARK_CHECKPOINT: _offsets,
    CLEANER_CHECKPOINT: _offsets,
    COMPACTION_GAP_CHECKPOINT: _offsets,
    LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    PARTITION_METADATA: _partition_metadata,
    META_PROPERTIES: _meta_properties,
    CLEAN_SHUTDOWN: _clean_shutdown,
}
