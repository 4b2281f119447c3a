"""One replica of a partition, read from its files whether or not a broker uses it.

    start = max(first segment, checkpoint)                         end: behind the last whole batch
      [0-4][5-9][10-12] ... [p7: 40-41][p8: 42-42][commit p7: 43]
                                       └── the last stable offset: p8's transaction is open

Rule: everything is read from the files on request. A producer snapshot and the indexes say
where to begin.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property

import attrs

from pipeline.source.errors import CorruptBatchesError
from pipeline.source.segments import SegmentPlace, segments_of
from storage.batch.batch_stream import DamagedLogError
from storage.batch.columns import columnar
from storage.batch.record_batch import BatchHeader
from storage.checkpoint import read_file, read_partition_metadata, uuid_text
from storage.errors import CheckpointError, CorruptRecordError
from storage.filesystem import FileSystem
from storage.producers.snapshot import (
    SNAPSHOT_BYTES,
    decode_snapshot,
    list_snapshots,
    snapshot_path,
)
from storage.types import NO_LEADER_EPOCH, Offset, TopicPartition


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
