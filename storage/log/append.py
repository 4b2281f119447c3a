"""The checks of an append before anything is written: as a follower, and as a leader.

    a follower takes what its leader took        a leader decides what may be taken
    ───────────────────────────────────────      ──────────────────────────────────
    no epoch later than the one it follows in
    every batch's CRC-32C                        one batch, and its CRC-32C
    offsets rise inside the append               base offset 0, count = offset range
    the first is not below the log end           max.message.bytes, no control batch
    (a gap is fine: compaction leaves them)      timestamps inside the topic's bounds
                                                 keys where the topic is compacted
                                                 no more in it than its bytes can pay for
                                                 records that every reader can take apart

Rule 1: nothing here writes, and what is refused is refused whole.

Rule 2: the hot path walks 61-byte headers. A leader looks at records only as far as it takes to
know that they are sound, unless the topic asks more of each of them; a follower never does.

Rule 3: a check costs time and memory in proportion to the bytes that came. A batch that counts
more than `MAX_RECORDS_PER_BYTE`, or that decompresses to more than `most_decompressed`, is
refused as one that is too large: a producer that can, sends it again in parts. A check that
still exceeds its caller's `Allowance` stops with LongCheckError.

A leader writes in the codec of its topic (`compression.type`):

    producer sent     compression.type     written
    ─────────────     ────────────────     ───────
    lz4               producer             lz4, in the bytes that came
    lz4               zstd                 zstd, at compression.zstd.level
    lz4               uncompressed         not compressed
    lz4               lz4                  lz4, in the bytes that came: levels are for rewriting

Rule 4: records are not decoded for that. The blob behind the header is unpacked and packed again,
so that timestamps, offsets, headers and sequences are the producer's, byte for byte. A control
batch that came uncompressed stays so. The sizes that a topic allows hold for what came and for
what is written.

(UnifiedLog.analyzeAndValidateRecords, LogValidator in Kafka, which builds each record anew.)
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import crc32c

from storage.batch.allowance import Allowance
from storage.batch.compression import Codec, compress
from storage.batch.record_batch import (
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    read_header,
    sound_magic,
    stamp,
    walk,
    with_records,
)
from storage.batch.records import (
    MAX_DECOMPRESSED_SIZE,
    EndTransactionMarker,
    outline,
    read_marker,
    unpack,
)
from storage.batch.sound_records import check_records
from storage.config import LONG_MAX, LogConfig
from storage.errors import (
    CorruptRecordError,
    ExpansionError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnsupportedFormatError,
)
from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.producers.snapshot import BatchMetadata
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, LeaderEpoch, Offset

_MAX_REPORTED = 100

# Offset deltas count up, so no two records have the same bytes: zstd's best is 1.7 to a byte.
MAX_RECORDS_PER_BYTE: Final = 8
# Large values that are all alike shrink to nearly nothing, so a small batch may hold 16 MiB.
DECOMPRESSED_AT_LEAST: Final = 16 << 20
DECOMPRESSED_PER_BYTE: Final = 256


def most_decompressed(size: int) -> int:
    """Return how many bytes the records of a batch of `size` bytes may decompress to."""
    allowed = max(DECOMPRESSED_AT_LEAST, size * DECOMPRESSED_PER_BYTE)
    return min(allowed, MAX_DECOMPRESSED_SIZE)


class LogAppendInfo(NamedTuple):
    """The result of an append. A `duplicate` wrote nothing: its offsets are those of the first time."""

    first_offset: Offset | None = None
    last_offset: Offset = NO_OFFSET
    last_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    max_timestamp: int = NO_TIMESTAMP
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: Offset = NO_OFFSET
    valid_bytes: int = 0
    record_count: int = 0
    duplicate: bool = False


PlacedBatch: TypeAlias = tuple[int, BatchHeader]
"""Where a batch begins in the buffer that it came in, and its header."""


def analyze(records: memoryview, leader_epoch: LeaderEpoch | None = None) -> list[PlacedBatch]:
    """Return the whole batches of a follower's append, up to the first of a later leader epoch.

    Raise CorruptRecordError or OffsetsOutOfOrderError where they are not sound, and
    UnsupportedFormatError where a sound batch is of another message format.
    """
    batches: list[PlacedBatch] = []
    last_offset = NO_OFFSET
    try:
        for placed in walk(records):
            position, header = placed
            if leader_epoch is not None and header.leader_epoch > leader_epoch:
                break  # KAFKA-18723: sent by a broker that does not lead in our epoch any more
            before, last_offset = last_offset, header.base_offset + header.last_offset_delta
            if header.last_offset_delta < 0 or last_offset <= before:
                raise OffsetsOutOfOrderError(
                    f"offsets {header.base_offset} to {last_offset} after {before}"
                )
            batch = records[position : position + header.size]
            check_sound(batch, header)
            if header.is_control and header.has_producer:
                # It will be asked for when the batch is written: too late.
                marker_of(header, batch)
            batches.append(placed)
    except CorruptRecordError as error:
        following = batches[-1][0] + batches[-1][1].size if batches else 0
        magic = sound_magic(records[following:])  # None where a batch of ours is broken
        if magic is None:
            raise
        offset = int.from_bytes(records[following : following + LENGTH_AT], "big")
        # Asking for it again changes nothing, unlike what a wire has damaged.
        raise UnsupportedFormatError(
            f"the leader has a batch of magic {magic} at offset {offset}:"
            f" only magic {MAGIC} is replicated"
        ) from error
    return batches


def check_sound(batch: memoryview, header: BatchHeader) -> None:
    if crc32c.crc32c(batch[CRC_COVERS_FROM:]) != header.crc:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset} does not match its CRC-32C, {header.crc}"
        )


def validate(
    records: memoryview,
    config: LogConfig,
    *,
    wall_ms: int,
    from_client: bool,
    allowance: Allowance | None = None,
) -> list[PlacedBatch]:
    """Return the batches that a leader may append, each checked against `config`.

    Raise LongCheckError where that costs more than `allowance`.
    """
    if len(records) > MAGIC_AT and records[MAGIC_AT] != MAGIC:
        raise InvalidRecordError(
            f"a batch of magic {records[MAGIC_AT]}: only record batches of magic {MAGIC} are taken"
        )
    batches = list(walk(records))
    if not batches or (from_client and len(batches) > 1):
        raise InvalidRecordError(f"{len(batches)} batches for a partition, where there must be one")
    for position, header in batches:
        size = header.size
        batch = records[position : position + size]
        _validate_header(header, size, config, from_client=from_client)
        codec = header.codec  # raises where there is none of that number
        check_sound(batch, header)
        try:
            data: Buffer = batch[HEADER_SIZE:]
            if codec is not Codec.NONE:
                data = _unpack(header, batch, allowance)
            _validate_timestamps(data, header, config, wall_ms, allowance)
            _validate_records(
                data, header, config, codec=codec, wall_ms=wall_ms, allowance=allowance
            )
        except CorruptRecordError as broken:
            # Its CRC is right, so it was made like this: CORRUPT_MESSAGE would have the
            # client send it again, for ever.
            raise InvalidRecordError(str(broken)) from broken
    return batches


def _validate_header(
    header: BatchHeader, size: int, config: LogConfig, *, from_client: bool
) -> None:
    check_message_size(size, config)
    if from_client and header.base_offset != 0:
        raise InvalidRecordError(f"a client's batch starts at 0, not at {header.base_offset}")
    if from_client and header.is_control:
        raise InvalidRecordError("clients do not write control records")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{header.record_count} records over a range of {header.last_offset_delta + 1} offsets"
        )
    if header.record_count > size * MAX_RECORDS_PER_BYTE:
        raise RecordTooLargeError(
            f"{header.record_count} records in a batch of {size} bytes:"
            f" there may be {MAX_RECORDS_PER_BYTE} for each byte"
        )
    if from_client and header.has_producer and header.base_sequence < 0:
        raise InvalidRecordError(
            f"sequence {header.base_sequence} of producer {header.producer_id}"
        )


def check_message_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch of {size} bytes, over max.message.bytes={config.max_message_bytes}"
        )


def _unpack(header: BatchHeader, batch: memoryview, allowance: Allowance | None) -> Buffer:
    most = most_decompressed(header.size)
    try:
        return unpack(header, batch, max_size=most, allowance=allowance)
    except ExpansionError as error:
        raise RecordTooLargeError(
            f"a batch of {header.size} bytes that decompresses to more than {most}"
        ) from error


def _validate_timestamps(
    data: Buffer,
    header: BatchHeader,
    config: LogConfig,
    wall_ms: int,
    allowance: Allowance | None,
) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        message = "A producer does not say when its records were appended."
        reported = min(header.record_count, _MAX_REPORTED)
        raise InvalidTimestampError(message, dict.fromkeys(range(reported), message))
    if config.stamps_append_time:
        return
    latest = wall_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest:
        too_new = (
            (index, f"Timestamp {record.timestamp} is newer than {latest}.")
            for index, record in enumerate(outline(header, data, allowance))
            if record.timestamp > latest
        )
        raise InvalidTimestampError(
            f"timestamp {header.max_timestamp} is more than"
            f" {config.message_timestamp_after_max_ms} ms ahead of the broker's clock",
            dict(islice(too_new, _MAX_REPORTED)),
        )


def _validate_records(
    data: Buffer,
    header: BatchHeader,
    config: LogConfig,
    *,
    codec: Codec,
    wall_ms: int,
    allowance: Allowance | None,
) -> None:
    needs_keys = config.is_compacted and not header.is_control
    # Kafka does not look at the deltas of what comes and stays uncompressed.
    counted = codec is not Codec.NONE or config.target_codec not in (None, Codec.NONE)
    oldest = wall_ms - config.message_timestamp_before_max_ms
    checks_age = not config.stamps_append_time and config.message_timestamp_before_max_ms < LONG_MAX
    most = config.max_decompressed_message_bytes
    checks_size = header.codec is not Codec.NONE and len(data) > most
    if not (needs_keys or checks_age or checks_size):
        check_records(header, data, counted=counted, allowance=allowance)
        return
    without_key: dict[int, str] = {}
    too_old: dict[int, str] = {}
    for index, record in enumerate(outline(header, data, allowance)):
        if counted and record.offset != header.base_offset + index:
            raise InvalidRecordError(f"record {index} of a batch is at offset {record.offset}")
        if checks_size and record.size > most:
            raise InvalidRecordError(f"record {index} has {record.size} bytes, over {most}")
        if needs_keys and not record.has_key and len(without_key) < _MAX_REPORTED:
            without_key[index] = "Compacted topic cannot accept message without key."
        old = record.timestamp != NO_TIMESTAMP and record.timestamp < oldest
        if checks_age and old and len(too_old) < _MAX_REPORTED:
            too_old[index] = f"Timestamp {record.timestamp} is older than {oldest}."
    if without_key:
        raise InvalidRecordError("a compacted topic takes no record without a key", without_key)
    if too_old:
        raise InvalidTimestampError("records older than the topic takes", too_old)


def place(
    records: memoryview,
    batches: list[PlacedBatch],
    *,
    first_offset: Offset,
    leader_epoch: LeaderEpoch,
    append_time: int | None,
) -> list[PlacedBatch]:
    """Stamp a leader's batches, in their own bytes, from `first_offset` on."""
    placed = []
    offset = first_offset
    for position, header in batches:
        batch = records[position : position + header.size]
        stamp(batch, base_offset=offset, leader_epoch=leader_epoch, max_timestamp=append_time)
        placed.append((position, read_header(batch)))
        offset += header.last_offset_delta + 1
    return placed


def duplicate_info(first: BatchMetadata, log_start_offset: Offset) -> LogAppendInfo:
    """Return what answers a retry, with the timestamp of the first time (UnifiedLog.append)."""
    return LogAppendInfo(
        first_offset=first.first_offset,
        last_offset=first.last_offset,
        max_timestamp=first.timestamp,
        log_append_time=first.timestamp,
        log_start_offset=log_start_offset,
        duplicate=True,
    )


def append_info(
    batches: list[PlacedBatch], *, log_start_offset: Offset, append_time: int | None
) -> LogAppendInfo:
    (start, first), (position, last) = batches[0], batches[-1]
    max_timestamp, record_count = first.max_timestamp, first.record_count
    if len(batches) > 1:
        max_timestamp = max([header.max_timestamp for _, header in batches])
        record_count = sum([header.record_count for _, header in batches])
    return LogAppendInfo(
        first_offset=first.base_offset,
        last_offset=last.base_offset + last.last_offset_delta,
        last_leader_epoch=last.leader_epoch,
        max_timestamp=max_timestamp,
        log_append_time=NO_TIMESTAMP if append_time is None else append_time,
        log_start_offset=log_start_offset,
        valid_bytes=position + last.size - start,
        record_count=record_count,
    )


def check_sizes(batches: list[PlacedBatch], config: LogConfig) -> None:
    """Raise RecordBatchTooLargeError for a batch that no segment should hold."""
    for _, header in batches:
        if header.size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"a batch of {header.size} bytes, over segment.bytes={config.segment_bytes}"
            )


def marker_of(header: BatchHeader, batch: memoryview) -> EndTransactionMarker | None:
    return read_marker(batch) if header.is_control else None


def groups(batches: list[PlacedBatch], segment_bytes: int) -> list[list[PlacedBatch]]:
    """Return `batches` in groups that each fit one segment: nearly always one group."""
    (start, first), (at, last) = batches[0], batches[-1]
    if len(batches) == 1 or (
        at + last.size - start <= segment_bytes
        and last.last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
    ):
        return [batches]
    return list(_split(batches, segment_bytes))


def _split(batches: list[PlacedBatch], segment_bytes: int) -> Iterator[list[PlacedBatch]]:
    group: list[PlacedBatch] = []
    for batch in batches:
        position, header = batch
        if group:
            start, first = group[0]
            if (
                position + header.size - start > segment_bytes
                or header.last_offset - first.base_offset > MAX_RELATIVE_OFFSET
            ):
                yield group
                group = []
        group.append(batch)
    yield group


# A byte takes so much longer to compress than to decompress, at the higher levels.
_TIMES_AS_LONG: Final = 32


def recompress(
    records: memoryview,
    batches: Sequence[PlacedBatch],
    config: LogConfig,
    *,
    allowance: Allowance | None = None,
) -> tuple[memoryview, list[PlacedBatch]]:
    """Return the buffer to append, and where its batches stand: the one given if nothing changes.

    Raise LongCheckError where that costs more than `allowance`.
    """
    target = config.target_codec
    if target is None or not any(_changes(header, target) for _, header in batches):
        return records, list(batches)
    made = bytearray()
    placed = []
    for position, header in batches:
        batch: memoryview | bytearray = records[position : position + header.size]
        if _changes(header, target):
            plain = unpack(header, batch, max_size=most_decompressed(header.size))
            if allowance is not None:
                allowance.spend_bytes(_TIMES_AS_LONG * len(plain))
            batch = with_records(batch, target, compress(target, plain, config.level_of(target)))
        placed.append((len(made), read_header(batch)))
        check_message_size(len(batch), config)
        made += batch
    return memoryview(made), placed


def _changes(header: BatchHeader, target: Codec) -> bool:
    untouched = header.is_control and header.codec is Codec.NONE
    return header.codec is not target and not untouched
