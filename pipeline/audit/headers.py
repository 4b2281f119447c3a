"""The batch headers of a segment as rows, read without Spark: all that an audit needs of a log.

    00000000000000000000.log   [0-4 e0 crc a][5-9 e0 crc b][10-12 e1 crc c] ~torn~
    rows                       0-4 e0 a      5-9 e0 b      10-12 e1 c       damage at 13

Rule 1: record bytes are not looked at, unless every CRC is to be checked: only then is each
byte read, and only then does bit rot show.

Rule 2: a sound segment is read by vectors: its headers are gathered and checked all at once.
With every CRC, one buffer is filled over and over: what has just been copied into it is still
in the processor's cache when its CRC is taken.
Where anything is off, `storage.batch.batch_stream` reads it again, one batch at a time; what it
calls damage ends the segment's rows with a row that says so, in the same words as
`understudy verify`.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.batch.batch_stream import BatchStream, DamagedLogError
from storage.batch.columns.vectors import HEADER_TYPE
from storage.batch.record_batch import (
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from storage.filesystem import File, FileSystem
from storage.types import Buffer, Offset, TopicPartition

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
# The damage of a segment whose last batch reaches into the offsets of the next segment.
OVERLAP: Final = "reaches into the next segment"

CHUNK_BYTES: Final = 512 * 1024
# Below this much between two headers, reading on costs less than another call.
_WINDOW_BYTES: Final = 64 * 1024
_NEAR_BYTES: Final = 4096
_LENGTH_AND_MAGIC: Final = struct.Struct(">8xi4xb")

Rows = npt.NDArray[np.void]


@attrs.frozen(kw_only=True)
class SegmentHeaders:
    """One `.log` file of one replica; `next_base` is the base offset of the segment after it.

    Offsets below `start_offset` are not compared.
    """

    replica: str
    topic_partition: TopicPartition
    directory: str
    base_offset: Offset
    next_base: Offset | None
    size: int
    start_offset: Offset = 0

    @property
    def path(self) -> str:
        return segment_path(self.directory, self.base_offset)


def segment_path(directory: str, base_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}.log"


@attrs.frozen
class HeaderDamage:
    """The place where a segment stops being batches, and the offset that should come next."""

    position: int
    offset: Offset
    reason: str


@attrs.frozen
class Scanned:
    """The headers of a segment's batches, their positions, and the damage that ends them early."""

    headers: Rows
    positions: npt.NDArray[np.int64]
    is_sound: npt.NDArray[np.bool_] | None
    damage: HeaderDamage | None = None

    @classmethod
    def together(cls, found: "Sequence[Scanned]") -> "Scanned":
        """Join the headers of many segments, without their damage."""
        sound = None
        if any(each.is_sound is not None for each in found):
            sound = np.concatenate([_sound_or_unchecked(each) for each in found])
        return cls(
            _together([each.headers.data for each in found]),
            np.concatenate([each.positions for each in found]),
            sound,
        )

    @property
    def last_offsets(self) -> npt.NDArray[np.int64]:
        bases = self.headers["base_offset"].astype(np.int64)
        return np.asarray(bases + self.headers["last_offset_delta"])

    def next_offset(self, base_offset: Offset) -> Offset:
        """Return the offset after the last batch of a segment that begins at `base_offset`."""
        return int(self.last_offsets[-1]) + 1 if len(self.headers) else base_offset


def scan(files: FileSystem, segment: SegmentHeaders, *, check_crcs: bool) -> Scanned:
    """Read the headers of a segment, and over damage batch by batch."""
    found = read_quickly(files, segment, check_crcs=check_crcs)
    if found is not None and is_in_order(found, segment.base_offset).all():
        return found
    return scan_slowly(files, segment, check_crcs=check_crcs)


def read_quickly(files: FileSystem, segment: SegmentHeaders, *, check_crcs: bool) -> Scanned | None:
    """Read headers that follow one another, or return None if they do not end with the file."""
    file = files.open_for_reading(segment.path)
    try:
        return _read_all(file) if check_crcs else _read_headers(file)
    finally:
        file.close()


def is_in_order(
    found: Scanned,
    base_offsets: "Offset | npt.NDArray[np.int64]",
    segments: "npt.NDArray[np.int64] | None" = None,
) -> npt.NDArray[np.bool_]:
    """Return for each header whether it is of our format and comes after the one before it.

    With `segments`, which has the number of each header's segment, the headers may be of many
    segments; `base_offsets` then has the base offset of each header's segment.
    """
    header = found.headers
    bases, lasts = header["base_offset"].astype(np.int64), found.last_offsets
    is_ours = (header["magic"] == MAGIC) & (header["last_offset_delta"] >= 0)
    fits = is_ours & (lasts >= bases) & (bases >= base_offsets)
    follows = bases[1:] > lasts[:-1]
    if segments is not None:
        follows |= segments[1:] != segments[:-1]
    fits[1:] &= follows
    return np.asarray(fits)


def scan_slowly(files: FileSystem, segment: SegmentHeaders, *, check_crcs: bool) -> Scanned:
    """Read the headers of a segment batch by batch: slower than `read_quickly`, past any damage."""
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
        damage = HeaderDamage(error.position, stream.next_offset, error.reason)
    finally:
        stream.close()
    return Scanned(
        _together(headers),
        np.array(positions, np.int64),
        np.array(sound, np.bool_) if check_crcs else None,
        damage,
    )


def headers_of(
    found: Sequence[tuple[int, BatchHeader]], damage: HeaderDamage | None = None
) -> Scanned:
    """Return headers that were read one by one, each with its position."""
    positions = np.array([position for position, _ in found], np.int64)
    return Scanned(_together([HEADER.pack(*each) for _, each in found]), positions, None, damage)


def to_arrow(scanned: Sequence[tuple[SegmentHeaders, Scanned]]) -> pa.RecordBatch:
    """Return the rows of many segments, in the columns of `SCHEMA`."""
    segments = [segment for segment, _ in scanned]
    numbers = np.repeat(np.arange(len(scanned)), [len(found.headers) for _, found in scanned])
    rows = _batch_rows(segments, numbers, Scanned.together([found for _, found in scanned]))
    found = ((number, _damage(*each)) for number, each in enumerate(scanned))
    damages = [(number, damage) for number, damage in found if damage is not None]
    if not damages:
        return rows
    further = [_damage_row(segments[number], damage) for number, damage in damages]
    table = pa.Table.from_batches([rows, pa.RecordBatch.from_pylist(further, schema=SCHEMA)])
    # A row of damage comes after the batches of its segment.
    order = np.append(numbers, [number for number, _ in damages]).argsort(kind="stable")
    return table.take(order).combine_chunks().to_batches()[0]


def _damage(segment: SegmentHeaders, found: Scanned) -> HeaderDamage | None:
    """Return the damage of a segment, in itself or because it reaches into the next one."""
    if found.damage is not None or segment.next_base is None:
        return found.damage
    if found.next_offset(segment.base_offset) <= segment.next_base:
        return None
    return HeaderDamage(segment.size, segment.next_base, OVERLAP)


def _damage_row(segment: SegmentHeaders, damage: HeaderDamage) -> dict[str, str | int | None]:
    row: dict[str, str | int | None] = dict.fromkeys(SCHEMA.names)
    tp = segment.topic_partition
    row |= {"replica": segment.replica, "topic": tp.topic, "partition": tp.partition}
    row |= {"segment": segment.base_offset, "position": damage.position, "damage": damage.reason}
    return row | {"base_offset": damage.offset, "last_offset": damage.offset}


def _batch_rows(
    segments: Sequence[SegmentHeaders], numbers: npt.NDArray[np.int64], found: Scanned
) -> pa.RecordBatch:
    """Return a row for each header; `numbers` has the number of each header's segment."""
    count, header, where = len(numbers), found.headers, [each.topic_partition for each in segments]
    sound = pa.nulls(count, pa.bool_()) if found.is_sound is None else pa.array(found.is_sound)
    columns = {
        "replica": pa.array([each.replica for each in segments], pa.string()).take(numbers),
        "topic": pa.array([each.topic for each in where], pa.string()).take(numbers),
        "partition": np.array([each.partition for each in where], np.int64)[numbers],
        "segment": np.array([each.base_offset for each in segments], np.int64)[numbers],
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


def _read_headers(file: File) -> Scanned | None:
    """Read headers alone, or return None if the file is not batches to its end."""
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
        length, _ = _LENGTH_AND_MAGIC.unpack_from(window, at)
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            return None
        positions.append(position)
        pieces.append(window[at : at + HEADER_SIZE])
        position += length + LENGTH_OVERHEAD
        step = HEADER_SIZE if length > _NEAR_BYTES else _WINDOW_BYTES
    if position != size:
        return None
    return Scanned(_together(pieces), np.array(positions, np.int64), None)


def _read_all(file: File) -> Scanned | None:
    """Read headers and the CRC-32C of every batch, or return None as `_read_headers` does."""
    size, position = file.size(), 0
    room = bytearray(min(CHUNK_BYTES, size))
    found = _Found()
    while position < size:
        filled = file.read_into(position, memoryview(room)[: size - position])
        used = found.walk(room, filled, position)
        if not used:
            needed = _first_size(room, filled)
            if needed is None or not len(room) < needed <= size - position:
                return None  # the file ends inside of a batch, or no batch stands here
            room = bytearray(needed)
            continue
        position += used
    if not found.positions:
        return _read_headers(file)
    headers = _together(found.pieces)
    is_sound = headers["crc"] == np.array(found.crcs, np.uint32)
    return Scanned(headers, np.array(found.positions, np.int64), is_sound)


@attrs.define
class _Found:
    """Headers of batches, with their positions and the CRC-32C of what they cover."""

    pieces: list[bytearray] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)
    crcs: list[int] = attrs.field(factory=list)

    def walk(self, room: bytearray, filled: int, position: int) -> int:
        """Take the whole batches at the start of `room`, which is at `position`; return their size."""
        view, at = memoryview(room), 0
        crc, sizes = crc32c.crc32c, _LENGTH_AND_MAGIC.unpack_from
        while filled - at >= HEADER_SIZE:
            length, magic = sizes(room, at)
            end = at + LENGTH_OVERHEAD + length
            if length < HEADER_SIZE - LENGTH_OVERHEAD or magic != MAGIC or end > filled:
                break
            self.crcs.append(crc(view[at + CRC_COVERS_FROM : end]))
            self.pieces.append(room[at : at + HEADER_SIZE])
            self.positions.append(position + at)
            at = end
        return at


def _first_size(room: bytearray, filled: int) -> int | None:
    """Return the size of the batch that `room` begins with, or None if it begins with none."""
    if filled < HEADER_SIZE:
        return None
    length, magic = _LENGTH_AND_MAGIC.unpack_from(room)
    is_batch = length >= HEADER_SIZE - LENGTH_OVERHEAD and magic == MAGIC
    return length + LENGTH_OVERHEAD if is_batch else None


def _together(headers: Sequence[Buffer]) -> Rows:
    """Join headers to one array; numpy's concatenation would look at each field of each."""
    return np.frombuffer(b"".join(headers), HEADER_TYPE)


def _sound_or_unchecked(found: Scanned) -> npt.NDArray[np.bool_]:
    return np.ones(len(found.headers), np.bool_) if found.is_sound is None else found.is_sound


def _take_crc(stream: BatchStream, size: int) -> int:
    """Take a batch from `stream`, and return the CRC-32C that it should have."""
    crc = int(crc32c.crc32c(stream.take(HEADER_SIZE)[CRC_COVERS_FROM:]))
    left = size - HEADER_SIZE
    while left:
        data = stream.take(min(left, stream.available))
        crc = int(crc32c.crc32c(data, crc))
        left -= len(data)
    return crc


def rows_of(
    files: FileSystem,
    segments: Iterator[SegmentHeaders],
    *,
    check_crcs: bool,
    most_rows: int = 65_536,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of many segments, several small segments at a time."""
    waiting: list[tuple[SegmentHeaders, Scanned]] = []
    count = 0
    for segment in segments:
        found = scan(files, segment, check_crcs=check_crcs)
        waiting.append((segment, found))
        count += len(found.headers) + 1
        if count >= most_rows:
            yield to_arrow(waiting)
            waiting, count = [], 0
    if waiting:
        yield to_arrow(waiting)
