"""The bytes of one log: its segments, where it ends, and up to where it is on the disk.

    [ 100 ── 199 ][ 200 ── 31│5 ── 399 ][ 400 ── 455 ]│ log end offset
                      recovery point: synced below

Rule 1: a failed write or sync closes the log to everything at once (the file may end in half
a batch), and is reported. What it refused before that changed nothing.

Rule 2: segments join: a new one begins where the batches of the one before it end, so that
recovery can tell that a tail was lost. Only compaction leaves gaps between them, and says how
far (`storage.log.compaction_gaps`).

Rule 3: what has changed nothing yet, or can be done again from its beginning, is only refused
where descriptors run out (ShortageError): appends, rolls, reads, flushes, retention, and a
truncation or a swap up to its first change. From there on it goes through, or fails the log.

Rule 4: the recovery point never claims more than is on the disk. It is lowered, and the lower
one checkpointed, before a truncation touches anything below it; later segments go, for good,
before the file that stays is cut.

A `Log` holds one of these, and knows what the records mean (`storage.log.log`). This file is long
because every operation on the files keeps the same few marks true.
(LocalLog in Kafka.)
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from storage.attributes import define, frozen
from storage.batch.record_batch import BatchHeader
from storage.config import LogConfig
from storage.errors import CleaningAbortedError, KafkaStorageError, ShortageError
from storage.filesystem import FileSystem
from storage.log import swap
from storage.log.compaction_gaps import CompactionGaps
from storage.log.empty_batches import EmptyBatches
from storage.log.file_region import FileRegion
from storage.log.flush import FlushPlan, Syncing, nothing_to_sync
from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.log.open_segments import OpenSegments
from storage.log.retention import DeletedSegments, DeletionCause
from storage.log.segment import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LocatedBatch,
    LogOffsetMetadata,
    Segment,
)
from storage.log.segments import Segments
from storage.types import Buffer, Offset, TopicPartition

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@frozen
class FetchDataInfo:
    """The result of a read. `first_entry_incomplete`: the limit cuts the first batch."""

    offset_metadata: LogOffsetMetadata
    records: FileRegion | None = None
    first_entry_incomplete: bool = False


@frozen(kw_only=True)
class LogHooks:
    """The calls of a log to its owner. The defaults are for a log on its own."""

    # A write or a sync has failed: the directory is offline.
    failed: Callable[[OSError], None] = lambda _error: None
    # The log is about to be appended to for the first time, or to be cut: no checkpoint on the disk
    # may say that its recovery point or log start is higher than it is. A crash would believe it.
    marks_relied_on: Callable[[TopicPartition], None] = lambda _log: None
    # What lies below the log start must not come back with a crash: its checkpoint is to be written.
    log_start_lasts: Callable[[TopicPartition], None] = lambda _log: None
    # A segment was closed: everything below the new one may be synced.
    rolled: Callable[[TopicPartition], None] = lambda _log: None
    # These files have been renamed out of the way and may be unlinked after so many milliseconds.
    doomed: Callable[[list[str], int], None] = lambda _paths, _delay_ms: None
    # Segments have left the log.
    deleted: Callable[[TopicPartition, DeletedSegments], None] = lambda _log, _deleted: None
    # The log is about to be cut, and its active segment will begin at the offset: what is known of
    # records from there on, or is being done with them, is void.
    cut: Callable[[TopicPartition, Offset], None] = lambda _log, _offset: None


@define(eq=False, kw_only=True)
class LocalLog:
    """The segments of one log in one directory, and the state of their files."""

    file_system: FileSystem
    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    hooks: LogHooks
    segments: Segments
    log_end_offset: Offset
    recovery_point: Offset
    open_segments: OpenSegments
    compaction_gaps: CompactionGaps
    failure: OSError | None = None
    closed: bool = False
    # How often names in the directory have changed, and up to which change it was synced.
    name_changes: int = 1
    _name_changes_synced: int = 0
    # A file was cut, here or before a crash, and may still come back at its old length.
    cut_unsynced: bool = False
    # How often everything up to the end was synced.
    flushes: int = 0
    _empty_batches: EmptyBatches = attrs.field(factory=EmptyBatches)
    _truncations: int = 0
    # The position that is asked for again and again: where the high watermark lies.
    _bound: LogOffsetMetadata | None = None

    # Where things stand.

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """Where the next batch will lie: its offset, its segment, and the byte in it."""
        active = self.segments.active
        return LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size)

    def offset_metadata(self, offset: Offset) -> LogOffsetMetadata:
        """Return where `offset` lies; only the offset itself where no segment holds it."""
        if offset == self.log_end_offset:
            return self.log_end_offset_metadata
        if self._bound is not None and self._bound.offset == offset:
            return self._bound
        segment = self.segments.floor(offset)
        if segment is None or offset > self.log_end_offset:
            return LogOffsetMetadata(offset)
        located = segment.locate(offset)
        position = segment.size if located is None else located.position
        self._bound = LogOffsetMetadata(offset, segment.base_offset, position)
        return self._bound

    # Appending and rolling.

    def append(self, records: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        """Write `records`, which hold `batches`, to the end of the active segment."""
        self.segments.active.append(records, batches)
        last = batches[-1][1]
        self.log_end_offset = last.base_offset + last.last_offset_delta + 1

    def must_roll(
        self, size: int, *, last_offset: Offset, max_timestamp: int, wall_ms: int | None
    ) -> bool:
        """Return whether the active segment has no room for an append of `size` bytes, or is too
        old.
        """
        active = self.segments.active
        if active.size == 0 and active.created_ms is None:
            active.created_ms = wall_ms
        return (
            # A batch that is too large for any has a segment of its own.
            (active.size > 0 and active.size + size > self.config.segment_bytes)
            or (active.size > 0 and self._is_old(active, max_timestamp, wall_ms))
            or active.indexes_full
            or not active.holds_offset(last_offset)
        )

    def _is_old(self, active: Segment, max_timestamp: int, wall_ms: int | None) -> bool:
        limit = self.config.max_segment_ms
        if self.config.segment_jitter_ms > 0 and limit > 0:
            # Spread over logs and segments, and the same in every run.
            jitter = min(self.config.segment_jitter_ms, limit)
            name = f"{self.topic_partition}/{active.base_offset}"
            limit -= zlib.crc32(name.encode()) % jitter
        return active.waited_for_roll_ms(wall_ms=wall_ms, max_timestamp=max_timestamp) > limit

    def next_base_offset(self, first_offset: Offset | None, last_offset: Offset | None) -> Offset:
        """Return the base of the segment that a roll makes: the end of the batches that are there.

        Only an append too far ahead for that base to express, [first, last], moves it there.
        """
        base = self.segments.active.end_offset
        if last_offset is not None and last_offset - base > MAX_RELATIVE_OFFSET:
            assert first_offset is not None, "an append has a first offset and a last"
            base = first_offset
        return base

    def roll(self, base_offset: Offset, wall_ms: int | None = None) -> None:
        """Close the active segment and begin one at `base_offset`."""
        active = self.segments.active
        if active.base_offset == base_offset:
            assert active.size == 0, "a segment that holds records is never rolled onto"
            with self.irrevocable():  # there is no active segment in between
                self.segments.pop_last().close()
                self._add_segment(base_offset, wall_ms)
            return
        if self.cut_unsynced:
            # Or a power cut could bring back what was cut, and the new segment still join it.
            active.pins.file.sync()
            self.cut_unsynced = False
        active.become_inactive()
        self._add_segment(base_offset, wall_ms)
        self._bound = None
        self.hooks.rolled(self.topic_partition)

    def begin(self, wall_ms: int | None) -> None:
        """Make the first segment of a log that has none."""
        self._add_segment(self.log_end_offset, wall_ms)

    def _add_segment(self, base_offset: Offset, wall_ms: int | None) -> None:
        segment = Segment.create(
            self.file_system,
            self.directory,
            base_offset,
            max_index_bytes=self.config.segment_index_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
            wall_ms=wall_ms,
            preallocate_bytes=self.config.segment_bytes if self.config.preallocate else 0,
        )
        self._adopt(segment)

    def _adopt(self, segment: Segment) -> None:
        segment.open_segments = self.open_segments
        self.segments.add(segment)
        self.name_changes += 1

    # Reading.

    def read(
        self,
        start_offset: Offset,
        max_bytes: int,
        *,
        max_offset_exclusive: Offset,
        min_one: bool,
        passes_empty: bool = False,
    ) -> FetchDataInfo:
        """Find where the bytes from `start_offset` on lie: `Log.read`, within the segments."""
        max_offset = min(max_offset_exclusive, self.log_end_offset)
        if start_offset >= max_offset:
            return FetchDataInfo(self.offset_metadata(start_offset))
        try:
            bound = self.offset_metadata(max_offset)
            found, first = self._find(start_offset, max_bytes, bound=bound, min_one=min_one)
            if passes_empty and first is not None:
                if first.may_lack(start_offset):
                    offset = self._empty_batches.offset_with_records(
                        self.segments, start_offset, bound
                    )
                    if offset is None:
                        return found
                    found, _ = self._find(offset, max_bytes, bound=bound, min_one=min_one)
                if self.config.is_compacted or self.compaction_gaps.below:
                    found = self._ended_with_records(found, bound)
        except ShortageError:
            raise
        except OSError as error:  # as `retryable`, which takes a tenth of a read
            raise self.fail(error) from error
        return found

    def _find(
        self, start_offset: Offset, max_bytes: int, *, bound: LogOffsetMetadata, min_one: bool
    ) -> tuple[FetchDataInfo, LocatedBatch | None]:
        """Find the bytes, and the batch that they begin with."""
        segment = self.segments.floor(start_offset)
        while segment is not None:
            in_bound = segment.base_offset == bound.segment_base_offset
            found = segment.read(
                start_offset,
                max_bytes,
                max_position=bound.position if in_bound else segment.size,
                min_one=min_one,
            )
            if found is not None:
                position = found.first.position
                return FetchDataInfo(
                    LogOffsetMetadata(start_offset, segment.base_offset, position),
                    segment.region(position, found.size) if found.size else None,
                    not min_one and max_bytes < found.first.size,
                ), found.first
            segment = None if in_bound else self.segments.after(segment)
        return FetchDataInfo(bound), None

    def _ended_with_records(self, found: FetchDataInfo, bound: LogOffsetMetadata) -> FetchDataInfo:
        """Return `found` without the empty batches that it ends with, where records follow."""
        segment = self.segments.floor(found.offset_metadata.segment_base_offset)
        if found.records is None or segment is None:
            return found
        start, size = found.records.position, found.records.size
        end = self._empty_batches.end_of_answer(self.segments, segment, start, start + size, bound)
        if end == start + size:
            return found
        found.records.release()
        return attrs.evolve(found, records=segment.region(start, end - start))

    # Cutting.

    def prepare_cut(self, offset: Offset) -> tuple[Offset, Offset]:
        """Open what `cut` needs, so that no shortage interrupts it.

        Return the base of the segment that will be active, and where the whole batches below
        `offset` end: all of the batch that reaches past it goes, and may come back in a crash.
        """
        floor = self.segments.floor(offset)
        assert floor is not None, "the first segment begins at or below what is left"
        cut = floor.locate(offset)
        kept = floor.end_offset if cut is None else floor.end_before(cut)
        floor.open_files()
        return floor.base_offset, min(offset, kept)

    def cut(self, offset: Offset) -> None:
        """Cut the log to end at `offset`; the recovery point is no higher, and checkpointed."""
        self._drop_segments_after(offset)
        self.segments.active.truncate_to(offset)
        self.log_end_offset = offset
        self.cut_unsynced = True
        self._forget_positions()

    def empty(self, log_end_offset: Offset) -> None:
        """Drop every segment, and go on at `log_end_offset`."""
        self._drop_segments_after(-1)
        self.log_end_offset = self.recovery_point = log_end_offset
        self._add_segment(log_end_offset, None)
        self._forget_positions()

    def _forget_positions(self) -> None:
        self._empty_batches.forget()
        self._truncations += 1
        self._bound = None

    def _drop_segments_after(self, offset: Offset) -> None:
        """Drop segments from the end, and for good, before the file that stays is cut: a crash in
        between leaves a log that is whole up to some offset, never one with a hole.
        """
        dropped: list[Segment] = []
        end_offset = self.log_end_offset
        while len(self.segments) and self.segments.active.base_offset > offset:
            segment = self.segments.pop_last()
            segment.abort_regions()
            self._doom(segment)
            dropped.insert(0, segment)
        if dropped:
            self.file_system.sync_directory(self.directory)
            self._report_deleted(DeletionCause.TRUNCATION, dropped, end_offset)

    def drop_oldest(self, count: int, cause: DeletionCause) -> list[Segment]:
        """Drop the `count` oldest segments and return them."""
        dropped = list(self.segments)[:count]
        for oldest in dropped:
            self.segments.remove(oldest)
            self._doom(oldest)
        if dropped:
            self._report_deleted(cause, dropped, self.segments[0].base_offset)
        return dropped

    def _doom(self, segment: Segment) -> None:
        self.name_changes += 1
        self.hooks.doomed(segment.delete(), self.config.file_delete_delay_ms)

    def _report_deleted(
        self, cause: DeletionCause, segments: list[Segment], end_offset: Offset
    ) -> None:
        self.hooks.deleted(
            self.topic_partition,
            DeletedSegments(
                cause=cause,
                count=len(segments),
                size=sum(segment.size for segment in segments),
                first_offset=segments[0].base_offset,
                end_offset=end_offset,
            ),
        )

    # Compacting.

    def end_of(self, old: Sequence[Segment]) -> Offset:
        """Return where the segment behind `old`, neighbours, begins. Raise CleaningAbortedError where
        one of them has left the log.
        """
        held = list(self.segments)
        if any(each not in held for each in old):
            raise CleaningAbortedError(f"{self.topic_partition} has lost a segment meanwhile")
        return held[held.index(old[-1]) + 1].base_offset

    def replace(self, old: Sequence[Segment], base_offset: Offset) -> None:
        """Put the `.cleaned` segment of `base_offset`, which is on the disk, in the place of `old`."""
        swap.prepare(self.file_system, self.directory, base_offset)
        for each in old:
            self.segments.remove(each)
            self._doom(each)
        swap.finish(self.file_system, self.directory, base_offset)
        self._adopt(
            Segment.load(
                self.file_system,
                self.directory,
                base_offset,
                max_index_bytes=self.config.segment_index_bytes,
                index_interval_bytes=self.config.index_interval_bytes,
            )
        )
        self._bound = None

    # Syncing.

    def plan_flush(self, paths: Iterable[str] = (), *, closing: bool = False) -> FlushPlan:
        """Return what to sync so that the recovery point may be the log end: segments, `paths`, and,
        where the log is `closing`, the active segment's indexes. The plan holds the files open
        until it is dropped.
        """
        names_synced = self._name_changes_synced == self.name_changes
        synced = names_synced and not self.cut_unsynced
        if synced and self.recovery_point >= self.log_end_offset:
            return FlushPlan(
                nothing_to_sync, self.log_end_offset, self._truncations, self.name_changes
            )
        regions, unsynced = [], list(paths)
        # A segment is read again after a crash, indexes and all, unless it ends below the
        # recovery point: until then its indexes need no sync.
        for segment in self.segments.starting_with(self.recovery_point - 1):
            regions.append(segment.region(0, 0))
            if segment.size and (closing or segment is not self.segments.active):
                unsynced += (segment.path(suffix) for suffix in _INDEXES)
        return FlushPlan(
            Syncing(
                file_system=self.file_system,
                directory=None if names_synced else self.directory,
                regions=regions,
                paths=unsynced,
            ),
            self.log_end_offset,
            self._truncations,
            self.name_changes,
        )

    def sync(self, plan: FlushPlan) -> None:
        """Carry out `plan`, in any thread. A failure closes the log there and then, before another
        append is taken (KAFKA-10778).
        """
        with self.retryable():
            plan.sync()

    def commit_flush(self, plan: FlushPlan) -> bool:
        """Note that the files of `plan` are synced; return False where a truncation has overtaken
        it.
        """
        if plan.truncations != self._truncations or self.closed:
            return False
        self.recovery_point = max(self.recovery_point, plan.up_to)
        self.cut_unsynced = False
        self._name_changes_synced = plan.name_changes
        self.flushes += 1
        return True

    # The end.

    def finish_active(self) -> None:
        """Give back the spare room of the active segment, which is then to be synced."""
        if self.segments.active.become_inactive(closing=True):
            self.cut_unsynced = True

    def close_uncleanly(self) -> None:
        """Release the files as they are: nothing is written."""
        self.closed = True
        for segment in self.segments:
            segment.close()

    def fail(self, error: OSError) -> KafkaStorageError:
        """Close the log to appends, because a write or a sync has failed, and return what to raise."""
        if self.failure is None:
            self.failure = error
            self.hooks.failed(error)
        return self._storage_error()

    def _storage_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"{self.topic_partition} in {self.directory}: {self.failure}")

    @contextlib.contextmanager
    def irrevocable(self) -> Iterator[None]:
        """Guard work that cannot stop half-way: whatever the disk refuses fails the log.

        Raise KafkaStorageError for it.
        """
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error

    @contextlib.contextmanager
    def retryable(self) -> Iterator[None]:
        """Guard work that can be done again from its beginning: a shortage is passed on, and
        everything else that the disk refuses fails the log.
        """
        try:
            yield
        except ShortageError:
            raise
        except OSError as error:
            raise self.fail(error) from error

    def check_usable(self) -> None:
        """Raise KafkaStorageError where the log has failed or is closed."""
        if self.failure is not None:
            raise self._storage_error() from self.failure
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} in {self.directory} is closed")
