"""The state of one producer, and the `<offset>.snapshot` file that keeps all of a log's.

    version i16 = 1 | crc u32, CRC-32C of everything after it | count i32 | entries

    an entry: producer_id i64, epoch i16, last sequence i32, last offset i64, offset delta i32,
    timestamp i64, coordinator epoch i32, first offset of the open transaction i64 (-1: none)

Of a producer's last five batches only the newest is kept; the others are for answering
retries, and after a restart a producer retries its newest.

(ProducerStateEntry, BatchMetadata, ProducerStateManager.writeSnapshot in Kafka.)
"""

import os
import re
import struct
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import attrs
import crc32c

from storage.attributes import define
from storage.batch.record_batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from storage.errors import CorruptRecordError
from storage.filesystem import FileSystem
from storage.types import NO_OFFSET, Buffer, Offset

BATCHES_KEPT: Final = 5
NO_COORDINATOR_EPOCH: Final = -1

_VERSION: Final = 1
_NAME: Final = re.compile(r"([0-9]{20})\.snapshot")
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """One batch that a producer wrote."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        # Back over the wrap: one below 0 is 2^31-1.
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


@define
class ProducerState:
    """One producer, as this log knows it."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: Offset | None = None
    batches: deque[BatchMetadata] = attrs.field(factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        if header.producer_epoch != self.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        for batch in self.batches:
            if (batch.first_sequence, batch.last_sequence) == wanted:
                return batch
        return None

    def move_to_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


SNAPSHOT_BYTES: Final = 64 << 20
"""The most that is read of a snapshot: well over a million producers."""


def snapshot_path(directory: str, offset: Offset) -> str:
    return os.path.join(directory, f"{offset:020d}.snapshot")


def list_snapshots(file_system: FileSystem, directory: str) -> list[Offset]:
    """Return the offsets of the snapshot files in `directory`, in order."""
    if not file_system.is_directory(directory):
        return []
    return sorted(snapshots_in(file_system.list_directory(directory)))


def snapshots_in(names: Iterable[str]) -> set[Offset]:
    """Return the offsets of the snapshot files among `names`."""
    return {int(found[1]) for name in names if (found := _NAME.fullmatch(name))}


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    """Return a `.snapshot` file, with the last batch of each producer."""
    entries = [
        _ENTRY.pack(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_offset,
            state.batches[-1].offset_delta if state.batches else 0,
            state.last_timestamp,
            state.coordinator_epoch,
            NO_OFFSET if state.transaction_first_offset is None else state.transaction_first_offset,
        )
        for state in states
    ]
    body = b"".join((_COUNT.pack(len(entries)), *entries))
    return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + body


def decode_snapshot(data: Buffer) -> list[ProducerState]:
    """Return the producers in a `.snapshot` file. Raise CorruptRecordError where it is not sound."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptRecordError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptRecordError(f"a producer snapshot of version {version}")
    body = memoryview(data)[_HEAD.size :]
    if crc != crc32c.crc32c(body):
        raise CorruptRecordError("a producer snapshot whose CRC-32C does not match")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise CorruptRecordError(f"a producer snapshot of {count} entries in {len(entries)} bytes")
    return [_state(fields) for fields in _ENTRY.iter_unpack(entries)]


def _state(fields: tuple[int, ...]) -> ProducerState:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
    state = ProducerState(producer_id, epoch, coordinator_epoch, timestamp)
    if first >= 0:
        state.transaction_first_offset = first
    if offset >= 0:
        state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
    return state
