"""One round over one log: what it reads is fixed when it is planned, on the loop.

    plan      which closed segments there are
    advance   read the transactions aborted in them, and the keys of the dirty ones into the map;
              then group by group: read, judge, write
    ready     a group's `.cleaned` files are on the disk: to be put in place, on the loop
    advance   ... until `done`

Rule 1: `advance` may run in a worker thread: it touches its own files, and reads those of closed
segments and the active one's transaction index by their paths, one at a time, and nothing of the
log. It looks at `aborted` at every batch.

Rule 2: a closed segment changes only when the log is cut, which aborts the round first; and it is
removed only under another name. So what is found under its name until `commit` is what was planned.

Rule 3: the segment that a group becomes has `.cleaned` behind each of its names while it is
written. What is finished is on the disk, indexes and all, before anybody renames it. It is as old
as the last of its sources: retention goes by that where records carry no time.

Rule 4: a map that is full ends the round there. What lies past its end stays as it is, and is
dirty again the next time.

Rule 5: a group holds neighbours, and what it could come to at most fits one segment: bytes,
either index, and offsets relative to its base. What compaction has shrunk is grouped again in the
next round: small segments do not stay small.

    sizes       40  10  10 │ 60  30 │ 95 │ 20  20        most: 100
    groups     [   one    ] [  two ] [3 ] [ four ]

(Cleaner.doClean, Cleaner.buildOffsetMap, Cleaner.cleanSegments, Cleaner.groupSegmentsBySize in
Kafka.)

The file is long because all steps of a round work on one plan.
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import attrs

from storage.attributes import define, frozen
from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.records import read_marker
from storage.batch.spare_room import CHUNK_SIZE
from storage.cleaner.candidates import DirtyRange
from storage.cleaner.filter import BatchFilter, LastRecord
from storage.cleaner.offset_map import OffsetMap
from storage.cleaner.record_walk import (
    CleanerStats,
    MakeWalk,
    RecordWalk,
    SoundBatch,
    best_walk,
    sound_batch,
)
from storage.cleaner.transactions import CleanedTransactions
from storage.config import LogConfig
from storage.errors import (
    CleaningAbortedError,
    CorruptIndexError,
    CorruptRecordError,
    StorageError,
)
from storage.log import swap
from storage.log.flush import sync_path
from storage.log.index.index_file import MAX_RELATIVE_OFFSET
from storage.log.index.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    aborted_between,
)
from storage.log.log import Log
from storage.log.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from storage.log.segment_file import read_chunks
from storage.types import Buffer, Offset

_WRITE_BYTES: Final = 1 << 20


@define(eq=False)
class CleanedSegment:
    """The segment that a group becomes: large writes, indexed batch by batch as appends are."""

    segment: Segment
    _parts: list[Buffer] = attrs.field(factory=list)
    _batches: list[tuple[int, BatchHeader]] = attrs.field(factory=list)
    _size: int = 0

    def add(self, batch: Buffer) -> None:
        self._batches.append((self._size, read_header(batch)))
        self._parts.append(batch)
        self._size += len(batch)
        if self._size >= _WRITE_BYTES:
            self._write()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for each in transactions:
            self.segment.transaction_index.append(each)

    def finish(self, *, modified_ms: int) -> None:
        """Complete, and on the disk, as if it had been written at `modified_ms`."""
        self._write()
        # One of which nothing stayed has indexes too, as Kafka expects of it.
        self.segment.become_inactive(closing=True)
        file_system = self.segment.file_system
        file_system.set_modified_ms(self.segment.path(LOG_SUFFIX), modified_ms)
        for suffix in SEGMENT_SUFFIXES:
            path = self.segment.path(suffix)
            if file_system.exists(path):
                sync_path(file_system, path)

    def close(self) -> None:
        self.segment.close()

    def _write(self) -> None:
        if self._parts:
            self.segment.append(b"".join(self._parts), self._batches)
        self._parts, self._batches, self._size = [], [], 0


@frozen(kw_only=True)
class SourceSegment:
    """A closed segment as a round sees it."""

    segment: Segment
    next_base_offset: Offset
    size: int

    @property
    def base_offset(self) -> Offset:
        return self.segment.base_offset

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The sizes of its offset index and its time index, which are read from the disk."""
        return self._file_size(INDEX_SUFFIX), self._file_size(TIME_INDEX_SUFFIX)

    def _file_size(self, suffix: str) -> int:
        try:
            file = self.segment.file_system.open_for_reading(self.segment.path(suffix))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()


@frozen(kw_only=True)
class CleaningPlan:
    """The facts of the log that `advance` needs: as they were, and still are unless aborted."""

    log: Log
    config: LogConfig
    dirty: DirtyRange
    sources: list[SourceSegment]
    # A transaction may have ended in any later segment, the active one too.
    transaction_indexes: list[str]
    first_dirty_position: int
    last_records: Mapping[int, LastRecord]
    wall_ms: int


def plan(log: Log, dirty: DirtyRange, wall_ms: int) -> CleaningPlan:
    """Plan a round over `dirty`, on the loop."""
    segments = list(log.segments)
    first, end = dirty.first_dirty_offset, dirty.first_uncleanable_offset
    floor = log.segments.floor(first)
    position = floor.start_before(first) if floor else 0
    return CleaningPlan(
        log=log,
        config=log.config,
        dirty=dirty,
        sources=[
            SourceSegment(segment=segment, next_base_offset=after.base_offset, size=segment.size)
            for segment, after in pairwise(segments)
            if segment.base_offset < end
        ],
        transaction_indexes=[each.path(TRANSACTION_INDEX_SUFFIX) for each in segments],
        first_dirty_position=position,
        last_records={
            state.producer_id: LastRecord(
                state.last_offset if state.batches else None, state.producer_epoch
            )
            for state in log.producers.producers.values()
        },
        wall_ms=wall_ms,
    )


@define(eq=False, kw_only=True)
class Cleaning:
    """One round over one log, as the head of this module draws it."""

    plan: CleaningPlan
    offset_map: OffsetMap
    read_bytes: int = CHUNK_SIZE
    # Called in `advance`: it may import much.
    make_walk: MakeWalk = best_walk
    stats: CleanerStats = attrs.field(factory=CleanerStats)
    # Set on the loop, looked at anywhere: the log is being cut or deleted.
    aborted: bool = False
    # What has been written and waits for `commit`.
    ready: Sequence[SourceSegment] = ()
    done: bool = False
    _transactions: CleanedTransactions = attrs.field(factory=CleanedTransactions)
    _aborted_in_log: list[AbortedTransaction] = attrs.field(init=False, factory=list)
    _writing: Offset | None = None
    _work: Generator[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._work = self._run()

    @property
    def log(self) -> Log:
        return self.plan.log

    @property
    def end_offset(self) -> Offset:
        """The offset up to which the log is clean, once the round is done."""
        return self.offset_map.latest_offset + 1

    def advance(self, budget: int) -> int:
        """Move on by about `budget` bytes, at most to the end of a group; return how many it were.

        Raise CleaningAbortedError once the log has been cut or deleted, and CorruptRecordError where
        a batch cannot be cleaned.
        """
        assert not self.ready, "a group is put in place before the next one is begun"
        self._check()
        moved = 0
        try:
            for size in self._work:
                moved += size
                if self.ready or moved >= budget:
                    return moved
                self._check()
        except (StorageError, OSError) as error:
            if self.aborted:
                raise CleaningAbortedError(f"{self.log.topic_partition} has changed") from error
            if isinstance(error, DamagedLogError | CorruptIndexError):
                raise CorruptRecordError(str(error)) from error
            raise
        self.done = True
        return moved

    @property
    def sources_are_synced(self) -> bool:
        """Whether all below the end of the group that is ready is on the disk. `commit` flushes the
        log where it is not.
        """
        return self.log.recovery_point >= self.ready[-1].next_base_offset

    def commit(self) -> None:
        """Put the group that is ready in the place of its segments, on the loop."""
        self._check()
        sources, self.ready = self.ready, ()
        base_offset = sources[0].base_offset
        self.log.replace_segments([each.segment for each in sources], base_offset)
        self._writing = None

    def close(self) -> None:
        """End the round, on the loop, once `advance` is done or has given up."""
        self._work.close()
        if self._writing is not None and not self.log.failed:
            swap.discard(self.log.local.file_system, self.log.directory, self._writing)

    def _check(self) -> None:
        if self.aborted or self.log.failed:
            raise CleaningAbortedError(f"{self.log.topic_partition} has changed")

    def _run(self) -> Generator[int]:
        self._read_aborted()
        walk = self.make_walk(self.offset_map)
        yield from self._index(walk)
        config = self.plan.config
        judge = BatchFilter(
            walk=walk,
            transactions=self._transactions,
            last_records=self.plan.last_records,
            round_end=self.plan.dirty.first_uncleanable_offset,
            wall_ms=self.plan.wall_ms,
            delete_retention_ms=config.delete_retention_ms,
            stats=self.stats,
        )
        sources = [each for each in self.plan.sources if each.base_offset < self.end_offset]
        for members in group(
            sources, segment_bytes=config.segment_bytes, index_bytes=config.segment_index_bytes
        ):
            yield from self._copy(members, judge)
            self.ready = members
            yield 0

    def _read_aborted(self) -> None:
        """Read which transactions were aborted among what may be cleaned."""
        if self.plan.sources:
            with contextlib.closing(self._transaction_indexes()) as indexes:
                start, end = (
                    self.plan.sources[0].base_offset,
                    self.plan.dirty.first_uncleanable_offset,
                )
                self._aborted_in_log = aborted_between(indexes, start, end)

    def _transaction_indexes(self) -> Generator[TransactionIndex]:
        for path in self.plan.transaction_indexes:
            self._check()
            index = TransactionIndex.open(self.log.local.file_system, path)
            try:
                yield index
            finally:
                index.close()

    def _aborted_between(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        return [each for each in self._aborted_in_log if each.overlaps(start, end)]

    # Into the map.

    def _index(self, walk: RecordWalk) -> Iterator[int]:
        transactions = CleanedTransactions()
        dirty = self.plan.dirty
        first_dirty = dirty.first_dirty_offset
        transactions.add_aborted(self._aborted_between(first_dirty, dirty.first_uncleanable_offset))
        position = self.plan.first_dirty_position
        for source in self.plan.sources:
            if source.next_base_offset <= first_dirty:
                continue
            for batches in self._batches(source, walk.bytes_at_once, position):
                data = [each for each in batches if _may_replace(transactions, each)]
                if not walk.enter(data, first_dirty):
                    return
                if (last_offset := batches[-1].header.last_offset) >= first_dirty:
                    self.offset_map.saw(last_offset)
                size = sum(len(each.batch) for each in batches)
                self.stats.bytes_indexed += size
                yield size
            # Over the gap that an earlier compaction left behind the last batch.
            self.offset_map.saw(source.next_base_offset - 1)
            position = 0

    # Out of the old segments.

    def _copy(self, members: Sequence[SourceSegment], judge: BatchFilter) -> Iterator[int]:
        """Copy what stays of `members` into one `.cleaned` segment."""
        self._writing = members[0].base_offset
        writer = self._writer(members[0].base_offset)
        try:
            for source in members:
                self._transactions.add_aborted(
                    self._aborted_between(source.base_offset, source.next_base_offset)
                )
                for batches in self._batches(source, judge.walk.bytes_at_once):
                    for kept in judge.keep(batches):
                        if kept is not None:
                            writer.add(kept)
                            self.stats.bytes_written += len(kept)
                    writer.add_aborted(self._transactions.take_met())
                    yield sum(len(each.batch) for each in batches)
            with _being_there(members[-1]) as path:
                modified_ms = self.log.local.file_system.modified_ms(path)
            writer.finish(modified_ms=modified_ms)
        finally:
            writer.close()

    def _writer(self, base_offset: Offset) -> CleanedSegment:
        log, config = self.log, self.plan.config
        return CleanedSegment(
            Segment.create(
                log.local.file_system,
                log.directory,
                base_offset,
                max_index_bytes=config.segment_index_bytes,
                index_interval_bytes=config.index_interval_bytes,
                name_suffix=CLEANED_SUFFIX,
            )
        )

    def _batches(
        self, source: SourceSegment, bytes_at_once: int, position: int = 0
    ) -> Iterator[list[SoundBatch]]:
        """Yield the batches of `source`, so many together that their records are `bytes_at_once`."""
        with _being_there(source) as path:
            file = self.log.local.file_system.open_for_reading(path)
        together: list[SoundBatch] = []
        size, chunk_size = 0, max(self.read_bytes, bytes_at_once)
        try:
            for chunk in read_chunks(file, position, source.size, chunk_size=chunk_size):
                for at, header in chunk.batches:
                    batch = sound_batch(chunk.data, at, header)
                    together.append(batch)
                    size += HEADER_SIZE + batch.end - batch.begin
                    position = chunk.position + at + header.size
                    if size >= bytes_at_once:
                        yield together
                        together, size = [], 0
                # Those of one chunk are looked at where they stand.
                if together:
                    yield together
                    together, size = [], 0
        finally:
            file.close()
        if position != source.size:
            raise CorruptRecordError(f"{path}: no whole batch at byte {position} of {source.size}")


def _may_replace(transactions: CleanedTransactions, batch: SoundBatch) -> bool:
    """Return whether the keys of `batch` replace earlier ones."""
    header = batch.header
    if header.is_control:
        transactions.on_control_batch(header, read_marker(batch.batch))
        return False
    return not transactions.on_batch(header)


@contextlib.contextmanager
def _being_there(source: SourceSegment) -> Iterator[str]:
    """Yield the path of its `.log`, for an operation that finds out whether the file is still
    there.
    """
    path = source.segment.path(LOG_SUFFIX)
    try:
        yield path
    except FileNotFoundError as error:
        raise CleaningAbortedError(f"{path} has gone meanwhile") from error


class GroupedSegment(Protocol):
    @property
    def base_offset(self) -> Offset: ...

    @property
    def next_base_offset(self) -> Offset:
        """The base of the segment after it."""

    @property
    def size(self) -> int: ...

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The sizes of the entries of its offset index, and of its time index."""


Grouped = TypeVar("Grouped", bound=GroupedSegment)


def group(
    segments: Iterable[Grouped], *, segment_bytes: int, index_bytes: int
) -> list[list[Grouped]]:
    """Return `segments`, oldest first, in groups of neighbours that each fit one segment."""
    groups: list[list[Grouped]] = []
    sizes = (0, 0, 0)
    most = (segment_bytes, index_bytes, index_bytes)
    for segment in segments:
        own = (segment.size, *segment.index_bytes)
        together = tuple(one + other for one, other in zip(sizes, own, strict=True))
        if (
            groups
            and all(one <= other for one, other in zip(together, most, strict=True))
            and _holds(groups[-1][0], segment)
        ):
            groups[-1].append(segment)
            sizes = (together[0], together[1], together[2])
        else:
            groups.append([segment])
            sizes = own
    return groups


def _holds(first: GroupedSegment, segment: GroupedSegment) -> bool:
    # An empty one has no offset to write down, however far away its neighbour begins.
    last_offset = segment.next_base_offset - 1
    return segment.size == 0 or last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
