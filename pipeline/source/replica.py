"""One replica of a partition, read from its files whether or not a broker uses it.

    start = max(first segment, checkpoint)                         end: behind the last whole batch
      [0-4][5-9][10-12] ... [p7: 40-41][p8: 42-42][commit p7: 43]
                                       └── the last stable offset: p8's transaction is open

Rule 1: everything is read from the files on request, and nothing is written. A producer snapshot
and the indexes say where to begin.

    .log         [0-4][5-9]...                     .index       (9 -> 4096)(31 -> 8217)...
    .timeindex   (1700 -> 9)(1712 -> 31)...        a closed segment's last entry: its latest time

Rule 2: an index is a hint. A position that it names is used if a batch's header is there; otherwise
the segment is read from its beginning.

Rule 3: a log that is being written to may end in the middle of a batch, or in spare room
(`storage.batch.spare_room`). Anything else behind the batches is damage.
"""

import os
from collections import deque
from collections.abc import Iterator
from functools import cached_property

import attrs

from pipeline.source.errors import CorruptBatchesError
from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns import columnar
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.spare_room import LOG_FILE, is_spare_room
from storage.checkpoint import read_file, read_partition_metadata, uuid_text
from storage.errors import CheckpointError, CorruptRecordError
from storage.filesystem import FileSystem
from storage.log.index import offset_index, time_index
from storage.log.segment_file import find_batch
from storage.producers.snapshot import (
    SNAPSHOT_BYTES,
    decode_snapshot,
    list_snapshots,
    snapshot_path,
)
from storage.types import NO_LEADER_EPOCH, Offset, TopicPartition

_WINDOW = 256 * 1024


@attrs.define(eq=False)
class SegmentPlace:
    """One `.log` file and the indexes beside it."""

    files: FileSystem
    directory: str
    base_offset: Offset
    size: int

    @property
    def path(self) -> str:
        return self._beside(".log")

    def _beside(self, ending: str) -> str:
        return os.path.join(self.directory, f"{self.base_offset:020d}{ending}")

    @cached_property
    def index(self) -> list[tuple[Offset, int]]:
        """The entries of the offset index, as far as they rise and lie inside the file."""
        found: list[tuple[Offset, int]] = []
        last = (-1, -1)
        for relative, position in offset_index.LAYOUT.iter_unpack(self._index_bytes(".index", 8)):
            if relative <= last[0] or position <= last[1] or position >= self.size:
                break
            last = relative, position
            found.append((self.base_offset + relative, position))
        return found

    @cached_property
    def time_index(self) -> list[tuple[int, Offset]]:
        """The entries of the time index: no record up to the offset is younger than the timestamp."""
        found: list[tuple[int, Offset]] = []
        for timestamp, relative in time_index.LAYOUT.iter_unpack(
            self._index_bytes(".timeindex", 12)
        ):
            if timestamp <= (found[-1][0] if found else 0):
                break  # the spare room behind the last entry
            found.append((timestamp, self.base_offset + relative))
        return found

    def _index_bytes(self, ending: str, entry_size: int) -> bytes:
        path = self._beside(ending)
        if not self.files.exists(path):
            return b""
        file = self.files.open_for_reading(path)
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
        return data[: len(data) // entry_size * entry_size]

    def position_of(self, offset: Offset) -> int:
        """Return the position from which to read on in order to reach `offset`."""
        below = [position for at, position in self.index if at <= offset]
        return below[-1] if below and self._stands_at(below[-1], most=offset) else 0

    def _stands_at(self, position: int, *, most: Offset) -> bool:
        """Return whether a batch that begins at or below offset `most` is at this position."""
        header = self.header_at(position)
        return header is not None and self.base_offset <= header.base_offset <= most

    def header_at(self, position: int) -> BatchHeader | None:
        file = self.files.open_for_reading(self.path)
        try:
            return read_header(file.read(position, HEADER_SIZE))
        except CorruptRecordError:
            return None
        finally:
            file.close()

    def headers(
        self, position: int = 0, *, skip: bool = False
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield each whole batch from `position` on; raise DamagedLogError, or with `skip` pass damage."""
        file = self.files.open_for_reading(self.path)
        try:
            size = file.size()
            window, window_at = b"", 0
            while position + HEADER_SIZE <= size:
                if not window_at <= position <= window_at + len(window) - HEADER_SIZE:
                    window, window_at = file.read(position, _WINDOW), position
                    if len(window) < HEADER_SIZE:
                        return
                try:
                    header = read_header(window, position - window_at)
                except CorruptRecordError as error:
                    if is_spare_room(self.files, file, position):
                        return
                    if not skip:
                        raise DamagedLogError(
                            str(error), path=self.path, position=position
                        ) from error
                    found = find_batch(file, position + 1, size, least_offset=self.base_offset)
                    if found is None:
                        return
                    position = found
                    continue
                if position + header.size > size:
                    return
                yield position, header
                position += header.size
        finally:
            file.close()

    def splits(self, target: int, begin: int, end: int) -> list[int]:
        """Return positions of batches between `begin` and `end`, about `target` bytes apart."""
        found, last = [], begin
        for offset, position in self.index:
            if position - last >= target and end - position >= target // 2:
                if not self._stands_at(position, most=offset):
                    break
                found.append(position)
                last = position
        return found


def segments_of(files: FileSystem, directory: str) -> list[SegmentPlace]:
    """Return the segments of a partition, in order."""
    names = map(LOG_FILE.fullmatch, files.list_directory(directory))
    found = []
    for base_offset in sorted(int(name[1]) for name in names if name):
        place = SegmentPlace(files, directory, base_offset, 0)
        try:
            file = files.open_for_reading(place.path)
        except FileNotFoundError:
            continue  # retention has deleted it meanwhile
        place.size = file.size()
        file.close()
        found.append(place)
    return found


@attrs.define(eq=False)
class Replica:
    """One partition in one log directory, as it is at this moment."""

    files: FileSystem
    name: str
    tp: TopicPartition
    directory: str
    checkpointed_start: Offset
    high_watermark: Offset
    skip_corrupt: bool

    @cached_property
    def segments(self) -> list[SegmentPlace]:
        return segments_of(self.files, self.directory)

    @property
    def start(self) -> Offset:
        """The log start offset."""
        first = self.segments[0].base_offset if self.segments else 0
        return max(first, self.checkpointed_start)

    @cached_property
    def end_and_epoch(self) -> tuple[Offset, int]:
        """The log end offset, and the leader epoch of the last batch."""
        for segment in reversed(self.segments):
            position = segment.index[-1][1] if segment.index else 0
            if segment.header_at(position) is None:
                position = 0
            last = deque(self._headers(segment, position), maxlen=1)
            if last:
                return last[0][1].next_offset, last[0][1].leader_epoch
        return self.start, NO_LEADER_EPOCH

    @property
    def end(self) -> Offset:
        return self.end_and_epoch[0]

    @property
    def rank(self) -> tuple[int, Offset]:
        """The sort key by which the greatest replica is the one that an election would choose."""
        end, epoch = self.end_and_epoch
        return epoch, end

    @cached_property
    def topic_id(self) -> str | None:
        try:
            found = read_partition_metadata(self.files, self.directory)
        except CheckpointError:
            return None
        return None if found is None else uuid_text(found)

    def last_stable_offset(self, end: Offset) -> Offset:
        """Return the first offset of the oldest transaction that is open at `end` (KIP-98), or `end`."""
        open_from, replay_from = self._snapshot(end)
        for segment in self.segments:
            following = [each for each in self.segments if each.base_offset > segment.base_offset]
            if following and following[0].base_offset <= replay_from:
                continue
            for _, header in self._headers(segment, segment.position_of(replay_from)):
                if header.base_offset >= end:
                    break
                if not header.is_transactional or header.base_offset < replay_from:
                    continue
                if header.is_control:
                    open_from.pop(header.producer_id, None)
                else:
                    open_from.setdefault(header.producer_id, header.base_offset)
        return min([end, *open_from.values()])

    def _snapshot(self, end: Offset) -> tuple[dict[int, Offset], Offset]:
        """Return the open transactions of the newest usable snapshot, and its offset."""
        for offset in reversed(list_snapshots(self.files, self.directory)):
            if offset > end:
                continue
            path = snapshot_path(self.directory, offset)
            try:
                states = decode_snapshot(read_file(self.files, path, most=SNAPSHOT_BYTES) or b"")
            except (CorruptRecordError, CheckpointError):
                continue
            began = {each.producer_id: each.transaction_first_offset for each in states}
            return {who: at for who, at in began.items() if at is not None}, offset
        return {}, self.start

    def first_at_or_after(self, timestamp: int) -> Offset | None:
        """Return the offset of the first record that is not older (LogSegment.findOffsetByTimestamp)."""
        for number, segment in enumerate(self.segments):
            closed = number + 1 < len(self.segments)
            if closed and segment.time_index and segment.time_index[-1][0] < timestamp:
                continue
            below = [offset for at, offset in segment.time_index if at < timestamp]
            position = segment.position_of(below[-1]) if below else 0
            for at, header in self._headers(segment, position):
                if header.max_timestamp >= timestamp and not header.is_control:
                    found = self._first_in(segment, at, header, timestamp)
                    if found is not None and found >= self.start:
                        return found
        return None

    def _first_in(
        self, segment: SegmentPlace, position: int, header: BatchHeader, timestamp: int
    ) -> Offset | None:
        file = self.files.open_for_reading(segment.path)
        try:
            found = columnar.decode(
                file.read(position, header.size), columns=["offset", "timestamp"], check_crcs=False
            )
            for batch in found:
                times = batch.column("timestamp").view("int64").to_numpy()
                late = (times >= timestamp).nonzero()[0]
                if late.size:
                    return int(batch.column("offset")[int(late[0])].as_py())
        except columnar.CorruptBatchError as error:
            if not self.skip_corrupt:
                raise CorruptBatchesError(
                    f"{segment.path}, byte {position}, offset {header.base_offset}: {error.reason}"
                ) from error
        finally:
            file.close()
        return None

    def _headers(self, segment: SegmentPlace, position: int) -> Iterator[tuple[int, BatchHeader]]:
        behind = segment.base_offset
        try:
            for at, header in segment.headers(position, skip=self.skip_corrupt):
                yield at, header
                behind = header.next_offset
        except DamagedLogError as error:
            raise CorruptBatchesError(corrupt(self.tp, behind, error)) from error


def corrupt(tp: TopicPartition, offset: Offset, error: DamagedLogError) -> str:
    """Return the message for damage: what is wrong, where, and from which offset on."""
    return f"{tp}, from offset {offset}: {error}; onCorruptBatch=skip reads on behind it"
