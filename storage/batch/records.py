"""The records inside a batch: made by producers and clients, never touched by replication.

    length varint | attributes i8 = 0 | timestamp delta varlong | offset delta varint
    | key length varint (-1: null), key | value length varint (-1: null), value
    | header count varint | (key length varint, key, value length varint, value)*

A varint is zig-zag base 128: small numbers of either sign are short. Deltas are from the
batch's base timestamp and base offset.

Rule 1: encoding is one pass: a join for each record, and one for the batch.

Rule 2: whatever a batch claims (counts, lengths) is checked against the bytes that are
there. What does not fit is a CorruptRecordError.

This file is long because encoding, decoding and walking records share one layout.
(Kafka: DefaultRecord, MemoryRecordsBuilder, ControlRecordType, EndTransactionMarker.)
"""

import enum
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from storage.attributes import frozen
from storage.batch.allowance import STEPS_PER_OUTLINE, Allowance
from storage.batch.compression import Codec, compress, decompress
from storage.batch.plain_records import decode_plain
from storage.batch.record_batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Batch,
    BatchHeader,
    TimestampType,
    crc32c,
    next_sequence,
    read_header,
)
from storage.batch.sound_records import LEAST_LONG, MOST_LONG
from storage.batch.varint import (
    BELOW_TWO_BYTES,
    ONE_BYTE,
    VARINTS,
    read_varint,
    read_varlong,
    varint,
)
from storage.errors import CorruptRecordError, ExpansionError, LongCheckError
from storage.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, LeaderEpoch, Offset

# More than any sane batch expands to; reserved, not committed, while a batch is decoded.
MAX_DECOMPRESSED_SIZE: Final = 256 * 1024 * 1024
# Control batches hold one short record, and nobody compresses them; event loops read them.
_MAX_CONTROL_SIZE: Final = 1024 * 1024


Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. Encoding gives one without an offset the place after its predecessor."""

    offset: Offset = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE


RecordFields: TypeAlias = tuple[Offset, int, bytes | None, bytes | None, tuple[Header, ...], int]
"""A Record's fields alone: a plain tuple costs a quarter, and the garbage collector soon leaves it
in peace, as it does no other object that holds others."""


class RecordColumns(NamedTuple):
    """The records of a batch, field by field; what has an end has one entry for each record."""

    offsets: Sequence[Offset] = ()
    timestamps: Iterable[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    headers: Iterable[tuple[Header, ...]] = ()
    sequences: Iterable[int] = ()


class RecordOutline(NamedTuple):
    """The fields of a record that validation asks about, read without taking its bytes."""

    offset: Offset
    timestamp: int
    has_key: bool
    size: int


_CRC_COVERED: Final = struct.Struct(">hiqqqhii")
_UNCOVERED: Final = struct.Struct(">qiibI")
assert _CRC_COVERED.size + _UNCOVERED.size == HEADER_SIZE

_timestamp: Callable[[RecordFields], int] = itemgetter(Record._fields.index("timestamp"))


def encode_batch(
    records: Iterable[RecordFields],
    *,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    last_offset_delta: int | None = None,
) -> bytes:
    """Return one batch. `last_offset_delta` keeps the end of a batch that has lost its last
    records.
    """
    records = list(records)
    base_timestamp = _timestamp(records[0]) if records else NO_TIMESTAMP
    max_timestamp = max(map(_timestamp, records), default=NO_TIMESTAMP)
    parts, last_delta = _encode_records(records, base_offset, base_timestamp)
    if codec is not Codec.NONE:
        parts = [compress(codec, b"".join(parts))]
    if last_offset_delta is None:
        last_offset_delta = max(last_delta, 0)
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    covered = _CRC_COVERED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    body = b"".join((covered, *parts))
    size = _UNCOVERED.size + len(body)
    crc = crc32c(body)
    length = size - LENGTH_OVERHEAD
    return _UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc) + body


def _encode_records(
    records: Iterable[RecordFields], base_offset: Offset, base_timestamp: int
) -> tuple[list[Buffer], int]:
    """Return the records in pieces, and the offset delta of the last one.

    The table is looked into right here, and what a record without a key has in common with the one
    before it is not made again. A producer's `send_many` spends two fifths of its time in this loop;
    without the table the loop takes 1.4 times as long, and 2.4 times for records without keys of
    one size.
    """
    varints, known = VARINTS, len(VARINTS)
    parts: list[Buffer] = []
    delta = -1
    head, length = b"", b""
    alike_since = alike_size = alike_from = alike_to = -1
    for offset, timestamp, key, value, headers, _ in records:
        delta = delta + 1 if offset == NO_OFFSET else offset - base_offset
        since = timestamp - base_timestamp
        if key is None and value is not None and not headers and 0 <= delta < known:
            value_size = len(value)
            if not (
                value_size == alike_size and since == alike_since and alike_from <= delta < alike_to
            ):
                alike_since, alike_size = since, value_size
                alike_from, alike_to = (
                    (0, BELOW_TWO_BYTES) if delta < BELOW_TWO_BYTES else (BELOW_TWO_BYTES, known)
                )
                time = varints[since] if 0 <= since < known else varint(since)
                length = varints[value_size] if value_size < known else varint(value_size)
                size = len(time) + len(varints[delta]) + len(length) + value_size + 3
                head = (varints[size] if size < known else varint(size)) + b"\0" + time
                length = b"\1" + length
            parts += (head, varints[delta], length, value, b"\0")
            continue
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        body = b"".join(
            (
                b"\0",
                varints[since] if 0 <= since < known else varint(since),
                varints[delta] if 0 <= delta < known else varint(delta),
                varints[key_size] if 0 <= key_size < known else varint(key_size),
                key or b"",
                varints[value_size] if 0 <= value_size < known else varint(value_size),
                value or b"",
                _encode_headers(headers) if headers else b"\0",
            )
        )
        size = len(body)
        parts += (varints[size] if size < known else varint(size), body)
    return parts, delta


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (varint(len(key)), key)
        parts += (varint(-1),) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def decode_batch(batch: Batch, *, max_size: int = MAX_DECOMPRESSED_SIZE) -> list[Record]:
    """Return the records of one batch, each with its offset, timestamp and sequence."""
    columns = decode_columns(batch, max_size=max_size)
    return [Record._make(each) for each in zip(*columns, strict=False)]


def decode_columns(
    batch: Batch,
    *,
    max_size: int = MAX_DECOMPRESSED_SIZE,
    allowance: Allowance | None = None,
) -> RecordColumns:
    """Return the records of one batch as columns, for callers that make no `Record` of each.

    Raise LongCheckError where that takes more than `allowance`, of which a record is one step.
    """
    header = read_header(batch)
    if allowance is not None:
        allowance.spend(header.record_count)
    # Every key and value is about to be taken out: one copy of all makes each of them cheaper.
    data = bytes(unpack(header, batch, max_size=max_size, allowance=allowance))
    plain = decode_plain(
        data,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
    )
    if plain is None:
        records = list(decode_each(header, data))
        return RecordColumns(*zip(*records, strict=True)) if records else RecordColumns()
    offsets, timestamps, keys, values = plain
    append_time = _log_append_time(header)
    return RecordColumns(
        offsets,
        timestamps if append_time is None else repeat(append_time),
        keys,
        values,
        repeat(()),
        _sequences(header, offsets),
    )


def _sequences(header: BatchHeader, offsets: Sequence[Offset]) -> Iterable[int]:
    if header.base_sequence == NO_SEQUENCE:
        return repeat(NO_SEQUENCE)
    shift = header.base_sequence - header.base_offset
    return (shift + offset & MAX_SEQUENCE for offset in offsets)


def decode_each(header: BatchHeader, data: bytes) -> Iterator[Record]:
    """Yield the records in `data`, which is decompressed, whatever they are like."""
    append_time = _log_append_time(header)
    for start, end in _record_bounds(header, data):
        try:
            record = _decode_record(header, append_time, data, start, end)
        except IndexError as error:
            raise CorruptRecordError(f"a record that does not parse: {error}") from error
        yield record


def outline(
    header: BatchHeader, data: Buffer, allowance: Allowance | None = None
) -> Iterator[RecordOutline]:
    """Walk the records in `data`, which is already decompressed.

    Raise LongCheckError where that takes more than `allowance`.
    """
    if allowance is not None:
        allowance.spend(STEPS_PER_OUTLINE * header.record_count)
    append_time = _log_append_time(header)
    for start, end in _record_bounds(header, data):
        try:
            timestamp_delta, position = read_varlong(data, start + 1)
            offset_delta, position = read_varint(data, position)
            key_length, position = read_varint(data, position)
            _skip_rest(data, _after(position, key_length, end), end, allowance)
        except IndexError as error:
            raise CorruptRecordError(f"a record that does not parse: {error}") from error
        timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
        offset = header.base_offset + offset_delta
        if not (LEAST_LONG <= timestamp <= MOST_LONG and LEAST_LONG <= offset <= MOST_LONG):
            raise _outside(offset, timestamp)
        yield RecordOutline(offset, timestamp, key_length >= 0, end - start)


def last_record_offset(batch: Batch, *, max_size: int = MAX_DECOMPRESSED_SIZE) -> Offset:
    """Return the offset of the last record in a batch that holds one. Compaction may have left it
    below the last offset in the header.
    """
    header = read_header(batch)
    data = unpack(header, batch, max_size=max_size)
    position = skip_records(data, 0, header.record_count - 1)
    try:
        _, position = read_varint(data, position)
        _, position = read_varlong(data, position + 1)
        offset_delta, _ = read_varint(data, position)
    except IndexError as error:
        raise CorruptRecordError(f"a record that does not parse: {error}") from error
    return header.base_offset + offset_delta


def skip_records(data: Buffer, position: int, count: int) -> int:
    """Return the position after `count` records, of which only the lengths are read."""
    end = len(data)
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                length, position = ONE_BYTE[byte], position + 1
            else:
                length, position = read_varint(data, position)
            if length < 1 or length > end - position:
                raise _out_of_range(length, end - position)
            position += length
    except IndexError:
        raise CorruptRecordError(f"fewer than {count} records") from None
    return position


def unpack(
    header: BatchHeader,
    batch: Batch,
    *,
    max_size: int = MAX_DECOMPRESSED_SIZE,
    allowance: Allowance | None = None,
) -> Buffer:
    """Return the records of `batch` as bytes, decompressed.

    Raise LongCheckError where that takes more than `allowance`.
    """
    view = memoryview(batch)
    if len(view) < header.size:
        raise CorruptRecordError(f"a batch of {header.size} bytes, cut off after {len(view)}")
    if header.record_count < 0:
        raise CorruptRecordError(f"a batch of {header.record_count} records")
    records = view[HEADER_SIZE : header.size]
    if allowance is None or header.codec is Codec.NONE:
        return decompress(header.codec, records, max_size=max_size)
    within = max(1, min(max_size, allowance.decompressed_bytes))
    try:
        data = decompress(header.codec, records, max_size=within)
    except ExpansionError as error:
        if within < max_size:
            raise LongCheckError(str(error)) from error
        raise
    allowance.spend_bytes(len(data))
    return data


def _record_bounds(header: BatchHeader, data: Buffer) -> Iterator[tuple[int, int]]:
    """Yield where each record begins after its length, and ends; they must use up `data`."""
    end, position = len(data), 0
    for _ in range(header.record_count):
        try:
            length, position = read_varint(data, position)
        except IndexError:
            raise CorruptRecordError(
                f"fewer records than the {header.record_count} that the batch counts"
            ) from None
        following = position + length
        if length < 1 or following > end:
            raise _out_of_range(length, end - position)
        yield position, following
        position = following
    if position != end:
        raise CorruptRecordError(f"{end - position} bytes after the last record")


def _out_of_range(length: int, left: int) -> CorruptRecordError:
    return CorruptRecordError(f"a record of {length} bytes where {left} are left")


def _decode_record(
    header: BatchHeader, append_time: int | None, data: bytes, start: int, end: int
) -> Record:
    timestamp_delta, position = read_varlong(data, start + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = read_varint(data, position)
    headers: tuple[Header, ...] = ()
    if count:
        headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise CorruptRecordError(f"a record of {end - start} bytes holds {position - start}")
    timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
    offset = header.base_offset + offset_delta
    if not (LEAST_LONG <= timestamp <= MOST_LONG and LEAST_LONG <= offset <= MOST_LONG):
        raise _outside(offset, timestamp)
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = next_sequence(header.base_sequence, offset_delta)
    return Record(offset, timestamp, key, value, headers, sequence)


def _outside(offset: int, timestamp: int) -> CorruptRecordError:
    return CorruptRecordError(f"offset {offset}, timestamp {timestamp}: more than 64 bits")


def _log_append_time(header: BatchHeader) -> int | None:
    # The leader stamps the header alone; every record of the batch is that old.
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None


def _after(position: int, length: int, end: int) -> int:
    """Return the position after `length` bytes; a null, of any negative length, takes none."""
    following = position + max(length, 0)
    if following > end:
        raise CorruptRecordError(f"{length} bytes of a record where {end - position} are left")
    return following


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    following = position + length
    if length >= 0 and following <= end:
        return data[position:following], following
    return None, _after(position, length, end)


def _read_headers(
    data: bytes, position: int, end: int, count: int
) -> tuple[tuple[Header, ...], int]:
    if count < 0:
        raise CorruptRecordError(f"a record of {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptRecordError("a header without a name")
        value, position = _read_bytes(data, position, end)
        headers.append((name.decode(errors="replace"), value))  # as Java reads it
    return tuple(headers), position


def _skip_rest(data: Buffer, position: int, end: int, allowance: Allowance | None) -> None:
    """Skip the value and the headers, to exactly the end of the record."""
    length, position = read_varint(data, position)
    position = _after(position, length, end)
    count, position = read_varint(data, position)
    if count < 0:
        raise CorruptRecordError(f"a record of {count} headers")
    if count and allowance is not None:
        allowance.spend(count)
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecordError("a header without a name")
        length, position = read_varint(data, _after(position, length, end))
        position = _after(position, length, end)
    if position != end:
        raise CorruptRecordError("a record whose parts do not add up to its length")


class ControlRecordType(enum.IntEnum):
    """The type of a control record, which its key holds.

    The first two end a transaction. The others are those of a metadata log and of its snapshots
    (KIP-595, KIP-630, KIP-853).
    """

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_ENDS_OF_TRANSACTIONS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


@frozen
class EndTransactionMarker:
    """The control record that ends a transaction: how, and which coordinator said so."""

    type: ControlRecordType
    coordinator_epoch: int


_CONTROL_KEY: Final = struct.Struct(">hh")
_MARKER_VALUE: Final = struct.Struct(">hi")


def encode_control_batch(
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """Return the batch that ends a producer's transaction."""
    record = control_record(
        marker.type, _MARKER_VALUE.pack(0, marker.coordinator_epoch), timestamp=timestamp
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_record(kind: ControlRecordType, value: bytes, *, timestamp: int) -> Record:
    """Return a record for a control batch."""
    return Record(timestamp=timestamp, key=_CONTROL_KEY.pack(0, kind), value=value)


def control_type(record: Record) -> int:
    """Return the type of a record of a control batch, which may be newer than this code."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptRecordError("a control record without a type")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptRecordError(f"a control record of version {version}")
    return int(kind)


def decode_control_record(record: Record) -> EndTransactionMarker | None:
    """Return how a record of a control batch ends a transaction; None if it ends none."""
    kind = control_type(record)
    if kind not in _ENDS_OF_TRANSACTIONS:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptRecordError("an end-of-transaction marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndTransactionMarker(ControlRecordType(kind), coordinator_epoch)


def read_marker(batch: Batch) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None where compaction has emptied it, or it ends no
    transaction.

    Only the first record is read, as Kafka does. Raise CorruptRecordError where it does not parse,
    and ExpansionError where the batch inflates to more than a megabyte.
    """
    header = read_header(batch)
    if not header.record_count:
        return None
    data = bytes(unpack(header, batch, max_size=_MAX_CONTROL_SIZE))
    return decode_control_record(next(decode_each(header, data)))
