"""The batch headers of a segment as rows, without Spark: what an audit needs of a log.

    00000000000000000000.log   [0-4 e0 crc a][5-9 e0 crc b][10-12 e1 crc c] ~torn~
    rows                       0-4 e0 a      5-9 e0 b      10-12 e1 c       damage at 13

Rule 1: record bytes are not looked at, unless every CRC is to be checked: only then is each
byte read, and only then does bit rot show.

Rule 2: a sound segment is read by vectors: its headers are gathered and checked all at once.
Where anything is off, `storage.batch_stream` reads it again, one batch at a time; what it
calls damage ends the segment's rows with a row that says so, in the same words as
`understudy verify`.
"""

from collections.abc import Iterator
from typing import Final

import attrs
import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.batch_stream import BatchStream, DamagedLogError
from storage.columnar import whole_size
from storage.filesystem import File, FileSystem
from storage.record_batch import CRC_COVERS_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from storage.types import Offset, TopicPartition
from storage.vectors import HEADER_TYPE, read_headers

# One row a batch; a row with `damage` stands where the next batch should.
SCHEMA: Final = pa.schema(
    [
        ("replica", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("crc", pa.int64()),
        ("size", pa.int32()),
        ("record_count", pa.int32()),
        ("max_timestamp", pa.int64()),
        ("is_sound", pa.bool_()),  # whether its CRC-32C matches; null where it was not computed
        ("damage", pa.string()),
    ]
)
# The last batch of a segment reaches into the next one's offsets: together they are no log.
OVERLAP: Final = "reaches into the next segment"

CHUNK_BYTES: Final = 4 * 1024 * 1024
# Below this much between two headers, reading on costs less than another call.
_WINDOW_BYTES: Final = 64 * 1024
_NEAR_BYTES: Final = 4096

Rows = npt.NDArray[np.void]


@attrs.frozen(kw_only=True)
class Segment:
    """One `.log` file of one replica; `next_base` is that of the segment after it."""

    replica: str
    topic_partition: TopicPartition
    directory: str
    base_offset: Offset
    next_base: Offset | None
    size: int

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.base_offset:020d}.log"


@attrs.frozen
class Damage:
    """Where a segment stops being batches, and which offset should have come next."""

    position: int
    offset: Offset
    reason: str


@attrs.frozen
class Scanned:
    """The headers of a segment's batches, where they stand, and what ends them too early."""

    headers: Rows
    positions: npt.NDArray[np.int64]
    is_sound: npt.NDArray[np.bool_] | None
    damage: Damage | None = None

    @property
    def last_offsets(self) -> npt.NDArray[np.int64]:
        bases = self.headers["base_offset"].astype(np.int64)
        return np.asarray(bases + self.headers["last_offset_delta"])

    def next_offset(self, base_offset: Offset) -> Offset:
        """What comes after the last batch, in a segment that begins at `base_offset`."""
        return int(self.last_offsets[-1]) + 1 if len(self.headers) else base_offset


def scan(files: FileSystem, segment: Segment, *, check_crcs: bool) -> Scanned:
    """Everything that the audit wants of a segment."""
    file = files.open_for_reading(segment.path)
    try:
        found = _read_all(file) if check_crcs else _read_headers(file)
    finally:
        file.close()
    if found is not None and _is_sound_log(found, segment.base_offset):
        return found
    return scan_slowly(files, segment, check_crcs=check_crcs)


def scan_slowly(files: FileSystem, segment: Segment, *, check_crcs: bool) -> Scanned:
    """The same, batch by batch: over damage, and for a test to hold the quick way against."""
    stream = BatchStream(files, segment.directory)
    stream.segments, stream.next_offset = [segment.base_offset], segment.base_offset
    headers, positions, sound = [], [], []
    damage = None
    try:
        while (header := stream.head()) is not None:
            headers.append(HEADER.pack(*header))
            positions.append(stream.position)
            if check_crcs:
                sound.append(_take_crc(stream, header.size) == header.crc)
            else:
                stream.skip(header.size)
            stream.passed(header)
    except DamagedLogError as error:
        damage = Damage(error.position, stream.next_offset, error.reason)
    finally:
        stream.close()
    return Scanned(
        np.frombuffer(b"".join(headers), HEADER_TYPE),
        np.array(positions, np.int64),
        np.array(sound, np.bool_) if check_crcs else None,
        damage,
    )


def to_arrow(segment: Segment, found: Scanned) -> pa.RecordBatch:
    """The rows of one segment, as `SCHEMA` has them."""
    batches = _batch_rows(segment, found)
    end = found.next_offset(segment.base_offset)
    if found.damage is not None:
        told = found.damage
    elif segment.next_base is not None and end > segment.next_base:
        told = Damage(segment.size, segment.next_base, OVERLAP)
    else:
        return batches
    row = dict.fromkeys(SCHEMA.names) | _who(segment)
    row |= {"position": told.position, "damage": told.reason}
    row |= {"base_offset": told.offset, "last_offset": told.offset}
    damage = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    return pa.Table.from_batches([batches, damage]).combine_chunks().to_batches()[0]


def _batch_rows(segment: Segment, found: Scanned) -> pa.RecordBatch:
    count = len(found.headers)
    sound = pa.nulls(count, pa.bool_()) if found.is_sound is None else pa.array(found.is_sound)
    header = found.headers
    columns = {name: pa.repeat(pa.scalar(value), count) for name, value in _who(segment).items()}
    columns |= {
        "position": found.positions,
        "base_offset": header["base_offset"],
        "last_offset": found.last_offsets,
        "leader_epoch": header["leader_epoch"],
        "crc": header["crc"],
        "size": header["length"] + LENGTH_OVERHEAD,
        "record_count": header["record_count"],
        "max_timestamp": header["max_timestamp"],
        "is_sound": sound,
        "damage": pa.nulls(count, pa.string()),
    }
    arrays = [_column(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(values: "npt.NDArray[np.generic] | pa.Array", kind: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray):
        return pa.array(values.astype(kind.to_pandas_dtype()), kind)
    return values.cast(kind)


def _who(segment: Segment) -> dict[str, str | int]:
    tp = segment.topic_partition
    return {
        "replica": segment.replica,
        "topic": tp.topic,
        "partition": tp.partition,
        "segment": segment.base_offset,
    }


def _read_headers(file: File) -> Scanned | None:
    """By headers alone; None where the file is not one batch after the other to its end."""
    size, position, step = file.size(), 0, _WINDOW_BYTES
    positions: list[int] = []
    pieces: list[bytes] = []
    window, window_start = b"", 0
    while position < size:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = file.read(position, step), position, 0
            if len(window) < HEADER_SIZE:
                return None
        header = window[at : at + HEADER_SIZE]
        length = int.from_bytes(header[8:12], "big", signed=True)
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            return None
        positions.append(position)
        pieces.append(header)
        position += length + LENGTH_OVERHEAD
        step = HEADER_SIZE if length > _NEAR_BYTES else _WINDOW_BYTES
    if position != size:
        return None
    headers = np.frombuffer(b"".join(pieces), HEADER_TYPE)
    return Scanned(headers, np.array(positions, np.int64), None)


def _read_all(file: File) -> Scanned | None:
    """With the CRC-32C of every batch; None as above."""
    size, position, wanted = file.size(), 0, CHUNK_BYTES
    headers: list[Rows] = []
    positions: list[npt.NDArray[np.int64]] = []
    sound: list[bool] = []
    while position < size:
        data = file.read(position, min(wanted, size - position))
        used = whole_size(data)
        if used == 0:
            if len(data) < wanted:
                return None  # the file ends inside of a batch, or no batch stands here
            wanted *= 2
            continue
        begins = _walk(data, used, sound)
        headers.append(read_headers(np.frombuffer(data, np.uint8), begins))
        positions.append(begins + position)
        position, wanted = position + used, CHUNK_BYTES
    if not headers:
        return _read_headers(file)
    return Scanned(np.concatenate(headers), np.concatenate(positions), np.array(sound, np.bool_))


def _walk(data: bytes, used: int, sound: list[bool]) -> npt.NDArray[np.int64]:
    """Where the batches in `data` begin; whether each one's CRC-32C matches goes to `sound`."""
    view, begins, at = memoryview(data), [], 0
    while at < used:
        end = at + LENGTH_OVERHEAD + int.from_bytes(view[at + 8 : at + 12], "big")
        stored = int.from_bytes(view[at + 17 : at + CRC_COVERS_FROM], "big")
        sound.append(crc32c.crc32c(view[at + CRC_COVERS_FROM : end]) == stored)
        begins.append(at)
        at = end
    return np.array(begins, np.int64)


def _is_sound_log(found: Scanned, base_offset: Offset) -> bool:
    """Whether these headers are a log's: of our format, each after the one before it."""
    header = found.headers
    if not len(header):
        return True
    bases, lasts = header["base_offset"].astype(np.int64), found.last_offsets
    return bool(
        (header["magic"] == MAGIC).all()
        and (header["last_offset_delta"] >= 0).all()
        and (lasts >= bases).all()
        and bases[0] >= base_offset
        and (bases[1:] > lasts[:-1]).all()
    )


def _take_crc(stream: BatchStream, size: int) -> int:
    """Take a batch from `stream`: the CRC-32C that it ought to carry."""
    crc = int(crc32c.crc32c(stream.take(HEADER_SIZE)[CRC_COVERS_FROM:]))
    left = size - HEADER_SIZE
    while left:
        data = stream.take(min(left, stream.available))
        crc = int(crc32c.crc32c(data, crc))
        left -= len(data)
    return crc


def rows_of(
    files: FileSystem, segments: Iterator[Segment], *, check_crcs: bool, most_rows: int = 65_536
) -> Iterator[pa.RecordBatch]:
    """The rows of many segments, small ones together."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for segment in segments:
        found = to_arrow(segment, scan(files, segment, check_crcs=check_crcs))
        waiting.append(found)
        count += found.num_rows
        if count >= most_rows:
            yield from _together(waiting)
            waiting, count = [], 0
    yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield from pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks().to_batches()
