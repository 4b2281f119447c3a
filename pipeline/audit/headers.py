"""The batch headers of a segment as rows, without Spark: what an audit needs of a log.

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
from storage.batch.record_batch import CRC_COVERS_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
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
# The last batch of a segment reaches into the next one's offsets: together they are no log.
OVERLAP: Final = "reaches into the next segment"

CHUNK_BYTES: Final = 512 * 1024
# Below this much between two headers, reading on costs less than another call.
_WINDOW_BYTES: Final = 64 * 1024
_NEAR_BYTES: Final = 4096
_LENGTH_AND_MAGIC: Final = struct.Struct(">8xi4xb")

Rows = npt.NDArray[np.void]


@attrs.frozen(kw_only=True)
class Segment:
    """One `.log` file of one replica; `next_base` is that of the segment after it.

    What lies below `start_offset` is nothing to compare.
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

    @classmethod
    def together(cls, found: "Sequence[Scanned]") -> "Scanned":
        """The headers of many segments, without where those end too early."""
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
        """What comes after the last batch, in a segment that begins at `base_offset`."""
        return int(self.last_offsets[-1]) + 1 if len(self.headers) else base_offset


def scan(files: FileSystem, segment: Segment, *, check_crcs: bool) -> Scanned:
    """Everything that the audit wants of a segment."""
    found = read_quickly(files, segment, check_crcs=check_crcs)
    if found is not None and is_in_order(found, segment.base_offset).all():
        return found
    return scan_slowly(files, segment, check_crcs=check_crcs)


def read_quickly(files: FileSystem, segment: Segment, *, check_crcs: bool) -> Scanned | None:
    """Whatever headers follow one another; None where those do not end with the file."""
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
    """Of each header whether it can stand there: of our format, and after the one before it.

    With `segments`, which says of each header which one it is in, those of many are asked
    about at once; `base_offsets` is then where the segment of each begins.
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
        _together(headers),
        np.array(positions, np.int64),
        np.array(sound, np.bool_) if check_crcs else None,
        damage,
    )


def to_arrow(scanned: Sequence[tuple[Segment, Scanned]]) -> pa.RecordBatch:
    """The rows of many segments, as `SCHEMA` has them."""
    segments = [segment for segment, _ in scanned]
    numbers = np.repeat(np.arange(len(scanned)), [len(found.headers) for _, found in scanned])
    rows = _batch_rows(segments, numbers, Scanned.together([found for _, found in scanned]))
    told = [(number, _damage(*each)) for number, each in enumerate(scanned)]
    damages = [(number, damage) for number, damage in told if damage is not None]
    if not damages:
        return rows
    further = [_damage_row(segments[number], damage) for number, damage in damages]
    table = pa.Table.from_batches([rows, pa.RecordBatch.from_pylist(further, schema=SCHEMA)])
    # Behind the batches of its segment.
    order = np.append(numbers, [number for number, _ in damages]).argsort(kind="stable")
    return table.take(order).combine_chunks().to_batches()[0]


def _damage(segment: Segment, found: Scanned) -> Damage | None:
    """What is wrong with a segment, in itself or beside the next one."""
    if found.damage is not None or segment.next_base is None:
        return found.damage
    if found.next_offset(segment.base_offset) <= segment.next_base:
        return None
    return Damage(segment.size, segment.next_base, OVERLAP)


def _damage_row(segment: Segment, damage: Damage) -> dict[str, str | int | None]:
    row: dict[str, str | int | None] = dict.fromkeys(SCHEMA.names)
    tp = segment.topic_partition
    row |= {"replica": segment.replica, "topic": tp.topic, "partition": tp.partition}
    row |= {"segment": segment.base_offset, "position": damage.position, "damage": damage.reason}
    return row | {"base_offset": damage.offset, "last_offset": damage.offset}


def _batch_rows(
    segments: Sequence[Segment], numbers: npt.NDArray[np.int64], found: Scanned
) -> pa.RecordBatch:
    """A row for each header, of the segment of that number."""
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
    """With the CRC-32C of every batch; None as above."""
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
    """Headers of batches, where they stand, and what their CRC-32C should be."""

    pieces: list[bytearray] = attrs.field(factory=list)
    positions: list[int] = attrs.field(factory=list)
    crcs: list[int] = attrs.field(factory=list)

    def walk(self, room: bytearray, filled: int, position: int) -> int:
        """Take the whole batches that `room` begins with, which stands at `position`; their size."""
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
    """The size of the batch that `room` begins with; None where that is none."""
    if filled < HEADER_SIZE:
        return None
    length, magic = _LENGTH_AND_MAGIC.unpack_from(room)
    is_batch = length >= HEADER_SIZE - LENGTH_OVERHEAD and magic == MAGIC
    return length + LENGTH_OVERHEAD if is_batch else None


def _together(headers: Sequence[Buffer]) -> Rows:
    """As one array; numpy's own concatenation looks at each field of each."""
    return np.frombuffer(b"".join(headers), HEADER_TYPE)


def _sound_or_unchecked(found: Scanned) -> npt.NDArray[np.bool_]:
    return np.ones(len(found.headers), np.bool_) if found.is_sound is None else found.is_sound


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
    waiting: list[tuple[Segment, Scanned]] = []
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
