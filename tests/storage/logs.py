"""Making logs and batches for tests."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from storage.batch.compression import Codec
from storage.batch.record_batch import (
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    read_header,
    walk,
    with_records,
)
from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    RecordOutline,
    decode_batch,
    encode_batch,
    encode_control_batch,
    outline,
    unpack,
)
from storage.config import LogConfig
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.log.open_segments import OpenSegments
from storage.manager.log_manager import LogManager
from storage.testing import FaultyFileSystem
from storage.types import Buffer, TopicPartition

TP = TopicPartition("t", 0)
WALL_MS = 1_700_000_000_000


def small_config(**changes: Any) -> LogConfig:
    """Segments and indexes of a size that a test can fill."""
    values = {"segment_bytes": 1000, "segment_index_bytes": 1200, "index_interval_bytes": 100}
    return LogConfig(**{**values, **changes})


def new_disk(seed: int = 1) -> FaultyFileSystem:
    system = FaultyFileSystem(random.Random(seed))
    system.make_directory("/d")
    system.sync_directory("/")
    return system


def open_log(file_system: FileSystem, config: LogConfig | None = None, **options: Any) -> Log:
    """Open a log that closes its files at every turn: opened again, they must hold the same."""
    options.setdefault("open_segments", OpenSegments(limit=0))
    return Log.open(file_system, "/d/t-0", TP, config=config or small_config(), **options)


def started(
    disk: FileSystem, *directories: str, config: LogConfig | None = None, **options: Any
) -> LogManager:
    """A manager that has opened every log in `directories`, by default in /d."""
    options.setdefault("node_id", 1)
    logs = LogManager(disk, directories or ["/d"], config=config or small_config(), **options)
    logs.startup()
    return logs


def batch(
    count: int = 1,
    *,
    at: int = 0,
    epoch: int = -1,
    timestamp: int = WALL_MS,
    size: int = 10,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    **options: Any,
) -> memoryview:
    """A batch of `count` records in a writable buffer, as it would come off a socket."""
    records = [Record(timestamp=timestamp, key=key, value=bytes(size)) for _ in range(count)]
    encoded = encode_batch(records, base_offset=at, leader_epoch=epoch, codec=codec, **options)
    return memoryview(bytearray(encoded))


def claiming(count: int, records: Buffer, codec: Codec) -> memoryview:
    """Return a sound batch that says that `records`, as `codec` has written them, are `count`."""
    made = with_records(encode_batch([], last_offset_delta=count - 1), codec, records)
    fields = list(HEADER.unpack_from(made))
    fields[-1] = count
    HEADER.pack_into(made, 0, *fields)
    return memoryview(with_records(made, codec, made[HEADER_SIZE:]))


def outlined(batch: Buffer) -> Iterator[RecordOutline]:
    """Walk the records of one batch without taking keys and values out of it."""
    header = read_header(batch)
    return outline(header, unpack(header, batch))


def unlink_due(logs: LogManager, now_ms: int) -> int:
    """Unlink what has waited long enough at `now_ms`; how many."""
    due = logs.doomed.due_by(now_ms)
    gone = logs.unlink(due)
    logs.doomed.forget(due)
    return len(gone)


def joined(*batches: memoryview) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def lead(
    log: Log, count: int = 1, *, epoch: int = 0, wall_ms: int = WALL_MS, **options: Any
) -> int:
    """Append as leader; the first offset."""
    info = log.append_as_leader(batch(count, **options), leader_epoch=epoch, wall_ms=wall_ms)
    assert info.first_offset is not None
    return info.first_offset


def end_transaction(
    log: Log, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> int:
    """Append the marker that ends the producer's transaction; its offset."""
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    marker = encode_control_batch(
        EndTransactionMarker(kind, coordinator_epoch),
        timestamp=WALL_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    info = log.append_as_leader(
        memoryview(bytearray(marker)), leader_epoch=0, wall_ms=WALL_MS, from_client=False
    )
    assert info.first_offset is not None
    return info.first_offset


def fill(log: Log, records: int, *, epoch: int = 0, **options: Any) -> None:
    for _ in range(records):
        lead(log, epoch=epoch, **options)


def headers(log: Log) -> list[BatchHeader]:
    """Return the header of every batch that can be read, from the log start on."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True)
        if data.records is None:
            break
        found += [header for _, header in walk(data.records.read())]
        offset = found[-1].next_offset
    return found


def contents(log: Log) -> bytes:
    """Every byte that can be read, from the log start on."""
    parts = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, max_offset_exclusive=log.log_end_offset, min_one=True)
        if data.records is None:
            break
        parts.append(data.records.read())
        offset = list(walk(parts[-1]))[-1][1].next_offset
    return b"".join(parts)


def read(
    log: Log, offset: int, size: int = 1 << 20, *, upto: int | None = None, min_one: bool = True
) -> bytes:
    """Return the bytes of a read, up to the log end or another bound."""
    end = log.log_end_offset if upto is None else upto
    data = log.read(offset, size, max_offset_exclusive=end, min_one=min_one)
    return data.records.read() if data.records else b""


def committed(log: Log, offset: int) -> bytes:
    """Return the bytes that a read_committed reader gets."""
    return read(log, offset, upto=log.last_stable_offset)


def offsets(data: bytes) -> list[int]:
    """Return the offset of every record in `data`."""
    return [
        record.offset
        for position, header in walk(data)
        for record in decode_batch(data[position : position + header.size])
    ]


def bases(log: Log) -> Sequence[int]:
    return log.segments.base_offsets
