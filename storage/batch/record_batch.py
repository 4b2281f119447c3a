"""A record batch, magic 2: the 61-byte header, its CRC-32C, and walking a buffer of batches.

     0 base_offset i64 ─────── rewritten by the leader ─┐ outside the CRC, so that a
     8 length i32              (the bytes after it)     │ leader can place a producer's
    12 leader_epoch i32 ────── rewritten by the leader ─┘ batch without touching the rest
    16 magic i8 = 2
    17 crc u32 ─────────────── CRC-32C of everything below
    21 attributes i16          bits 0-2 codec, 3 timestamp type, 4 transactional,
    23 last_offset_delta i32        5 control, 6 base_timestamp is a delete horizon
    27 base_timestamp i64
    35 max_timestamp i64
    43 producer_id i64, 51 producer_epoch i16, 53 base_sequence i32     (-1: none)
    57 record_count i32
    61 records, compressed as one blob where there is a codec

Rule 1: nothing here copies a record byte. Batches are stretches of somebody's buffer.

Rule 2: a batch that compaction has thinned keeps its base and last offset and its
sequences: `last_offset` comes from the header, never from counting records. An empty
batch is legal.

(Kafka: DefaultRecordBatch, ByteBufferLogInputStream.)
"""

import enum
import struct
import zlib
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from storage.batch.compression import Codec
from storage.errors import CorruptRecordError, UnsupportedCompressionTypeError
from storage.types import Buffer, LeaderEpoch, Offset

MAGIC: Final = 2
HEADER_SIZE: Final = 61
# What `length` does not count: the base offset and itself.
LENGTH_OVERHEAD: Final = 12

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
MAX_SEQUENCE: Final = 2**31 - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE

_PREFIX: Final = struct.Struct(">qiib")
MIN_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_BASE_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
LENGTH_AT: Final = 8
_LENGTH_OF_EMPTY: Final = _LENGTH.pack(MIN_LENGTH)
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16  # the same in every record format
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
ATTRIBUTES_AT: Final = 21
# The CRC-32C is that of everything from here to the end of the batch.
CRC_COVERS_FROM: Final = ATTRIBUTES_AT
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_CODECS: Final = tuple(
    next((each for each in Codec if each.value == number), None) for number in range(CODEC_MASK + 1)
)


_EXTENSION: Final = "_crc32c"

Checksum: TypeAlias = Callable[[Buffer], int]


def _load_crc32c() -> Checksum:
    """Load `crc32c.crc32c` straight from its extension, where that is found.

    `import crc32c` also brings its command line and asks for its own version: argparse,
    importlib.metadata and all of email would be a tenth of the start of a client.
    """
    package = PathFinder.find_spec("crc32c")
    for directory in (package and package.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = Path(directory) / f"{_EXTENSION}{suffix}"
            if path.is_file():
                name = f"crc32c.{_EXTENSION}"
                loader = ExtensionFileLoader(name, str(path))
                module = loader.create_module(ModuleSpec(name, loader, origin=str(path)))
                loader.exec_module(module)
                return cast("Checksum", module.crc32c)
    import crc32c  # noqa: PLC0415

    return cast("Checksum", crc32c.crc32c)


crc32c: Final = _load_crc32c()


class TimestampType(enum.IntEnum):
    """Whose clock a batch's timestamps are from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def next_sequence(sequence: int, increment: int = 1) -> int:
    """Return `sequence` plus `increment`, wrapped from 2^31-1 to 0
    (DefaultRecordBatch.incrementSequence).
    """
    return (sequence + increment) & MAX_SEQUENCE


class BatchHeader(NamedTuple):
    """The 61 bytes in front of a batch's records, as they stand on disk."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The bytes of the batch, header included."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if (codec := _CODECS[number]) is None:
            raise UnsupportedCompressionTypeError(f"no codec has the number {number}")
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When a compacted batch's tombstones may go; it stands where base_timestamp did."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer has sent it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last sequence of the batch as produced: compaction does not change it."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)


_new = tuple.__new__  # a header has the fields of its bytes: `_make` would count them again

# One batch: exactly its bytes.
Batch: TypeAlias = Buffer


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Raise CorruptRecordError where no sane batch begins there."""
    if len(buffer) - position < HEADER_SIZE:
        raise CorruptRecordError(
            f"{len(buffer) - position} bytes are too few for a batch header, which has {HEADER_SIZE}"
        )
    header = _new(BatchHeader, HEADER.unpack_from(buffer, position))
    if header.length < MIN_LENGTH or header.magic != MAGIC:
        raise _not_a_batch(position, header.length, header.magic)
    return header


def walk(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield where each whole batch from `position` on starts, and its header.

    Stops before a trailing partial batch, which a fetch limited in bytes ends with.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = _new(BatchHeader, HEADER.unpack_from(buffer, position))
        if header.length < MIN_LENGTH or header.magic != MAGIC:
            raise _not_a_batch(position, header.length, header.magic)
        following = position + LENGTH_OVERHEAD + header.length
        if following > end:
            return
        yield position, header
        position = following
    if end - position >= _PREFIX.size:
        _, length, _, magic = _PREFIX.unpack_from(buffer, position)
        if length < MIN_LENGTH or magic != MAGIC:
            raise _not_a_batch(position, length, magic)


def leading_empty(buffer: bytes) -> int:
    """Return how many whole batches without records, which are no more than a header, `buffer`
    begins with.
    """
    count = len(buffer) // HEADER_SIZE
    # A column at a time, in a fiftieth of the time: there may be thousands of them.
    for at, byte in enumerate(_LENGTH_OF_EMPTY, LENGTH_AT):
        column = buffer[at : count * HEADER_SIZE : HEADER_SIZE]
        count = len(column) - len(column.lstrip(bytes((byte,))))
    return count


def computed_crc(batch: Batch) -> int:
    """Return the CRC-32C that `batch` ought to carry."""
    return crc32c(memoryview(batch)[CRC_COVERS_FROM:])


def check_crc(batch: Batch) -> bool:
    """Return whether `batch` carries the CRC-32C of its bytes."""
    (stored,) = _CRC.unpack_from(batch, _CRC_AT)
    return bool(stored == computed_crc(batch))


def seal(batch: memoryview | bytearray) -> None:
    """Write the CRC-32C of its bytes into `batch`."""
    _CRC.pack_into(batch, _CRC_AT, computed_crc(batch))


def sound_magic(data: Buffer) -> int | None:
    """Return the magic of another format's batch at the head of `data`; None if none is sound.

    Magic 0 and 1 have a CRC-32 of all behind it; newer ones are taken to keep the prefix and
    the CRC-32C where magic 2 has them, as every version has kept what it could.
    """
    if len(data) < _PREFIX.size + 1:
        return None
    _, length, _, magic = _PREFIX.unpack_from(data)
    batch = data[: LENGTH_OVERHEAD + length] if length > 0 else b""
    if len(batch) < max(LENGTH_OVERHEAD + length, CRC_COVERS_FROM) or magic == MAGIC:
        return None
    if magic > MAGIC:
        return magic if check_crc(batch) else None
    (stored,) = _CRC.unpack_from(batch, LENGTH_OVERHEAD)
    return magic if magic >= 0 and stored == zlib.crc32(batch[MAGIC_AT:]) else None


def stamp(
    batch: memoryview | bytearray,
    *,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    max_timestamp: int | None = None,
) -> None:
    """Place a producer's batch in a log, in its own bytes.

    With `max_timestamp` the batch becomes one of log-append time, and only then is its CRC
    computed anew.
    """
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)
    if max_timestamp is None:
        return
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, max_timestamp)
    seal(batch)


def with_records(batch: Batch, codec: Codec, records: Buffer) -> bytearray:
    """Return `batch` with `records` in place of its own, which are the same in another codec."""
    made = bytearray(memoryview(batch)[:HEADER_SIZE])
    made += records
    _LENGTH.pack_into(made, LENGTH_AT, len(made) - LENGTH_OVERHEAD)
    (attributes,) = _ATTRIBUTES.unpack_from(made, ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(made, ATTRIBUTES_AT, attributes & ~CODEC_MASK | codec)
    seal(made)
    return made


def _not_a_batch(position: int, length: int, magic: int) -> CorruptRecordError:
    if magic != MAGIC:
        return CorruptRecordError(
            f"magic {magic} at byte {position}: only record batches of magic {MAGIC} are read"
        )
    return CorruptRecordError(
        f"a batch length of {length} at byte {position}, less than the {MIN_LENGTH} of a header"
    )
