"""Record batches as Arrow columns: what a notebook, Spark or Parquet wants of a log.

    offset            int64
    timestamp         timestamp[ms, UTC]   as stored: -1 where the producer gave none
    timestamp_type    int8                 0 CreateTime, 1 LogAppendTime
    key, value        binary_view          null where Kafka's is
    headers           list<struct<key: string_view, value: binary_view>>
    leader_epoch      int32
    producer_id       int64                -1 where there is none

Rule 1: no key or value is copied. A view points into the buffer that was read, or that a
compressed batch was inflated into, and keeps it alive; only what has 12 bytes or fewer
stands in the view itself, as Arrow lays it down. `plain` copies, for who cannot take views.

Rule 2: a batch is read whole or not at all. Its CRC-32C is checked first; the batches before
a damaged one are yielded, then the error says where it stands.

Rule 3: a control batch holds no records of the user's: it is left out, and its offsets are a
gap, as they are to a consumer. Aborted transactions' records are not filtered.

numpy and pyarrow are the `arrow` extra; importing them takes a tenth of a second, so import
this module only where columns are wanted.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.batch_stream import DamagedLogError
from storage.compression import decompress
from storage.errors import CorruptRecordError, InvalidRecordError
from storage.filesystem import File
from storage.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    check_crc,
    read_header,
)
from storage.records import MAX_DECOMPRESSED_SIZE
from storage.types import Buffer
from storage.vectors import Bytes, Fields, Integers, read_fields, read_headers, record_bodies, views

# About this much of log becomes one pa.RecordBatch. Smaller loses to the cost of a vector
# operation, larger to the processor's caches.
CHUNK_SIZE: Final = 8 * 1024 * 1024
# What compressed batches of one chunk may grow to before it is cut.
_INFLATED_MOST: Final = 64 * 1024 * 1024

_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string_view(), nullable=False), ("value", pa.binary_view())])
)
_PLAIN_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
)


def _schema(binary: pa.DataType, headers: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("timestamp_type", pa.int8(), nullable=False),
            pa.field("key", binary),
            pa.field("value", binary),
            pa.field("headers", headers, nullable=False),
            pa.field("leader_epoch", pa.int32(), nullable=False),
            pa.field("producer_id", pa.int64(), nullable=False),
        ]
    )


SCHEMA: Final = _schema(pa.binary_view(), _HEADERS)
PLAIN_SCHEMA: Final = _schema(pa.binary(), _PLAIN_HEADERS)
COLUMNS: Final = tuple(SCHEMA.names)

_INT64_END: Final = 2**63

# The length and the magic of a batch, from its base offset on.
_SIZE_AND_MAGIC: Final = struct.Struct(">8xi4xb")


@attrs.frozen(kw_only=True)
class _Wanted:
    """What a caller asked for."""

    columns: Sequence[str]
    check_crcs: bool
    control_batches: bool


@attrs.frozen
class _Part:
    """Batches of one run, taken apart: what columns are made of."""

    headers: npt.NDArray[np.void]
    counts: Integers
    fields: Fields
    data: Bytes
    buffer: pa.Buffer

    def per_record(self, field: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A header's field, once for each record of its batch."""
        return np.repeat(self.headers[field].astype(kind), self.counts)


class CorruptBatchError(CorruptRecordError):
    """The batch at byte `position` of what was given is damaged."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"the batch at byte {position}: {reason}")
        self.reason = reason
        self.position = position


def decode(
    buffer: Buffer,
    *,
    columns: Sequence[str] = COLUMNS,
    check_crcs: bool = True,
    control_batches: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of the whole batches in `buffer`; a trailing partial batch is left.

    A column that is not in `columns` is not built. `control_batches` takes those in as well.
    """
    view = memoryview(buffer)
    wanted = _Wanted(columns=columns, check_crcs=check_crcs, control_batches=control_batches)
    for positions in _chunks(view):
        yield from _decode_chunk(view, positions, wanted)


def read(
    file: File,
    *,
    position: int = 0,
    end: int | None = None,
    chunk_size: int = CHUNK_SIZE,
    columns: Sequence[str] = COLUMNS,
    check_crcs: bool = True,
    control_batches: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of a `.log` file from byte `position` to `end`, in bounded memory.

    Reads into memory rather than mapping the file: a log that is truncated under a map kills
    the process. A torn batch at the end is the end. DamagedLogError says where damage is.
    """
    end = file.size() if end is None else end
    size = chunk_size = max(chunk_size, HEADER_SIZE)
    while end - position >= HEADER_SIZE:
        data = file.read(position, min(size, end - position))
        used = whole_size(data)
        if used == 0:
            needed = _first_size(file.path, data, position)
            if needed > end - position:
                return
            size = max(chunk_size, needed)
            continue
        try:
            yield from decode(
                memoryview(data)[:used],
                columns=columns,
                check_crcs=check_crcs,
                control_batches=control_batches,
            )
        except CorruptBatchError as error:
            at = position + error.position
            raise DamagedLogError(error.reason, path=file.path, position=at) from error
        position += used
        size = chunk_size


def whole_size(data: Buffer) -> int:
    """How many bytes of `data` are whole batches; what stands after them may be damage."""
    position, end = 0, len(data)
    while end - position >= _SIZE_AND_MAGIC.size:
        length, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
        if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC:
            break
        if position + LENGTH_OVERHEAD + length > end:
            break
        position += LENGTH_OVERHEAD + length
    return position


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` in Arrow's older types, its keys and values copied: for Spark and Parquet."""
    wanted = pa.schema([PLAIN_SCHEMA.field(name) for name in batch.schema.names])
    arrays = [batch.column(field.name).cast(field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _first_size(path: str, data: Buffer, position: int) -> int:
    """The size of the batch that `data` begins with, however little of it is there."""
    length, magic = _SIZE_AND_MAGIC.unpack_from(data)
    if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC:
        raise DamagedLogError(_no_batch(length, magic), path=path, position=position)
    return int(length) + LENGTH_OVERHEAD


def _no_batch(length: int, magic: int) -> str:
    return f"no batch begins here (it would have length {length}, magic {magic})"


def _chunks(view: memoryview) -> Iterator[list[int]]:
    """Positions of whole batches, about `CHUNK_SIZE` at a time."""
    position, end = 0, len(view)
    positions: list[int] = []
    while end - position >= _SIZE_AND_MAGIC.size:
        length, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
        if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC:
            yield positions
            raise CorruptBatchError(_no_batch(length, magic), position)
        following = position + LENGTH_OVERHEAD + length
        if following > end:
            break
        positions.append(position)
        position = following
        if position - positions[0] >= CHUNK_SIZE:
            yield positions
            positions = []
    yield positions


def _decode_chunk(
    view: memoryview, positions: list[int], wanted: _Wanted
) -> Iterator[pa.RecordBatch]:
    """One chunk at once; where that fails, batch by batch up to the one that is damaged."""
    if not positions:
        return
    try:
        yield from list(_decode_batches(view, positions, wanted))
    except (CorruptRecordError, InvalidRecordError, IndexError) as error:
        if len(positions) == 1:
            raise CorruptBatchError(str(error), positions[0]) from error
        for position in positions:
            yield from _decode_chunk(view, [position], wanted)
        raise AssertionError("what fails in a chunk fails alone") from error  # pragma: no cover


def _decode_batches(
    view: memoryview, positions: list[int], wanted: _Wanted
) -> Iterator[pa.RecordBatch]:
    view = view[positions[0] :]
    begins = np.array(positions, np.int64) - positions[0]
    headers = read_headers(np.frombuffer(view, np.uint8), begins)
    ends = begins + headers["length"] + LENGTH_OVERHEAD
    if wanted.check_crcs:
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if not check_crc(view[begin:end]):
                raise CorruptRecordError("its CRC-32C does not match")
    if not wanted.control_batches:
        keep = (headers["attributes"] & CONTROL_BIT) == 0
        headers, begins, ends = headers[keep], begins[keep], ends[keep]
    compressed = (headers["attributes"] & CODEC_MASK) != 0
    for first, last in _runs(compressed):
        run = slice(first, last)
        if compressed[first]:
            yield from _inflate(view, headers[run], begins[run], ends[run], wanted)
        else:
            origin = int(begins[first])
            data = view[origin : int(ends[last - 1])]
            places = begins[run] - origin + HEADER_SIZE, ends[run] - origin
            yield from _assemble(data, headers[run], *places, wanted)


def _runs(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The stretches over which `flags` does not change."""
    if flags.size:
        borders = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
        yield from zip([0, *borders], [*borders, flags.size], strict=True)


def _inflate(
    view: memoryview,
    headers: npt.NDArray[np.void],
    begins: Integers,
    ends: Integers,
    wanted: _Wanted,
) -> Iterator[pa.RecordBatch]:
    """Decompress batches into one buffer, and decode that."""
    inflated, stops, first = bytearray(), [0], 0
    for index, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        codec = read_header(view, begin).codec
        body = view[begin + HEADER_SIZE : end]
        # Taken out at once: what a codec gives may lie in a map of all that it might have been.
        inflated += decompress(codec, body, max_size=MAX_DECOMPRESSED_SIZE)
        stops.append(len(inflated))
        if len(inflated) >= _INFLATED_MOST or index + 1 == len(headers):
            places = np.array(stops, np.int64)
            rows = headers[first : index + 1]
            yield from _assemble(memoryview(inflated), rows, places[:-1], places[1:], wanted)
            inflated, stops, first = bytearray(), [0], index + 1


def _assemble(
    view: memoryview,
    headers: npt.NDArray[np.void],
    begins: Integers,
    ends: Integers,
    wanted: _Wanted,
) -> Iterator[pa.RecordBatch]:
    """Columns of the batches whose records stand in `view`."""
    counts = headers["record_count"].astype(np.int64)
    data = np.frombuffer(view, np.uint8)
    bodies = record_bodies(data, begins, ends, counts)
    fields = read_fields(data, bodies)
    if not bodies.starts.size:
        return
    part = _Part(headers, counts, fields, data, pa.py_buffer(view))
    _check_sums(part)
    arrays = [_column(name, part) for name in wanted.columns]
    schema = pa.schema([SCHEMA.field(name) for name in wanted.columns])
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, part: _Part) -> pa.Array:
    fields = part.fields
    match name:
        case "offset":
            return pa.array(part.per_record("base_offset", np.int64) + fields.offset_deltas)
        case "timestamp":
            return _timestamps(part)
        case "timestamp_type":
            return pa.array(np.repeat(_append_time(part).astype(np.int8), part.counts))
        case "key":
            return _views(pa.binary_view(), fields.key_starts, fields.key_lengths, part)
        case "value":
            return _views(pa.binary_view(), fields.value_starts, fields.value_lengths, part)
        case "headers":
            return _header_lists(part)
        case "leader_epoch":
            return pa.array(part.per_record("leader_epoch", np.int32))
        case "producer_id":
            return pa.array(part.per_record("producer_id", np.int64))
        case other:
            raise KeyError(f"no column {other!r}; there are {', '.join(COLUMNS)}")


def _check_sums(part: _Part) -> None:
    """CorruptRecordError where an offset or a timestamp would not fit 64 bits."""
    create_time = np.repeat(~_append_time(part), part.counts)
    for field, deltas, counted in (
        ("base_offset", part.fields.offset_deltas, None),
        ("base_timestamp", part.fields.timestamp_deltas, create_time),
    ):
        bases = part.headers[field]
        high = int(bases.max()) + int(deltas.max())
        if high < _INT64_END and int(bases.min()) + int(deltas.min()) >= -_INT64_END:
            continue
        first = part.per_record(field, np.int64)
        total = first + deltas
        # It wrapped where both have the sign that the sum has not.
        wrapped = ((first ^ total) & (deltas ^ total)) < 0
        if (wrapped if counted is None else wrapped & counted).any():
            raise CorruptRecordError("an offset or a timestamp of more than 64 bits")


def _append_time(part: _Part) -> npt.NDArray[np.bool_]:
    """Which batches are of log-append time."""
    return np.asarray((part.headers["attributes"] & LOG_APPEND_TIME_BIT) != 0)


def _timestamps(part: _Part) -> pa.Array:
    times = part.per_record("base_timestamp", np.int64) + part.fields.timestamp_deltas
    append_time = _append_time(part)
    if append_time.any():
        # The leader stamps the header alone; every record of the batch is that old.
        latest = part.per_record("max_timestamp", np.int64)
        times = np.where(np.repeat(append_time, part.counts), latest, times)
    kind = SCHEMA.field("timestamp").type
    return pa.Array.from_buffers(kind, len(times), [None, pa.py_buffer(times)])


def _header_lists(part: _Part) -> pa.Array:
    found = part.fields.headers
    counts = np.zeros_like(part.fields.key_starts) if found is None else found.counts
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    if found is None:
        structs = pa.array([], _HEADERS.value_type)
    else:
        names = _views(pa.string_view(), found.key_starts, found.key_lengths, part)
        _check_utf8(names)
        values = _views(pa.binary_view(), found.value_starts, found.value_lengths, part)
        structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=_HEADERS)


def _check_utf8(names: pa.Array) -> None:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptRecordError(f"a header's name: {error}") from error


def _views(kind: pa.DataType, starts: Integers, lengths: Integers, part: _Part) -> pa.Array:
    valid, nulls = None, int(np.count_nonzero(lengths < 0))
    if nulls:
        valid = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(views(part.data, starts, lengths)), part.buffer]
    return pa.Array.from_buffers(kind, len(starts), buffers, nulls)
