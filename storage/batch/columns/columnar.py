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
stands in the view itself, as Arrow lays it down. `plain` copies, for readers without views.

Rule 2: a batch is read whole or not at all. Its CRC-32C is checked first; the batches before
a damaged one are yielded, then the error says where it stands. A batch of more records than
`_RECORDS_MOST` comes in several pieces, after each of them has been looked at: what vectors need
for a record is many times the size of the smallest one.

Rule 3: a control batch holds no records of the user's: it is left out, and its offsets are a
gap, as they are to a consumer. Aborted transactions' records are not filtered.

numpy and pyarrow are the `arrow` extra; importing them takes a tenth of a second, so import
this module only where columns are wanted.

The file is long because each step of decoding works on the same chunk of batches.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.attributes import frozen
from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns.arrow_columns import (
    COLUMNS,
    PLAIN_SCHEMA,
    SCHEMA,
    Part,
    append_time,
    column,
    plain,
    schema_of,
)
from storage.batch.columns.vectors import (
    LEAST_RECORD_SIZE,
    Integers,
    read_fields,
    read_headers,
    record_bodies,
)
from storage.batch.compression import decompress
from storage.batch.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    crc32c,
    read_header,
)
from storage.batch.records import MAX_DECOMPRESSED_SIZE, skip_records
from storage.errors import CorruptRecordError, InvalidRecordError
from storage.filesystem import File
from storage.types import Buffer, Offset

__all__ = [
    "CHUNK_SIZE",
    "COLUMNS",
    "PLAIN_SCHEMA",
    "SCHEMA",
    "CorruptBatchError",
    "Headers",
    "Keep",
    "Mask",
    "all_but",
    "decode",
    "plain",
    "read",
    "schema_of",
    "table",
]

# About this much of log becomes one pa.RecordBatch. Smaller loses to the cost of a vector
# operation, larger to the processor's caches.
CHUNK_SIZE: Final = 8 * 1024 * 1024
# What compressed batches of one chunk may grow to before it is cut.
_INFLATED_MOST: Final = 64 * 1024 * 1024
# The records that are taken apart at once: as many as a chunk of the smallest ones has.
_RECORDS_MOST: Final = CHUNK_SIZE // LEAST_RECORD_SIZE

_INT64_END: Final = 2**63

# The length and the magic of a batch, from its base offset on.
_SIZE_AND_MAGIC: Final = struct.Struct(">8xi4xb")


_LEAST_OFFSET: Final = -(2**63)
_MOST_OFFSET: Final = 2**63 - 1

# The headers of a chunk's batches, rows of `vectors.HEADER_TYPE`; and which of them to decode.
Headers: TypeAlias = npt.NDArray[np.void]
Mask: TypeAlias = npt.NDArray[np.bool_]
Keep: TypeAlias = Callable[[Headers], Mask]


@frozen(kw_only=True)
class _Wanted:
    """The columns and limits that a caller asked for."""

    columns: Sequence[str]
    check_crcs: bool
    control_batches: bool
    start_offset: Offset = _LEAST_OFFSET
    end_offset: Offset = _MOST_OFFSET
    keep: Keep | None = None

    @property
    def is_bounded(self) -> bool:
        return self.start_offset > _LEAST_OFFSET or self.end_offset < _MOST_OFFSET

    def batches(self, headers: Headers) -> Mask:
        """Return which batches may hold a record that is wanted."""
        found = np.ones(len(headers), np.bool_)
        if not self.control_batches:
            found &= (headers["attributes"] & CONTROL_BIT) == 0
        if self.is_bounded:
            found &= headers["base_offset"] + headers["last_offset_delta"] >= self.start_offset
            found &= headers["base_offset"] < self.end_offset
        return found if self.keep is None else found & self.keep(headers)

    def rows(self, part: Part) -> slice:
        """Return which records of `part` lie between the offsets."""
        headers = part.headers
        first, last = headers["base_offset"], headers["base_offset"] + headers["last_offset_delta"]
        whole = first.min() >= self.start_offset and last.max() < self.end_offset
        if whole or not self.is_bounded:
            return slice(None)
        offsets = part.per_record("base_offset", np.int64) + part.fields.offset_deltas
        if (offsets[1:] <= offsets[:-1]).any():
            raise CorruptRecordError("offsets that do not rise")
        begin, end = np.searchsorted(offsets, [self.start_offset, self.end_offset])
        return slice(int(begin), int(end))


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
    start_offset: Offset = _LEAST_OFFSET,
    end_offset: Offset = _MOST_OFFSET,
    keep: Keep | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the whole batches in `buffer`; a trailing partial batch is left.

    Only the columns in `columns` are built, and only the records from `start_offset` to
    `end_offset`, which is exclusive. With `control_batches`, those are decoded too. `keep` selects
    batches by their headers; the CRC-32C of the others is checked all the same.
    """
    view = memoryview(buffer)
    wanted = _Wanted(
        columns=columns,
        check_crcs=check_crcs,
        control_batches=control_batches,
        start_offset=start_offset,
        end_offset=end_offset,
        keep=keep,
    )
    *begins, end = _borders(view)
    yield from _decode_whole(view[:end], begins, wanted)
    if len(view) - end >= _SIZE_AND_MAGIC.size:
        length, magic = _SIZE_AND_MAGIC.unpack_from(view, end)
        if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC:
            raise CorruptBatchError(_no_batch(length, magic), end)


def all_but(base_offsets: Sequence[Offset]) -> Keep:
    """Return a `keep` for every batch but those that begin at `base_offsets`."""
    left_out = np.array(base_offsets, np.int64)
    return lambda headers: ~np.isin(headers["base_offset"], left_out)


def table(batches: Sequence[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> pa.Table:
    """Return a table of `batches`, one after the other; nothing is copied."""
    return pa.Table.from_batches(batches, schema_of(columns))


def read(
    file: File,
    *,
    position: int = 0,
    end: int | None = None,
    chunk_size: int = CHUNK_SIZE,
    columns: Sequence[str] = COLUMNS,
    check_crcs: bool = True,
    control_batches: bool = False,
    start_offset: Offset = _LEAST_OFFSET,
    end_offset: Offset = _MOST_OFFSET,
    keep: Keep | None = None,
    reuse_buffer: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a `.log` file from byte `position` to `end`, in bounded memory.

    The file is read rather than mapped: a log that is truncated under a map kills the process. A
    torn batch at the end is the end. Raise DamagedLogError, with the place, at damage. With
    `reuse_buffer` a piece is valid only until the next one: use it where each is copied at once.
    """
    end = file.size() if end is None else end
    size = chunk_size = max(chunk_size, HEADER_SIZE)
    wanted = _Wanted(
        columns=columns,
        check_crcs=check_crcs,
        control_batches=control_batches,
        start_offset=start_offset,
        end_offset=end_offset,
        keep=keep,
    )
    room = bytearray()
    while end - position >= HEADER_SIZE:
        data: Buffer
        if reuse_buffer:
            if len(room) < min(size, end - position):
                room = bytearray(min(size, end - position))
            view = memoryview(room)[: end - position]
            data = view[: file.read_into(position, view)]
        else:
            data = file.read(position, min(size, end - position))
        if len(data) < HEADER_SIZE:
            return  # it has been cut meanwhile
        *begins, used = _borders(data)
        if not begins:
            needed = _first_size(file.path, data, position)
            if needed > end - position:
                return
            size = max(chunk_size, needed)
            continue
        try:
            yield from _decode_whole(memoryview(data)[:used], begins, wanted)
        except CorruptBatchError as error:
            at = position + error.position
            raise DamagedLogError(error.reason, path=file.path, position=at) from error
        position += used
        size = chunk_size


def _borders(data: Buffer) -> list[int]:
    """Return where whole batches begin, and where the last of them ends."""
    position, end = 0, len(data)
    found = [0]
    while end - position >= _SIZE_AND_MAGIC.size:
        length, magic = _SIZE_AND_MAGIC.unpack_from(data, position)
        position += LENGTH_OVERHEAD + length
        if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC or position > end:
            break
        found.append(position)
    return found


def _first_size(path: str, data: Buffer, position: int) -> int:
    """Return the size of the batch that `data` begins with, however little of it is there."""
    length, magic = _SIZE_AND_MAGIC.unpack_from(data)
    if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC:
        raise DamagedLogError(_no_batch(length, magic), path=path, position=position)
    return int(length) + LENGTH_OVERHEAD


def _no_batch(length: int, magic: int) -> str:
    return f"no batch begins here (it would have length {length}, magic {magic})"


def _decode_whole(view: memoryview, begins: list[int], wanted: _Wanted) -> Iterator[pa.RecordBatch]:
    """Decode the batches that begin at `begins` and fill `view`, at most `CHUNK_SIZE` at a time."""
    first, ends = 0, [*begins[1:], len(view)]
    while first < len(begins):
        # A larger batch stands alone.
        following = max(first + 1, bisect_right(ends, begins[first] + CHUNK_SIZE))
        yield from _decode_chunk(view, begins[first:following], wanted)
        first = following


def _decode_chunk(
    view: memoryview, positions: list[int], wanted: _Wanted
) -> Iterator[pa.RecordBatch]:
    """Decode a chunk in pieces; where a piece fails, batch by batch up to the damaged one.

    No piece is decoded before the one in front of it has been taken: together, compressed batches
    may inflate to far more than they are.
    """
    done = positions[0]
    try:
        for end, found in _decode_batches(view, positions, wanted):
            yield found
            done = end
    except (CorruptRecordError, InvalidRecordError, IndexError) as error:
        if len(positions) == 1:
            raise CorruptBatchError(str(error), positions[0]) from error
        # Batches that only fail together, as offsets do that fall from one to the next, are decoded.
        for position in positions[bisect_left(positions, done) :]:
            yield from _decode_chunk(view, [position], wanted)


def _decode_batches(
    view: memoryview, positions: list[int], wanted: _Wanted
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records of the batches at `positions` in pieces, each with the byte where its last
    batch ends.
    """
    view = view[positions[0] :]
    begins = np.array(positions, np.int64) - positions[0]
    headers = read_headers(np.frombuffer(view, np.uint8), begins)
    ends = begins + headers["length"] + LENGTH_OVERHEAD
    if wanted.check_crcs:
        covered = (begins + CRC_COVERS_FROM).tolist()
        for crc, begin, end in zip(headers["crc"].tolist(), covered, ends.tolist(), strict=True):
            if crc32c(view[begin:end]) != crc:
                raise CorruptRecordError("its CRC-32C does not match")
    keep = wanted.batches(headers)
    if not keep.all():
        headers, begins, ends = headers[keep], begins[keep], ends[keep]
    compressed = (headers["attributes"] & CODEC_MASK) != 0
    for first, last in _runs(compressed):
        run = slice(first, last)
        if compressed[first]:
            pieces = _inflate(view, headers[run], begins[run], ends[run], wanted)
        else:
            origin, end = int(begins[first]), int(ends[last - 1])
            places = begins[run] - origin + HEADER_SIZE, ends[run] - origin
            found = _assemble(view[origin:end], headers[run], *places, wanted)
            pieces = ((end, piece) for piece in found)
        for end, piece in pieces:
            yield positions[0] + end, piece


def _runs(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the stretches over which `flags` does not change."""
    if flags.size:
        borders = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
        yield from zip([0, *borders], [*borders, flags.size], strict=True)


def _inflate(
    view: memoryview,
    headers: npt.NDArray[np.void],
    begins: Integers,
    ends: Integers,
    wanted: _Wanted,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Decompress batches into one buffer, decode that, and begin another where it is full."""
    inflated, stops, first, records = bytearray(), [0], 0, 0
    counts = headers["record_count"].tolist()
    for index, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        codec = read_header(view, begin).codec
        body = view[begin + HEADER_SIZE : end]
        # Copied at once: a codec's output may lie in a memory map of the largest size it might have had.
        inflated += decompress(codec, body, max_size=MAX_DECOMPRESSED_SIZE)
        stops.append(len(inflated))
        records += counts[index]
        if (
            index + 1 == len(headers)
            or len(inflated) >= _INFLATED_MOST
            or records + counts[index + 1] > _RECORDS_MOST
        ):
            places = np.array(stops, np.int64)
            rows = headers[first : index + 1]
            for piece in _assemble(memoryview(inflated), rows, places[:-1], places[1:], wanted):
                yield end, piece
            inflated, stops, first, records = bytearray(), [0], index + 1, 0


def _assemble(
    view: memoryview,
    headers: npt.NDArray[np.void],
    begins: Integers,
    ends: Integers,
    wanted: _Wanted,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of the batches whose records stand in `view`: one piece, unless it is one
    batch of too many records, and none where there are no records.
    """
    count, size = int(headers["record_count"][0]), int(ends[0] - begins[0])
    if len(headers) > 1 or not _RECORDS_MOST < count <= size // LEAST_RECORD_SIZE:
        found = _columns(view, headers, begins, ends, wanted)
        if found is not None:
            yield found
        return
    view = view[int(begins[0]) : int(ends[0])]
    for _ in _pieces(view, headers, wanted):
        pass  # nothing is yielded of a batch that is damaged further on
    yield from _pieces(view, headers, wanted)


def _pieces(
    view: memoryview, headers: npt.NDArray[np.void], wanted: _Wanted
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of one large batch, `_RECORDS_MOST` records at a time."""
    begin, left = 0, int(headers["record_count"][0])
    while left:
        part = headers.copy()
        part["record_count"] = count = min(left, _RECORDS_MOST)
        left -= count
        end = skip_records(view, begin, count) if left else len(view)
        place = np.array([0, end - begin], np.int64)
        found = _columns(view[begin:end], part, place[:1], place[1:], wanted)
        if found is not None:
            yield found
        begin = end


def _columns(
    view: memoryview,
    headers: npt.NDArray[np.void],
    begins: Integers,
    ends: Integers,
    wanted: _Wanted,
) -> pa.RecordBatch | None:
    """Return the columns of the batches whose records stand in `view`; None if there are no
    records.
    """
    counts = headers["record_count"].astype(np.int64)
    data = np.frombuffer(view, np.uint8)
    bodies = record_bodies(data, begins, ends, counts)
    fields = read_fields(data, bodies)
    if not bodies.starts.size:
        return None
    part = Part(headers, counts, fields, data, pa.py_buffer(view))
    _check_sums(part)
    arrays = [column(name, part) for name in wanted.columns]
    found = pa.RecordBatch.from_arrays(arrays, schema=schema_of(wanted.columns))
    rows = wanted.rows(part)
    return found if rows == slice(None) else found[rows]


def _check_sums(part: Part) -> None:
    """CorruptRecordError where an offset or a timestamp would not fit 64 bits."""
    create_time = np.repeat(~append_time(part), part.counts)
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
