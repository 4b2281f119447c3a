"""A dump of `.log` files as Arrow: one row for each batch, or one for each record.

    batches   file, position, base_offset, ..., codec, crc, is_valid
    records   file, and the columns of `storage.batch.columns.columnar`, in Arrow's older types

What is not a row is handed out between the record batches: damage, as everywhere in a dump.
Records are those of batches whose CRC-32C matches, without control batches.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa

from storage.batch.columns import columnar
from storage.batch.compression import Codec
from storage.batch.record_batch import with_records
from storage.errors import StorageError
from storage.filesystem import File, FileSystem
from storage.log.segment_file import StoredBatch
from storage.tools.dump.entries import Damage, InvalidBytes, SpareRoom
from storage.tools.dump.log_file import Unpacking, sound_stretches
from storage.tools.dump.text import TIMESTAMP_NAMES, codec_name

ROWS: Final = 4096
_LARGEST_OFFSET: Final = 2**63 - 1

BATCH_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("count", pa.int32()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("leader_epoch", pa.int32()),
        ("is_transactional", pa.bool_()),
        ("is_control", pa.bool_()),
        ("delete_horizon_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("max_timestamp", pa.int64()),
        ("size", pa.int64()),
        ("codec", pa.string()),
        ("crc", pa.uint32()),
        ("is_valid", pa.bool_()),
    ]
)
RECORD_SCHEMA: Final = columnar.PLAIN_SCHEMA.insert(0, pa.field("file", pa.string()))


def arrow_batches(
    file_system: FileSystem, paths: Iterable[str], max_bytes: int | None = None
) -> Iterator[pa.RecordBatch | Damage | InvalidBytes]:
    """Yield a row for each batch in the `.log` files at `paths`."""
    for path in paths:
        rows: list[tuple[Any, ...]] = []
        for found in _stretches(file_system, path, max_bytes):
            if isinstance(found, StoredBatch):
                rows.append(_row(path, found))
            else:
                yield found
            if len(rows) == ROWS:
                yield _rows(rows)
                rows = []
        if rows:
            yield _rows(rows)


def arrow_records(
    file_system: FileSystem, paths: Iterable[str], max_bytes: int | None = None
) -> Iterator[pa.RecordBatch | Damage | InvalidBytes]:
    """Yield a row for each record in the `.log` files at `paths`."""
    for path in paths:
        unpacking, waiting, size = Unpacking(), list[_Unpacked](), 0
        for found in _stretches(file_system, path, max_bytes):
            if not isinstance(found, StoredBatch):
                yield found
            elif not found.is_valid:
                yield Damage(path, found.position, "a batch whose CRC-32C does not match")
            else:
                try:
                    data = with_records(found.data, Codec.NONE, unpacking.unpack(found))
                except StorageError as error:
                    yield _damaged(path, found.position, str(error))
                    continue
                waiting.append(_Unpacked(found.position, data))
                size += len(data)
            if size >= columnar.CHUNK_SIZE:
                yield from _records(path, waiting)
                waiting, size = [], 0
        yield from _records(path, waiting)


class _Unpacked(NamedTuple):
    """Where a batch begins in its file, and the same batch without compression."""

    position: int
    data: bytearray


def _stretches(
    file_system: FileSystem, path: str, max_bytes: int | None
) -> Iterator[StoredBatch | Damage | InvalidBytes]:
    try:
        file: File = file_system.open_for_reading(path)
    except OSError as error:
        yield Damage(path, 0, error.strerror or str(error))
        return
    try:
        size = file.size()
        end = size if max_bytes is None else min(size, max_bytes)
        for found in sound_stretches(file_system, file, end):
            if not isinstance(found, SpareRoom):
                yield found
    finally:
        file.close()


def _records(path: str, batches: list[_Unpacked]) -> Iterator[pa.RecordBatch | Damage]:
    """Over those whose checksum is right and whose records are not."""
    while batches:
        try:
            for found in columnar.decode(_joined(batches), check_crcs=False):
                yield _named(path, columnar.plain(found))
        except columnar.CorruptBatchError as error:
            ends = accumulate(len(each.data) for each in batches)
            good = sum(end <= error.position for end in ends)
            yield _damaged(path, batches[good].position, error.reason)
            batches = batches[good + 1 :]
        else:
            return


def _damaged(path: str, position: int, reason: str) -> Damage:
    return Damage(path, position, f"the records of the batch here: {reason}")


def _joined(batches: list[_Unpacked]) -> bytes:
    return b"".join(each.data for each in batches)


def _named(path: str, records: pa.RecordBatch) -> pa.RecordBatch:
    files = pa.array([path], pa.string()).take(pa.array([0] * records.num_rows, pa.int32()))
    return pa.RecordBatch.from_arrays([files, *records.columns], schema=RECORD_SCHEMA)


def _rows(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, BATCH_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)


def _row(path: str, batch: StoredBatch) -> tuple[Any, ...]:
    header = batch.header
    return (
        path,
        batch.position,
        header.base_offset,
        # A base offset is outside the checksum: it may be so large that this is no offset.
        header.last_offset if header.last_offset <= _LARGEST_OFFSET else None,
        header.record_count,
        header.base_sequence,
        header.last_sequence,
        header.producer_id,
        header.producer_epoch,
        header.leader_epoch,
        header.is_transactional,
        header.is_control,
        header.delete_horizon_ms,
        TIMESTAMP_NAMES[header.timestamp_type],
        header.max_timestamp,
        header.size,
        codec_name(header),
        header.crc,
        batch.is_valid,
    )
