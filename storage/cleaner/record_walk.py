"""The records of batches as compaction sees them: their keys and offsets, and which of them stay.

    a walk      one_by_one   record by record, in plain Python: this module
                by_column    many batches at a time, with numpy: `storage.cleaner.columns`

    enter       key -> last offset, into the offset map
    judge       which records of a batch stay, when the map is complete

Rule 1: both walks find the same and leave the same; a broker takes the second where numpy is
installed (`best_walk`). What decides is in `stays`, for one record or for columns of them.

Rule 2: a batch may hold millions of records, so nothing is remembered of each.

Rule 3: the CRC-32C of a batch is checked before it is believed. What is written anew would
otherwise seal what the disk has damaged.

(Cleaner.buildOffsetMapForSegment and Cleaner.shouldRetainRecord in Kafka.)
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from storage.attributes import define, frozen
from storage.batch.compression import Codec, decompress
from storage.batch.record_batch import CODEC_MASK, HEADER_SIZE, BatchHeader, check_crc
from storage.batch.records import MAX_DECOMPRESSED_SIZE
from storage.batch.varint import read_varint, read_varlong
from storage.cleaner.offset_map import OffsetMap
from storage.errors import CorruptRecordError
from storage.types import NO_OFFSET, Buffer, Offset

# Where a record begins, where it goes on after its timestamp delta (from there on nothing ever
# changes), and where it ends; its two deltas; its key; whether it has a value.
RecordPlace: TypeAlias = tuple[int, int, int, int, int, bytes | None, bool]

LEAST_DELTA: Final = -(2**63)


@define
class CleanerStats:
    """The bytes and records that a round of cleaning has read, and those that it has kept."""

    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    # Records without a key, which nothing can ever replace.
    invalid_records: int = 0


class SoundBatch(NamedTuple):
    """A batch whose CRC-32C matches, and its records, decompressed: bytes `begin` to `end` of
    `source`, which may hold many batches.
    """

    header: BatchHeader
    batch: memoryview
    source: bytes
    begin: int
    end: int

    @property
    def records(self) -> bytes:
        return self.source[self.begin : self.end]


class JudgedBatch(NamedTuple):
    """A batch of which records may go, and whether its tombstones may."""

    batch: SoundBatch
    drops_tombstones: bool


@frozen
class KeptRecords:
    """The records of one batch that stay."""

    data: Buffer
    count: int
    max_timestamp_delta: int
    has_tombstone: bool


NOTHING: Final = KeptRecords(b"", 0, LEAST_DELTA, has_tombstone=False)


class RecordWalk(Protocol):
    """A way to look at the records of batches."""

    @property
    def bytes_at_once(self) -> int:
        """How many bytes of records it is best given together."""

    def enter(self, batches: Sequence[SoundBatch], first_dirty_offset: Offset) -> bool:
        """Enter the keys from `first_dirty_offset` on; return whether the map had room for them."""

    def judge(self, batches: Sequence[JudgedBatch], stats: CleanerStats) -> Iterable[KeptRecords]:
        """Return which records of each batch stay; count in `stats` those that never had a key."""


class MakeWalk(Protocol):
    def __call__(self, offset_map: OffsetMap, /) -> RecordWalk:
        """Return a walk that enters keys into `offset_map` and looks them up there."""


def best_walk(offset_map: OffsetMap) -> RecordWalk:
    """Return a walk by column where numpy is installed, and otherwise one record by record.

    Importing numpy takes a tenth of a second, and is left to the first compaction.
    """
    try:
        from storage.cleaner.columns import ByColumn  # noqa: PLC0415
    except ImportError:
        return OneByOne(offset_map)
    return ByColumn(offset_map)


def stays(
    *, offset: Any, last: Any, latest: Offset, has_key: Any, has_value: Any, drops_tombstones: Any
) -> Any:
    """Return whether a record stays, or for columns of records which ones do.

    `last` is the last offset of its key in the map, and `latest` the offset that the map goes up
    to.
    """
    lives = has_value | (drops_tombstones ^ True)
    return (offset > latest) | (has_key & (offset >= last) & lives)


def sound_batch(source: bytes, begin: int, header: BatchHeader) -> SoundBatch:
    """Return the batch at byte `begin` of `source`. Raise CorruptRecordError where it is not sound."""
    end = begin + header.size
    batch = memoryview(source)[begin:end]
    if not check_crc(batch):
        raise CorruptRecordError(f"the batch at {header.base_offset} does not match its CRC-32C")
    if header.attributes & CODEC_MASK == Codec.NONE:
        return SoundBatch(header, batch, source, begin + HEADER_SIZE, end)
    # Copied at once: a codec's output may lie in a map of the largest size it might have had.
    records = bytes(decompress(header.codec, batch[HEADER_SIZE:], max_size=MAX_DECOMPRESSED_SIZE))
    return SoundBatch(header, batch, records, 0, len(records))


def places(data: bytes, count: int) -> Iterator[RecordPlace]:
    """Yield the place of every record of `data`, which must hold `count` of them and nothing else."""
    position, size = 0, len(data)
    try:
        for _ in range(count):
            begin = position
            length, position = read_varint(data, position)
            end = position + length
            if length < 1 or end > size:
                raise CorruptRecordError(f"a record of {length} bytes at byte {begin} of {size}")
            timestamp_delta, rest = read_varlong(data, position + 1)
            offset_delta, position = read_varint(data, rest)
            key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            value_length, position = read_varint(data, position)
            if position > end or position + value_length > end:
                raise CorruptRecordError(
                    f"a key of {key_length} and a value of {value_length} bytes"
                    f" in a record of {length}"
                )
            yield begin, rest, end, timestamp_delta, offset_delta, key, value_length >= 0
            position = end
    except IndexError as error:
        raise CorruptRecordError(f"fewer than the {count} records that are counted") from error
    if position != size:
        raise CorruptRecordError(f"{size - position} bytes after the last record")


def joined(data: bytes, kept: Iterable[RecordPlace]) -> KeptRecords:
    """Join the records of `data` at `kept`, each run of neighbours in one piece."""
    view, together = memoryview(data), bytearray()
    begin = end = count = 0
    youngest, has_tombstone = LEAST_DELTA, False
    for start, _, following, timestamp_delta, _, _, has_value in kept:
        if start != end:
            together += view[begin:end]
            begin = start
        end = following
        count += 1
        youngest = max(youngest, timestamp_delta)
        if not has_value:
            has_tombstone = True
    if end - begin == len(data):
        return KeptRecords(data, count, youngest, has_tombstone)
    together += view[begin:end]
    return KeptRecords(together, count, youngest, has_tombstone)


@frozen
class OneByOne:
    """The walk without numpy."""

    offset_map: OffsetMap
    bytes_at_once: int = 1

    def enter(self, batches: Sequence[SoundBatch], first_dirty_offset: Offset) -> bool:
        """Enter the keys from `first_dirty_offset` on; return whether the map had room for them."""
        offset_map = self.offset_map
        most, put = offset_map.most, offset_map.put
        for batch in batches:
            base_offset = batch.header.base_offset
            last = base_offset - 1
            found = places(batch.records, batch.header.record_count)
            for _, _, _, _, offset_delta, key, _ in found:
                offset = base_offset + offset_delta
                if key is not None and offset >= first_dirty_offset:
                    if offset_map.size >= most:
                        offset_map.saw(last)
                        return False
                    put(key, offset)
                    last = offset
        return True

    def judge(self, batches: Sequence[JudgedBatch], stats: CleanerStats) -> Iterator[KeptRecords]:
        """Yield which records of each batch stay."""
        for each in batches:
            data = each.batch.records
            yield joined(data, self._staying(each, data, stats))

    def _staying(
        self, judged: JudgedBatch, data: bytes, stats: CleanerStats
    ) -> Iterator[RecordPlace]:
        header, drops_tombstones = judged.batch.header, judged.drops_tombstones
        base_offset = header.base_offset
        latest, find = self.offset_map.latest_offset, self.offset_map.get
        for place in places(data, header.record_count):
            _, _, _, _, offset_delta, key, has_value = place
            offset = base_offset + offset_delta
            if stays(
                offset=offset,
                last=NO_OFFSET if key is None else find(key),
                latest=latest,
                has_key=key is not None,
                has_value=has_value,
                drops_tombstones=drops_tombstones,
            ):
                yield place
            elif key is None:
                stats.invalid_records += 1
