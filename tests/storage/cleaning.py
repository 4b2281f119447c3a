"""Compacting a log on the spot, for tests, and looking at what is left."""

from collections.abc import Iterable, Sequence
from typing import Any

from storage.batch.compression import Codec
from storage.batch.record_batch import walk
from storage.batch.records import (
    Record,
    decode_batch,
    encode_batch,
)
from storage.cleaner.candidates import dirty_range
from storage.cleaner.cleaner import Cleaning, plan
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.record_walk import MakeWalk, best_walk
from storage.config import LogConfig
from storage.log.log import Log
from storage.types import Offset
from tests.storage import logs
from tests.storage.logs import WALL_MS, contents, new_disk, open_log, small_config

Pair = tuple[bytes | None, bytes | None]


def compacted(**changes: Any) -> LogConfig:
    return small_config(cleanup_policy=frozenset({"compact"}), **changes)


def begin(
    log: Log,
    *,
    checkpoint: Offset | None = None,
    wall_ms: int = WALL_MS,
    memory: int = 1 << 16,
    walk: MakeWalk = best_walk,
) -> Cleaning:
    """A round over all that may be cleaned, due or not."""
    dirty = dirty_range(
        list(log.segments),
        log.config,
        checkpoint=checkpoint,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        wall_ms=wall_ms,
    )
    return Cleaning(plan=plan(log, dirty, wall_ms), offset_map=OffsetMap(memory), make_walk=walk)


def finish(cleaning: Cleaning, *, budget: int = 1) -> Cleaning:
    while not cleaning.done:
        cleaning.advance(budget)
        if cleaning.ready:
            cleaning.commit()
    cleaning.close()
    return cleaning


def clean(log: Log, **options: Any) -> Cleaning:
    return finish(begin(log, **options))


def put(
    log: Log,
    *pairs: Pair,
    at: Offset | None = None,
    codec: Codec = Codec.NONE,
    timestamp: int = WALL_MS,
    **options: Any,
) -> Offset:
    """Append a batch of keys and values, as a leader would; the first offset."""
    records = [Record(timestamp=timestamp + n, key=k, value=v) for n, (k, v) in enumerate(pairs)]
    data = encode_batch(records, codec=codec, base_offset=at or 0, leader_epoch=0, **options)
    buffer = memoryview(bytearray(data))
    if at is not None:
        info = log.append_as_follower(buffer)
    else:
        # From a coordinator: with keyless records and all.
        info = log.append_as_leader(buffer, leader_epoch=0, wall_ms=WALL_MS, from_client=False)
    assert info.first_offset is not None
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset


def end_transaction(log: Log, producer_id: int, *, commit: bool, epoch: int = 0) -> Offset:
    """Append the marker that ends the producer's transaction, and commit it; its offset."""
    offset = logs.end_transaction(log, producer_id, commit=commit, epoch=epoch)
    log.update_high_watermark(log.log_end_offset)
    return offset


def records(log: Log, *, control: bool = False) -> list[Record]:
    data = contents(log)
    return [
        record
        for position, header in walk(data)
        if header.is_control == control
        for record in decode_batch(data[position : position + header.size])
    ]


def pairs(log: Log) -> dict[Offset, Pair]:
    """Return the keys and values that can be read, by offset."""
    return {each.offset: (each.key, each.value) for each in records(log)}


def roll(log: Log) -> None:
    """Close the active segment, unless it is empty: what was appended may be cleaned."""
    if log.segments.active.size:
        log.roll(wall_ms=WALL_MS)


def keys(found: Iterable[Record]) -> Sequence[bytes | None]:
    return [each.key for each in found]


def fresh(**changes: object) -> Log:
    return open_log(new_disk(), compacted(**changes))


def names(log: Log, ending: str) -> list[str]:
    return [
        each
        for each in log.local.file_system.list_directory(log.directory)
        if each.endswith(ending)
    ]


def transactional(
    log: Log, producer_id: int, *given: tuple[bytes, bytes], sequence: int = 0
) -> int:
    return put(
        log,
        *given,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def aborted(log: Log) -> list[tuple[int, int, int]]:
    return [
        (each.producer_id, each.first_offset, each.last_offset)
        for segment in log.segments
        for each in segment.transaction_index.entries()
    ]
