"""The reading of a segment, batch by batch, up to the first batch that is not valid.

    [sound][sound][sound]│?? ~~~~~        Cut: at this byte, at this next offset, for this reason

A batch is sound when its CRC-32C matches, its offsets follow those before it and fit the segment's
base, and its leader epoch is not older than the one before it. Kafka does not check the last one: a
file system may bring back the old end of a file that was truncated and written again, and such an
end is valid in itself.

The scan also makes the index entries, as appends would have done (`Segment.reindex` is the slow
twin). A broker waits for it after a crash, so the loop below touches each header once, hands each
batch to the CRC without copying it, and keeps the index entries for one write at the end. With
`Segment.headers` and `Segment.reindex` recovery takes 2.4 times as long for batches of 16 KiB, and
5.6 times for batches of 1 KiB.

(LogSegment.recover in Kafka.)
"""

import contextlib
import struct
from collections import deque
from collections.abc import Callable, Iterable

import attrs
import crc32c

from storage.attributes import define, frozen
from storage.batch.record_batch import (
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_LENGTH,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
    sound_magic,
)
from storage.errors import CorruptRecordError, OffsetOverflowError, UnsupportedFormatError
from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.log.index.offset_index import LAYOUT as OFFSET_LAYOUT
from storage.log.index.time_index import LAYOUT as TIME_LAYOUT, TimestampOffset
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.segment import LOG_SUFFIX, Segment
from storage.producers.snapshot import BATCHES_KEPT
from storage.types import LAST_LOG_END, NO_LEADER_EPOCH, LeaderEpoch, Offset

# What has to be looked at in a header, as far as the producer id.
_UNPACK = struct.Struct(">qiibIhi8xqq").unpack_from
_PACK_OFFSET = OFFSET_LAYOUT.pack
_PACK_TIME = TIME_LAYOUT.pack
_CRC_OF = crc32c.crc32c
_WINDOW = 1 << 20


@define
class ScannedEpochs:
    """The leader epochs that recovery has found, and the cache for them."""

    cache: LeaderEpochCache | None = None
    latest: LeaderEpoch = NO_LEADER_EPOCH

    def see(self, epoch: LeaderEpoch, base_offset: Offset) -> None:
        assert epoch > self.latest, "an epoch is come across once"
        self.latest = epoch
        if self.cache is not None:
            self.cache.assign(epoch, base_offset)


@frozen
class Cut:
    """The place and the reason of a cut. `ours`: Kafka would have trusted the rest."""

    position: int
    cause: str
    ours: bool = False


@define(kw_only=True)
class Scan:
    """One pass over `segment`. `note_producer` is called with each batch that has a producer, and
    returns False for a transaction's marker that says nothing.
    """

    segment: Segment
    epochs: ScannedEpochs
    note_producer: Callable[[BatchHeader, memoryview], bool]
    next_offset: Offset = attrs.field(init=False)
    # Where the sound batches end.
    end: int = attrs.field(init=False, default=0)
    # The indexes' entries, as they will stand in their files.
    _offsets: bytearray = attrs.field(init=False, factory=bytearray)
    _times: bytearray = attrs.field(init=False, factory=bytearray)
    _last_time: int = attrs.field(init=False, default=NO_TIMESTAMP)
    # The last plain batches of each producer, not noted yet.
    _waiting: dict[int, deque[bytes]] = attrs.field(init=False, factory=dict)
    _youngest: tuple[int, Offset] = attrs.field(init=False)
    _bytes_since_entry: int = attrs.field(init=False, default=0)
    _most_offsets: int = attrs.field(init=False)
    _most_times: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._most_offsets = self.segment.offset_index.max_entries * OFFSET_LAYOUT.size
        # One is left to close with.
        self._most_times = (self.segment.time_index.max_entries - 1) * TIME_LAYOUT.size
        self.next_offset = self.segment.base_offset
        self._youngest = NO_TIMESTAMP, self.segment.base_offset

    def run(self) -> Cut | None:
        """Check and index all that is sound; return what stopped it before the end of the file.

        Raise OffsetOverflowError where that is an offset too far from the segment's base, and
        UnsupportedFormatError where it is a batch of another magic.
        """
        self._read()
        for waiting in self._waiting.values():
            self._note_waiting(waiting)
        self.segment.fill_indexes(
            self._offsets,
            self._times,
            max_timestamp=TimestampOffset(*self._youngest),
            bytes_since_index_entry=self._bytes_since_entry,
        )
        return None if self.end == self.segment.size else self._why()

    def _read(self) -> None:
        """Read a window at a time; one batch larger than the window makes it larger."""
        file, size = self.segment.pins.file, self.segment.size
        buffer = memoryview(bytearray(min(_WINDOW, max(size, HEADER_SIZE))))
        while self.end + HEADER_SIZE <= size:
            start = self.end
            window = buffer[: file.read_into(start, buffer)]
            if not self._check(window):
                return
            if self.end == start:
                wanted = read_header(window).size
                if wanted <= len(window) or start + wanted > size:
                    return
                buffer = memoryview(bytearray(wanted))

    # One loop, because a call costs as much as what it would do here.
    def _check(self, window: memoryview) -> bool:
        """Take every whole batch in `window`; return False at one that is not sound."""
        at, start, last_start = 0, self.end, len(window) - HEADER_SIZE
        base, following = self.segment.base_offset, self.next_offset
        highest = min(base + MAX_RELATIVE_OFFSET, LAST_LOG_END - 1)
        latest, since = self.epochs.latest, self._bytes_since_entry
        youngest, youngest_offset = self._youngest
        interval, offsets, times = self.segment.index_interval_bytes, self._offsets, self._times
        sound = True
        while at <= last_start:
            first, length, epoch, magic, crc, attributes, delta, timestamp, producer = _UNPACK(
                window, at
            )
            end = at + LENGTH_OVERHEAD + length
            if end > len(window) and length >= MIN_LENGTH and magic == MAGIC:
                break
            last = first + delta
            if (
                length < MIN_LENGTH
                or magic != MAGIC
                or first < following
                or delta < 0
                or last > highest
                or NO_LEADER_EPOCH != epoch < latest
                or _CRC_OF(window[at + CRC_COVERS_FROM : end]) != crc
                or (producer >= 0 and not self._note(producer, attributes, window[at:end]))
            ):
                sound = False
                break
            if epoch > latest:
                self.epochs.see(epoch, first)
                latest = epoch
            if timestamp > youngest:
                youngest, youngest_offset = timestamp, last
            if since > interval:
                since = 0
                # A full index stays as it is.
                if len(offsets) < self._most_offsets and len(times) < self._most_times:
                    offsets += _PACK_OFFSET(last - base, start + at)
                    if youngest > self._last_time:
                        times += _PACK_TIME(youngest, youngest_offset - base)
                        self._last_time = youngest
            since += end - at
            following = last + 1
            at = end
        self._youngest, self._bytes_since_entry = (youngest, youngest_offset), since
        self.next_offset, self.end = following, start + at
        return sound

    def _note(self, producer: int, attributes: int, batch: memoryview) -> bool:
        """Note the producer of `batch`, now or once no newer batch of it has come.

        Only the last few batches of a producer are remembered, and most are neither part of a
        transaction nor its end: of those only the last few are looked at.
        """
        if attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
            self._note_waiting(self._waiting.pop(producer, ()))
            return self.note_producer(read_header(batch), batch)
        waiting = self._waiting.get(producer)
        if waiting is None:
            waiting = self._waiting[producer] = deque(maxlen=BATCHES_KEPT)
        waiting.append(bytes(batch[:HEADER_SIZE]))
        return True

    def _note_waiting(self, headers: Iterable[bytes]) -> None:
        for header in headers:
            self.note_producer(read_header(header), memoryview(b""))

    # Slowly, for the one batch that was not sound.

    def _why(self) -> Cut:
        left = self.segment.size - self.end
        data = self.segment.pins.file.read(self.end, min(left, self._size_here()))
        try:
            header = read_header(data)
        except CorruptRecordError as error:
            self._refuse_other_formats(data)
            return Cut(self.end, f"no batch begins here: {str(error).partition(':')[0]}")
        if header.size > left:
            return Cut(self.end, f"a batch of {header.size} bytes, of which {left} are here")
        if not check_crc(memoryview(data)[: header.size]):
            return Cut(self.end, "the CRC-32C of its batch does not match")
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            return Cut(
                self.end,
                f"offsets {header.base_offset} to {header.last_offset} where"
                f" {self.next_offset} was to come",
            )
        if header.next_offset > LAST_LOG_END:
            return Cut(self.end, f"no offset comes after {header.last_offset}")
        if not self.segment.holds_offset(header.last_offset):
            return self._overflow(header)
        if NO_LEADER_EPOCH != header.leader_epoch < self.epochs.latest:
            cause = f"leader epoch {header.leader_epoch} after {self.epochs.latest}"
        else:
            cause = "a transaction's marker that cannot be read"
        return Cut(self.end, cause, ours=True)

    def _size_here(self) -> int:
        """Return the size in the header after the last sound batch; every message format has it there."""
        head = self.segment.pins.file.read(self.end, LENGTH_OVERHEAD)
        return max(HEADER_SIZE, LENGTH_OVERHEAD + int.from_bytes(head[8:], "big", signed=True))

    def _overflow(self, header: BatchHeader) -> Cut:
        """Return a cut where the next offset goes back, as behind one that a wrong bit has thrown far away.

        Raise OffsetOverflowError otherwise.
        """
        following = self.next_offset
        with contextlib.suppress(CorruptRecordError):
            for _, each in self.segment.headers(self.end):
                if each.base_offset < following:
                    return Cut(self.end, f"offset {header.last_offset} is too far from the base")
                following = each.next_offset
        raise OffsetOverflowError(
            f"{self.segment.path(LOG_SUFFIX)}: offset {header.last_offset} at byte {self.end}"
            " is too far from the base",
            self.segment.base_offset,
        )

    def _refuse_other_formats(self, data: bytes) -> None:
        magic = sound_magic(data)
        if magic is not None:
            raise UnsupportedFormatError(
                f"{self.segment.path(LOG_SUFFIX)}: a batch of magic {magic} at byte {self.end};"
                f" only magic {MAGIC} is read, and nothing of it was changed"
            )
