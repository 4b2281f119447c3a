"""The bytes of one log: its segments, where it ends, and up to where it is on the disk.

    [ 100 ── 199 ][ 200 ── 31│5 ── 399 ][ 400 ── 455 ]│ log end offset
                      recovery point: synced below

Rule 1: a failed write or sync closes the log to everything at once (the file may end in half
a batch), and is reported. What it refused before that changed nothing.

Rule 2: segments join: a new one begins where the batches of the one before it end, so that
recovery can tell that a tail was lost. Only compaction leaves gaps between them, and says how
far (`storage.log.compaction_gaps`).

Rule 3: what has changed nothing yet, or can be done again from its beginning, is only refused
where descriptors run out (ShortageError): appends, rolls, reads, flushes, retention. Truncations
and swaps go through, or fail the log.

Rule 4: the recovery point never claims more than is on the disk. It is lowered, and the lower
one checkpointed, before a truncation touches anything below it; later segments go, for good,
before the file that stays is cut.

What the records mean (epochs, producers, who may append what) is `storage.log.log`'s.
(LocalLog in Kafka.)
"""

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence

import attrs

from storage.batch.record_batch import BatchHeader
from storage.config import LogConfig
from storage.errors import CleaningAbortedError, KafkaStorageError, ShortageError
from storage.filesystem import FileSystem
from storage.log import swap
from storage.log.compaction_gaps import CompactionGaps
from storage.log.empty_batches import EmptyBatches
from storage.log.file_region import FileRegion
from storage.log.flush import FlushPlan, Syncing, nothing_to_sync
from storage.log.index.segment_index import MAX_RELATIVE_OFFSET
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
from storage.types import Offset, TopicPartition

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@attrs.frozen
class FetchDataInfo:
    """What a read found. `first_entry_incomplete`: the limit cuts the first batch."""

    offset_metadata: LogOffsetMetadata
    records: FileRegion | None = None
    first_entry_incomplete: bool = False


@attrs.frozen(kw_only=True)
class LogHooks:
    """What a log tells whoever keeps it. The defaults are for a log on its own."""

    # A write or a sync failed: the directory is offline.
    failed: Callable[["LocalLog", OSError], None] = lambda _log, _error: None
    # About to append for the first time, or to cut: no checkpoint on the disk may say that
    # the recovery point or the log start is higher than it is. A crash would believe it.
    marks_relied_on: Callable[["LocalLog"], None] = lambda _log: None
    # A segment was closed: everything below the new one may be synced.
    rolled: Callable[["LocalLog"], None] = lambda _log: None
    # The high watermark is somewhere else now, whatever moved it; and once as the log is opened.
    high_watermark_moved: Callable[["LocalLog"], None] = lambda _log: None
    # These files have been renamed out of the way and may be unlinked, after a while.
    doomed: Callable[["LocalLog", list[str]], None] = lambda _log, _paths: None
    # Segments have left the log.
    deleted: Callable[["LocalLog", DeletedSegments], None] = lambda _log, _deleted: None
    # About to be cut, so that the active segment will begin there: what is said of records
    # from there on, or is being done with them, is void.
    cut: Callable[["LocalLog", Offset], None] = lambda _log, _offset: None


def _unheard() -> None:
    """Nobody has asked to be told."""


@attrs.define(eq=False, kw_only=True)
class LocalLog:
    file_system: FileSystem
    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    hooks: LogHooks
    segments: Segments
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    open_segments: OpenSegments
    compaction_gaps: CompactionGaps
    failure: OSError | None = None
    closed: bool = False
    # Told after its start, its end or its high watermark has moved.
    on_moved: Callable[[], None] = _unheard
    # How often names in the directory have changed, and up to which of them it was synced.
    _name_changes: int = 1
    _name_changes_synced: int = 0
    # A file was cut, here or before a crash, and may still come back at its old length.
    _cut_unsynced: bool = False
    _empty_batches: EmptyBatches = attrs.field(factory=EmptyBatches)
    # How often everything up to the end was made to last.
    flushes: int = 0
    _truncations: int = 0
    # Positions that are asked for again and again: where the high watermark lies.
    _bound: LogOffsetMetadata | None = None

    # Where things stand.

    @property
    def size(self) -> int:
        """Bytes of its `.log` files."""
        return self.segments.size

    @property
    def failed(self) -> bool:
        """Whether a write or a sync has failed: it takes nothing more."""
        return self.failure is not None

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        """Where the next batch will lie: its offset, its segment, and the byte in it."""
        active = self.segments.active
        return LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size)

    def offset_metadata(self, offset: Offset) -> LogOffsetMetadata:
        """Where `offset` lies; only the offset itself where it is outside the log."""
        if offset == self.log_end_offset:
            return self.log_end_offset_metadata
        if self._bound is not None and self._bound.offset == offset:
            return self._bound
        if not self.log_start_offset <= offset < self.log_end_offset:
            return LogOffsetMetadata(offset)
        segment = self.segments.floor(offset)
        assert segment is not None, "the log start lies in a segment"
        located = segment.locate(offset)
        position = segment.size if located is None else located.position
        self._bound = LogOffsetMetadata(offset, segment.base_offset, position)
        return self._bound

    # Rolling.

    def _segment_for(
        self,
        size: int,
        first: BatchHeader,
        last: BatchHeader,
        max_timestamp: int,
        wall_ms: int | None,
    ) -> Segment:
        """The active segment, rolled first if it has no room for the append, or is too old."""
        active = self.segments.active
        if active.size == 0 and active.created_ms is None:
            active.created_ms = wall_ms
        if (
            # A batch that is too large for any has a segment of its own.
            active.size > max(0, self.config.segment_bytes - size)
            or (active.size > 0 and self._is_old(active, max_timestamp, wall_ms))
            or active.indexes_full
            or not active.holds_offset(last.last_offset)
        ):
            self.roll(first_offset=first.base_offset, last_offset=last.last_offset, wall_ms=wall_ms)
            return self.segments.active
        return active

    def _is_old(self, active: Segment, max_timestamp: int, wall_ms: int | None) -> bool:
        limit = self.config.max_segment_ms
        jitter = min(self.config.segment_jitter_ms, limit)
        if jitter > 0:
            # Spread over logs and segments, and the same in every run.
            name = f"{self.topic_partition}/{active.base_offset}"
            limit -= zlib.crc32(name.encode()) % jitter
        return active.waited_for_roll_ms(wall_ms=wall_ms, max_timestamp=max_timestamp) > limit

    def roll(
        self,
        *,
        first_offset: Offset | None = None,
        last_offset: Offset | None = None,
        wall_ms: int | None = None,
    ) -> Segment:
        """Close the active segment and begin one where its batches end.

        Only an append too far ahead for that base to express, [first, last], moves it
        there. So segments join, and recovery can tell that a tail was lost.
        """
        self._check_usable()
        with self._trying():
            active = self.segments.active
            base = active.end_offset
            if last_offset is not None and last_offset - base > MAX_RELATIVE_OFFSET:
                assert first_offset is not None, "an append has a first offset and a last"
                base = first_offset
            if active.base_offset == base:
                assert active.size == 0, "a segment that holds records is never rolled onto"
                with self._writing():  # there is no active segment in between
                    self.segments.pop_last().close()
                    return self._add_segment(base, wall_ms)
            if self._cut_unsynced:
                # Or a power cut could bring back what was cut, and the new segment still join it.
                active.pins.file.sync()
                self._cut_unsynced = False
            active.become_inactive()
            self._before_roll(base)
            self._add_segment(base, wall_ms)
        self._bound = None
        self.hooks.rolled(self)
        return self.segments.active

    def _before_roll(self, base_offset: Offset) -> None:
        """The active segment is closed; the next one will begin at `base_offset`."""

    def _add_segment(self, base_offset: Offset, wall_ms: int | None) -> Segment:
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
        return segment

    def _adopt(self, segment: Segment) -> None:
        segment.open_segments = self.open_segments
        self.segments.add(segment)
        self._name_changes += 1

    # Reading.

    def _read(
        self,
        start_offset: Offset,
        max_bytes: int,
        *,
        max_offset_exclusive: Offset,
        min_one: bool,
        passes_empty: bool,
    ) -> FetchDataInfo:
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
        except OSError as error:  # as in `_reading`, which costs what a small read does
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

    # Truncating.

    def _cut(self, offset: Offset) -> None:
        floor = self.segments.floor(offset)
        assert floor is not None, "the first segment begins at or below what is left"
        cut = floor.locate(offset)
        # All of the batch that reaches past `offset` goes, and may come back in a crash.
        kept = floor.end_offset if cut is None else floor.end_before(cut)
        self.hooks.cut(self, floor.base_offset)
        self._lower_marks(min(offset, kept), offset)
        self.compaction_gaps.lower_to(offset)
        self._drop_segments_after(offset)
        self.segments.active.truncate_to(offset)
        self.log_end_offset = offset
        self._empty_batches.forget()
        self._truncations += 1
        self._cut_unsynced = True
        self._bound = None
        self.on_moved()

    def _empty(self, *, log_end_offset: Offset, log_start_offset: Offset) -> None:
        self.hooks.cut(self, log_end_offset)
        self._lower_marks(min(log_end_offset, self.segments[0].base_offset), log_start_offset)
        self.compaction_gaps.lower_to(log_end_offset)
        self._drop_segments_after(-1)
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.recovery_point = log_end_offset
        self._add_segment(log_end_offset, None)
        self._empty_batches.forget()
        self._truncations += 1
        self._bound = None
        self.on_moved()

    def _lower_marks(self, recovery_point: Offset, log_start_offset: Offset) -> None:
        marks = self.recovery_point, self.log_start_offset
        self.recovery_point = min(self.recovery_point, recovery_point)
        self.log_start_offset = min(self.log_start_offset, log_start_offset)
        if marks != (self.recovery_point, self.log_start_offset):
            self.hooks.marks_relied_on(self)

    def _drop_segments_after(self, offset: Offset) -> None:
        """From the end, and for good, before the file that stays is cut: a crash in between
        leaves a log that is whole up to some offset, never one with a hole.
        """
        dropped: list[Segment] = []
        end_offset = self.log_end_offset
        while len(self.segments) and self.segments.active.base_offset > offset:
            segment = self.segments.pop_last()
            segment.pins.abort_beyond(0)
            self._doom(segment)
            dropped.insert(0, segment)
        if dropped:
            self.file_system.sync_directory(self.directory)
            self._tell_deleted(DeletionCause.TRUNCATION, dropped, end_offset)

    def _doom(self, segment: Segment) -> None:
        self._name_changes += 1
        self.hooks.doomed(self, segment.delete())

    def _tell_deleted(
        self, cause: DeletionCause, segments: list[Segment], end_offset: Offset
    ) -> None:
        self.hooks.deleted(
            self,
            DeletedSegments(
                cause=cause,
                count=len(segments),
                size=sum(segment.size for segment in segments),
                first_offset=segments[0].base_offset,
                end_offset=end_offset,
            ),
        )

    # Compacting.

    def _replace(self, old: Sequence[Segment], base_offset: Offset) -> None:
        """Put the `.cleaned` segment of `base_offset`, which is on the disk, in the place of `old`."""
        held = list(self.segments)
        if any(each not in held for each in old):
            raise CleaningAbortedError(f"{self.topic_partition} has lost a segment meanwhile")
        end = held[held.index(old[-1]) + 1].base_offset
        if end > self.recovery_point:
            self.flush()
        self.compaction_gaps.raise_to(end)
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

    def flush(self) -> None:
        """Make everything up to the log end last."""
        self._check_usable()
        with self._trying():
            self.commit_flush(self._sync_now())

    def _sync_now(self, *, closing: bool = False) -> FlushPlan:
        plan = self._plan_flush(closing=closing)
        plan.sync()
        return plan

    def flush_plan(self) -> FlushPlan:
        """What to sync so that the recovery point may be the log end.

        The plan holds the files open until it is dropped; hand it to `sync`.
        """
        self._check_usable()
        with self._trying():
            return self._plan_flush()

    def _plan_flush(self, *, closing: bool = False) -> FlushPlan:
        """`closing`: the active segment's indexes, too."""
        self._before_flush()
        names_synced = self._name_changes_synced == self._name_changes
        synced = names_synced and not self._cut_unsynced
        if synced and self.recovery_point >= self.log_end_offset:
            return FlushPlan(
                nothing_to_sync, self.log_end_offset, self._truncations, self._name_changes
            )
        regions = []
        paths: list[str] = []
        # A segment is read again after a crash, indexes and all, unless it ends below the
        # recovery point: until then its indexes need no sync.
        for segment in self.segments.starting_with(self.recovery_point - 1):
            regions.append(segment.region(0, 0))
            if segment.size and (closing or segment is not self.segments.active):
                paths += (segment.path(suffix) for suffix in _INDEXES)
        paths += self._unsynced_paths()
        return FlushPlan(
            Syncing(
                file_system=self.file_system,
                directory=None if names_synced else self.directory,
                regions=regions,
                paths=paths,
            ),
            self.log_end_offset,
            self._truncations,
            self._name_changes,
        )

    def _before_flush(self) -> None:
        """Write what has only been remembered."""

    def _unsynced_paths(self) -> list[str]:
        """Files besides the segments' that a flush makes last."""
        return []

    def sync(self, plan: FlushPlan) -> None:
        """Anywhere: what fails closes the log there and then, before another append is taken
        (KAFKA-10778).
        """
        with self._trying():
            plan.sync()

    def commit_flush(self, plan: FlushPlan) -> bool:
        """The plan's files are synced; False where a truncation has overtaken it."""
        if plan.truncations != self._truncations or self.closed:
            return False
        self.recovery_point = max(self.recovery_point, plan.up_to)
        self._cut_unsynced = False
        self._name_changes_synced = plan.name_changes
        self.flushes += 1
        return True

    # The end.

    def close_uncleanly(self) -> None:
        """Release the files as they are: nothing is written."""
        self.closed = True
        for segment in self.segments:
            segment.close()

    def fail(self, error: OSError) -> KafkaStorageError:
        """A write or a sync went wrong: close to appends, tell whoever keeps the log."""
        if self.failure is None:
            self.failure = error
            self.hooks.failed(self, error)
        return self._storage_error()

    def _storage_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"{self.topic_partition} in {self.directory}: {self.failure}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What the disk refuses in here closes the log: KafkaStorageError."""
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        """The same for what can be done again from its beginning: a shortage closes nothing."""
        try:
            yield
        except ShortageError:
            raise
        except OSError as error:
            raise self.fail(error) from error

    _reading = _trying
    # For who works on its files beside it.
    guarded = _trying

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self._storage_error() from self.failure
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} in {self.directory} is closed")
