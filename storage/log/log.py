"""One partition's log: what it holds, how far it may be seen, and how both move.

    log start offset      high watermark        log end offset
          │                     │                     │
    [ 100 ── 199 ][ 200 ── 31│5 ── 399 ][ 400 ── 4│55 │
      segment        segment   recovery   active       next append
                               point: synced below

    0 <= log start offset <= high watermark <= log end offset, always

    opened     what is there is believed or recovered; epochs and producers are derived from it
    appended   checked (storage.log.append), rolled if need be, written, noted
    truncated  the marks first, on disk, then the segments, then epochs and producers
    closed     synced, a producer snapshot taken, the indexes' spare room given back

Rule 1: a refused append changes nothing.

Rule 2: epochs, producers and the marks above always describe exactly the batches that are
there: what an append adds, a truncation takes away, and opening derives again.

Rule 3: records are written from the buffer that they came in, by one `write` of a view of it, and
a read answers with a `FileRegion`. Record bytes never pass through Python.

Rule 4: a read is bounded by one snapshot: the end that its caller took once, and the sizes of
the files below that end, which only grow until a truncation aborts the read.

Rule 5: the topic id is on disk before the first record is (KIP-516).

The segments and their files are those of the `LocalLog` that a log holds. This file is long because
each of these operations keeps the same marks true. (UnifiedLog in Kafka.)
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import attrs

from storage.attributes import define
from storage.batch.allowance import Allowance
from storage.checkpoint import read_partition_metadata, write_partition_metadata
from storage.config import LogConfig
from storage.errors import (
    InconsistentTopicIdError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    ShortageError,
    UnexpectedAppendOffsetError,
)
from storage.filesystem import FileSystem
from storage.log import producer_replay, retention, time_lookup
from storage.log.append import (
    LogAppendInfo,
    PlacedBatch,
    analyze,
    append_info,
    check_sizes,
    duplicate_info,
    groups,
    marker_of,
    place,
    recompress,
    validate,
)
from storage.log.compaction_gaps import read_compaction_gaps
from storage.log.flush import FlushPlan
from storage.log.index.transaction_index import AbortedTransaction, aborted_between
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.local_log import FetchDataInfo, LocalLog, LogHooks
from storage.log.open_segments import OpenSegments
from storage.log.recovery.epochs import read_epochs
from storage.log.recovery.loader import Loader
from storage.log.recovery.report import Marks, RecoveryReport
from storage.log.segment import Segment
from storage.log.segments import Segments
from storage.log.time_lookup import LongSearch, TimestampedOffset
from storage.producers.snapshot import snapshots_in
from storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerStateManager
from storage.producers.verification import NO_TERMS, TransactionTerms
from storage.types import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicId,
    TopicPartition,
)


class PreparedAppend(NamedTuple):
    """Records that a leader may append, checked and in the codec of their topic."""

    records: memoryview
    batches: list[PlacedBatch]


def prepare_append(
    records: memoryview,
    config: LogConfig,
    *,
    wall_ms: int,
    from_client: bool,
    allowance: Allowance | None = None,
) -> PreparedAppend:
    """Check a leader's append against its topic's `config`, and recompress it if that asks for it.

    This touches no log, so a thread may do it. Raise LongCheckError where it costs more than
    `allowance`.
    """
    batches = validate(
        records, config, wall_ms=wall_ms, from_client=from_client, allowance=allowance
    )
    prepared = PreparedAppend(*recompress(records, batches, config, allowance=allowance))
    check_sizes(prepared.batches, config)
    return prepared


def _ignore_moves() -> None:
    """Do nothing: nobody watches this log."""


@define(eq=False, kw_only=True)
class Log:
    """One partition's log in one directory (UnifiedLog). `Log.open` opens it, or a `LogManager`.

    An offset that is an end is exclusive; sizes are bytes, times milliseconds of the wall clock.

    Every call that writes raises KafkaStorageError where the disk fails, and the log takes no more.
    """

    local: LocalLog
    segments: Segments
    hooks: LogHooks
    leader_epoch_cache: LeaderEpochCache
    producers: ProducerStateManager
    topic_id: TopicId | None
    recovery: RecoveryReport
    log_start_offset: Offset
    high_watermark: Offset
    # Called after the log's start, its end or its high watermark has moved.
    on_moved: Callable[[], None] = _ignore_moves
    _topic_id_on_disk: bool
    _begun: bool = False

    @classmethod
    def open(
        cls,
        file_system: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        *,
        config: LogConfig | None = None,
        topic_id: TopicId | None = None,
        clean: bool = False,
        recovery_point: Offset = 0,
        log_start_offset: Offset = 0,
        producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        compacted_to: Offset = 0,
        marker_ms: int | None = None,
        believe_nothing: bool = False,
        hooks: LogHooks | None = None,
        open_segments: OpenSegments | None = None,
        wall_ms: int | None = None,
    ) -> "Log":
        """Open the log that is there, or begin one; what its directory remembers of it is in
        `Marks`.
        """
        config = config or LogConfig()
        try:
            names, existed = file_system.list_directory(directory), True
        except FileNotFoundError:
            names, existed = [], False
            file_system.make_directory(directory)
        known_id = _known_topic_id(file_system, directory, topic_partition, topic_id)
        epochs, repairs = read_epochs(file_system, directory)
        gaps, gap_repairs = read_compaction_gaps(file_system, directory, topic_partition)
        producers = ProducerStateManager(
            file_system, directory, producer_id_expiration_ms, snapshots=snapshots_in(names)
        )
        loaded = Loader(
            file_system=file_system,
            directory=directory,
            max_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            epochs=epochs,
            producers=producers,
            marks=Marks(
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                compacted_to=max(compacted_to, gaps.below),
                marker_ms=marker_ms,
                believe_nothing=believe_nothing,
            ),
            repairs=repairs + gap_repairs,
        ).load(names)
        if loaded.segments:
            log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
        local = LocalLog(
            file_system=file_system,
            topic_partition=topic_partition,
            directory=directory,
            config=config,
            hooks=hooks or LogHooks(),
            open_segments=OpenSegments() if open_segments is None else open_segments,
            segments=Segments(loaded.segments),
            compaction_gaps=gaps,
            log_end_offset=loaded.next_offset,
            recovery_point=(
                loaded.next_offset if loaded.clean else min(recovery_point, loaded.next_offset)
            ),
            name_changes=0 if existed and loaded.segments and loaded.clean else 1,
            cut_unsynced=existed and not loaded.clean,
        )
        log = cls(
            local=local,
            segments=local.segments,
            hooks=local.hooks,
            leader_epoch_cache=epochs,
            producers=producers,
            topic_id=known_id or topic_id,
            topic_id_on_disk=known_id is not None,
            log_start_offset=log_start_offset,
            high_watermark=log_start_offset,
            recovery=loaded.report(topic_partition, recovery_point, log_start_offset),
        )
        epochs.truncate_from_end(log.log_end_offset)
        gaps.lower_to(log.log_end_offset)
        epochs.truncate_from_start(log.log_start_offset)
        if not loaded.segments:
            local.begin(wall_ms)
        log._load_producers(clean=loaded.clean)
        if not loaded.clean:
            producers.sync_removals()
        # Idle from here on: what is used opens its files again.
        for segment in log.segments:
            segment.release()
            segment.open_segments = local.open_segments
        return log

    # Where things stand.

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition whose log it is."""
        return self.local.topic_partition

    @property
    def directory(self) -> str:
        """The path of the partition's directory."""
        return self.local.directory

    @property
    def config(self) -> LogConfig:
        """The topic's configuration; what is set counts from the next operation on."""
        return self.local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.local.config = config

    @property
    def log_end_offset(self) -> Offset:
        """The offset after the last record, which the next append is given."""
        return self.local.log_end_offset

    @property
    def recovery_point(self) -> Offset:
        """The offset below which everything is on the disk."""
        return self.local.recovery_point

    @property
    def size(self) -> int:
        """The bytes of its `.log` files."""
        return self.segments.size

    @property
    def failure(self) -> OSError | None:
        """The first error of its disk; the log takes nothing more after that."""
        return self.local.failure

    @property
    def failed(self) -> bool:
        """Whether `failure` is set."""
        return self.local.failure is not None

    @property
    def closed(self) -> bool:
        """Whether its files have been released for good."""
        return self.local.closed

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The leader epoch of the last batch, or the one that has begun since; None of an empty
        log.
        """
        return self.leader_epoch_cache.latest_epoch

    @property
    def earliest_epoch(self) -> LeaderEpoch | None:
        """The leader epoch of the log start offset, where the cache reaches back to it."""
        entry = self.leader_epoch_cache.earliest_entry
        if entry is None or entry.start_offset > self.log_start_offset:
            return None
        return entry.epoch

    @property
    def last_stable_offset(self) -> Offset:
        """The offset below which no transaction is open."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

    # Appending.

    def append_as_leader(
        self,
        records: memoryview | PreparedAppend,
        *,
        leader_epoch: LeaderEpoch,
        wall_ms: int,
        from_client: bool = True,
        terms: TransactionTerms = NO_TERMS,
        flush: bool = True,
        allowance: Allowance | None = None,
    ) -> LogAppendInfo:
        """Append a producer's batch, stamped in its own bytes where it may keep them. Without
        `flush` the caller sees to what `flush_is_due` says, before anybody is answered.

        Raise LongCheckError where checking `records` costs more than `allowance`: the caller
        prepares them elsewhere then.
        """
        local = self.local
        local.check_usable()
        config = local.config
        if isinstance(records, memoryview):
            records = prepare_append(
                records,
                config,
                wall_ms=wall_ms,
                from_client=from_client,
                allowance=allowance,
            )
        records, batches = records
        assert not records.readonly, "the leader stamps its batch in the buffer it came in"
        for position, header in batches:
            marker = None
            if header.is_control:
                marker = marker_of(header, records[position : position + header.size])
            duplicate = self.producers.check(header, marker, from_client=from_client, terms=terms)
            if duplicate is not None:
                return duplicate_info(duplicate, self.log_start_offset)
        append_time = wall_ms if config.stamps_append_time else None
        placed = place(
            records,
            batches,
            first_offset=local.log_end_offset,
            leader_epoch=leader_epoch,
            append_time=append_time,
        )
        return self._append(records, placed, wall_ms=wall_ms, append_time=append_time, flush=flush)

    def append_as_follower(
        self,
        records: memoryview,
        *,
        leader_epoch: LeaderEpoch | None = None,
        wall_ms: int | None = None,
    ) -> LogAppendInfo:
        """Write the leader's batches as they are; a partial one at the end is left out.

        With the `leader_epoch` in which they were fetched, the first batch of a later one and
        all after it are left out as well.
        """
        self.local.check_usable()
        batches = analyze(records, leader_epoch)
        if not batches:
            return LogAppendInfo(log_start_offset=self.log_start_offset)
        first, last = batches[0][1], batches[-1][1]
        log_end_offset = self.local.log_end_offset
        if first.base_offset < log_end_offset:
            raise UnexpectedAppendOffsetError(
                f"{self.topic_partition}: offsets {first.base_offset} to {last.last_offset}"
                f" would be appended where the log ends at {log_end_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        # Not `check_sizes`: its leader may have taken it while segments were larger (KAFKA-17375).
        return self._append(records, batches, wall_ms=wall_ms)

    def _append(
        self,
        records: memoryview,
        batches: list[PlacedBatch],
        *,
        wall_ms: int | None,
        append_time: int | None = None,
        flush: bool = True,
    ) -> LogAppendInfo:
        local = self.local
        if local.open_segments.over_limit:
            local.open_segments.trim()
        describe = partial(
            append_info, log_start_offset=self.log_start_offset, append_time=append_time
        )
        info = describe(batches)
        appended = 0
        try:
            if not self._begun:
                self._begin()
            for group in groups(batches, local.config.segment_bytes):
                whole = info if group is batches else describe(group)
                self._append_group(records, group, whole, wall_ms)
                appended += len(group)
        except ShortageError:
            if not appended:
                raise
            info = describe(batches[:appended])  # a follower goes on from there
        except OSError as error:  # as `retryable`, which would cost a twentieth of a small append
            raise local.fail(error) from error
        self.on_moved()
        # While a thread writes the epochs, two would meet in one file; the next append asks again.
        if flush and self.flush_is_due and not self.leader_epoch_cache.is_being_written:
            # For want of descriptors it is put off: what was appended is appended.
            with contextlib.suppress(ShortageError):
                self.flush()
        return info

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` have come since the last flush."""
        local = self.local
        return local.log_end_offset - local.recovery_point >= local.config.flush_messages

    def _begin(self) -> None:
        """Write what is on the disk before the first record."""
        self.write_topic_id()
        self.hooks.marks_relied_on(self.topic_partition)
        self._begun = True

    def _append_group(
        self,
        records: memoryview,
        batches: list[PlacedBatch],
        info: LogAppendInfo,
        wall_ms: int | None,
    ) -> None:
        """Append what fits one segment, as `info` sums it up: one write of one view."""
        local = self.local
        start, size, last_offset = batches[0][0], info.valid_bytes, info.last_offset
        view = records[start : start + size]
        if local.must_roll(
            size, last_offset=last_offset, max_timestamp=info.max_timestamp, wall_ms=wall_ms
        ):
            self.roll(first_offset=info.first_offset, last_offset=last_offset, wall_ms=wall_ms)
        active = self.segments.active
        active.open_for_append(batches)
        self._note_epochs(batches)
        try:
            local.append(view, batches)
            for position, header in batches:
                if header.has_producer:
                    batch = records[position : position + header.size]
                    local.name_changes += producer_replay.note(
                        self.producers, active, header, batch
                    )
            self.producers.update_map_end_offset(local.log_end_offset)
        except OSError as error:  # also for want of a descriptor: the records are in the file
            raise local.fail(error) from error

    def _note_epochs(self, batches: list[PlacedBatch]) -> None:
        """Note the leader epochs that begin with `batches`."""
        latest = self.leader_epoch_cache.latest_entry
        epoch, start = (NO_LEADER_EPOCH, 0) if latest is None else latest
        for _, header in batches:
            if header.leader_epoch >= 0 and (
                header.leader_epoch != epoch or header.base_offset < start
            ):
                # Flushed before the recovery point passes it. Until then a crash has these
                # batches read again, and they say their epochs themselves.
                self.leader_epoch_cache.assign(header.leader_epoch, header.base_offset)
                epoch, start = header.leader_epoch, header.base_offset

    def roll(
        self,
        *,
        first_offset: Offset | None = None,
        last_offset: Offset | None = None,
        wall_ms: int | None = None,
    ) -> Segment:
        """Close the active segment and return a new one that begins where its batches end; for an
        append of [first, last] that is too far ahead for that base, where the append begins.

        So segments join, and recovery can tell that a tail was lost.
        """
        local = self.local
        local.check_usable()
        with local.retryable():
            base_offset = local.next_base_offset(first_offset, last_offset)
            if base_offset != self.segments.active.base_offset:
                self.producers.update_map_end_offset(base_offset)
                self.producers.take_snapshot()
            local.roll(base_offset, wall_ms)
        return self.segments.active

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
        """Find where the bytes from `start_offset` on lie, from the batch that holds it.

        Bounded by one snapshot of `max_offset_exclusive` and never past one segment. May
        end in the middle of a batch. `min_one` raises `max_bytes` to the first batch.
        `passes_empty`: the reader is a consumer, whose answer begins with a batch that has a record
        for it, where one follows (`storage.log.empty_batches`).
        """
        local = self.local
        local.check_usable()
        if local.open_segments.over_limit:
            local.open_segments.trim()
        if not self.log_start_offset <= start_offset <= local.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self.topic_partition}, which holds"
                f" {self.log_start_offset} to {local.log_end_offset}"
            )
        return local.read(
            start_offset,
            max_bytes,
            max_offset_exclusive=max_offset_exclusive,
            min_one=min_one,
            passes_empty=passes_empty,
        )

    def aborted_transactions(self, data: FetchDataInfo) -> list[AbortedTransaction]:
        """Return the transactions that a reader of `data`, who reads only what is committed, has to
        skip.
        """
        self.local.check_usable()
        start, base, position = attrs.astuple(data.offset_metadata)
        if data.records is None:
            return []
        with self.local.retryable():
            segments = self.segments.starting_with(base)
            upper_bound = segments[0].upper_bound(position + data.records.size)
            if upper_bound is None:
                upper_bound = segments[1].base_offset if len(segments) > 1 else self.log_end_offset
            indexes = (segment.transaction_index for segment in segments)
            return aborted_between(indexes, start, upper_bound)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Return where that leader epoch ended here (OffsetsForLeaderEpoch), exclusive, with the largest
        epoch up to it that this log has.
        """
        return self.leader_epoch_cache.end_offset_for(epoch, self.local.log_end_offset)

    def offset_for_timestamp(
        self,
        timestamp: int,
        *,
        allowance: Allowance | None = None,
        after: LongSearch | None = None,
    ) -> TimestampedOffset | None:
        """Return the first record of `timestamp` or younger that the log still holds.

        Raise LongLookUpError where that takes more than `allowance`: `storage.log.time_lookup`.
        """
        self.local.check_usable()
        if self.local.open_segments.over_limit:
            self.local.open_segments.trim()
        with self.local.retryable():
            return time_lookup.first_at_or_after(
                self.segments.starting_with(self.log_start_offset),
                timestamp,
                start_offset=self.log_start_offset,
                allowance=allowance,
                after=after,
            )

    def offset_of_max_timestamp(
        self, *, allowance: Allowance | None = None, after: LongSearch | None = None
    ) -> TimestampedOffset | None:
        """Return the first record that carries the largest timestamp; None in an empty log.

        Raise LongLookUpError where that takes more than `allowance`.
        """
        self.local.check_usable()
        if self.local.open_segments.over_limit:
            self.local.open_segments.trim()
        with self.local.retryable():
            return time_lookup.youngest(
                self.segments.starting_with(self.log_start_offset),
                allowance=allowance,
                after=after,
            )

    # Moving the marks.

    @property
    def lasting_high_watermark(self) -> Offset:
        """The high watermark that may be written down for a start after a crash. Until a
        cut is synced, a power cut may bring back what was cut in place of what came after it.
        """
        if self.local.cut_unsynced:
            return min(self.high_watermark, self.recovery_point)
        return self.high_watermark

    def update_high_watermark(self, offset: Offset) -> bool:
        """Set the high watermark, inside the log; return whether that changed it."""
        if not self.log_start_offset <= offset <= self.local.log_end_offset:
            offset = max(self.log_start_offset, min(offset, self.local.log_end_offset))
        return self._set_high_watermark(offset)

    def _set_high_watermark(self, offset: Offset) -> bool:
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        self.on_moved()
        return True

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Give up what lies below `offset`; return whether that changed anything."""
        self.local.check_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"log start offset {offset} of {self.topic_partition}"
                f" would be past its high watermark, {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epoch_cache.truncate_from_start(offset)
        self.producers.on_log_start_offset_incremented(offset)
        self.on_moved()
        return True

    def keep_log_start(self) -> None:
        """Keep the log from starting lower after a crash. Short of descriptors, only the next
        checkpoint does.
        """
        with contextlib.suppress(ShortageError), self.local.retryable():
            self.hooks.log_start_lasts(self.topic_partition)

    def delete_segments_below_log_start(self) -> int:
        """Drop the segments that end at or below the log start offset; return how many."""
        return self._delete_oldest(attrs.evolve(self.config, cleanup_policy=frozenset()), None)

    def delete_old_segments(self, wall_ms: int) -> int:
        """Drop the segments that `storage.log.retention` lets go; return how many."""
        return self._delete_oldest(self.config, wall_ms)

    def _delete_oldest(self, config: LogConfig, wall_ms: int | None) -> int:
        self.local.check_usable()
        with self.local.retryable():
            plan = retention.plan(
                list(self.segments),
                config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                wall_ms=wall_ms,
            )
            if plan.rolls_first:
                self.roll(wall_ms=wall_ms)
            if plan.count:
                start = self.segments[plan.count].base_offset
                assert start <= self.high_watermark, "what is not committed is not deleted"
                # First, so that no read looks for what is gone.
                self.increment_log_start_offset(start)
            for cause, count in plan.counts.items():
                for dropped in self.local.drop_oldest(count, cause):
                    self.producers.delete_snapshot(dropped.base_offset)
        return plan.count

    def replace_segments(self, old: Sequence[Segment], base_offset: Offset) -> None:
        """Put the `.cleaned` segment of `base_offset`, synced, in the place of `old`, neighbours
        that it was made from; CleaningAbortedError where one of them has gone meanwhile.
        """
        self.local.check_usable()
        local = self.local
        with local.retryable():
            end = local.end_of(old)
            if end > local.recovery_point:
                self._flush_now()
            local.compaction_gaps.raise_to(end)
        with local.irrevocable():
            local.replace(old, base_offset)
            for each in old[1:]:
                self.producers.delete_snapshot(each.base_offset)

    # Truncating.

    def truncate_to(self, offset: Offset) -> bool:
        """Cut the log to end at `offset`; return False where it ends there already, or earlier.

        A batch that reaches past `offset` goes whole, and the log still ends at `offset`; so does
        the epoch that the batch began, which stays known. Raise ShortageError before anything is
        cut, or see the truncation through.
        """
        local = self.local
        local.check_usable()
        if offset < 0:
            raise ValueError(f"truncation to {offset}")
        if offset >= local.log_end_offset:
            self.leader_epoch_cache.truncate_from_end(local.log_end_offset)
            return False
        if self.segments[0].base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with local.retryable():
            base_offset, kept = local.prepare_cut(offset)
            self._lower_marks(base_offset, recovery_point=kept, log_start_offset=offset)
            local.compaction_gaps.lower_to(offset)
        with local.irrevocable():
            local.cut(offset)
            self.on_moved()
            self._set_high_watermark(min(self.high_watermark, offset))
            self.leader_epoch_cache.truncate_from_end(offset)
            self._reload_producers()
            self.producers.sync_removals()
        return True

    def truncate_fully_and_start_at(
        self, offset: Offset, log_start_offset: Offset | None = None
    ) -> None:
        """Empty the log, to go on at `offset`: the leader no longer has what would come next."""
        local = self.local
        local.check_usable()
        start = offset if log_start_offset is None else log_start_offset
        assert start <= offset, "a log starts before it ends"
        with local.retryable():
            recovery_point = min(offset, self.segments[0].base_offset)
            self._lower_marks(offset, recovery_point=recovery_point, log_start_offset=start)
            local.compaction_gaps.lower_to(offset)
        with local.irrevocable():
            local.empty(offset)
            self.log_start_offset = start
            self.on_moved()
            self._set_high_watermark(offset)
            self.leader_epoch_cache.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self.producers.sync_removals()

    def _lower_marks(
        self, base_offset: Offset, *, recovery_point: Offset, log_start_offset: Offset
    ) -> None:
        """Lower the marks, and their checkpoints, to what the cut will leave. `base_offset` is where the
        active segment will begin. A shortage leaves the marks as they were.
        """
        self.hooks.cut(self.topic_partition, base_offset)
        before = self.local.recovery_point, self.log_start_offset
        self.local.recovery_point = min(self.local.recovery_point, recovery_point)
        self.log_start_offset = min(self.log_start_offset, log_start_offset)
        if before != (self.local.recovery_point, self.log_start_offset):
            try:
                self.hooks.marks_relied_on(self.topic_partition)
            except ShortageError:
                self.local.recovery_point, self.log_start_offset = before
                raise

    # Syncing.

    def flush(self) -> None:
        """Sync everything up to the log end."""
        self.local.check_usable()
        with self.local.retryable():
            self._flush_now()

    def _flush_now(self, *, closing: bool = False) -> None:
        plan = self._plan_flush(closing=closing)
        plan.sync()
        self.local.commit_flush(plan)

    def flush_plan(self) -> FlushPlan:
        """Return what to sync so that the recovery point may be the log end.

        The plan holds the files open until it is dropped. `local.sync` carries it out, in any thread;
        `local.commit_flush` then moves the recovery point.
        """
        self.local.check_usable()
        with self.local.retryable():
            return self._plan_flush()

    def _plan_flush(self, *, closing: bool = False) -> FlushPlan:
        self.write_topic_id()
        self.leader_epoch_cache.flush()
        snapshots = [
            self.producers.snapshot_path(offset)
            for offset in self.producers.snapshots
            if offset >= self.local.recovery_point
        ]
        return self.local.plan_flush(snapshots, closing=closing)

    def close(self) -> None:
        """Sync everything, take a producer snapshot, give back the indexes' spare room.

        Raise KafkaStorageError where that fails, or where the log had failed before: what it
        holds may not be on the disk. Its files are released all the same.
        """
        local = self.local
        if local.closed and not self.failed:
            return
        try:
            if local.failure is not None:
                raise local.fail(local.failure) from local.failure
            with local.retryable():
                local.name_changes += self.producers.take_snapshot()
                local.finish_active()
                self._flush_now(closing=True)
            # A truncation inside a batch left the log ending past its last batch. Opened
            # again it ends with that batch, and must not look as if it had lost something.
            local.recovery_point = min(local.recovery_point, self.segments.active.end_offset)
        finally:
            local.close_uncleanly()

    def close_uncleanly(self) -> None:
        """Release the files as they are: nothing is written."""
        self.local.close_uncleanly()

    def fail(self, error: OSError) -> KafkaStorageError:
        """Close the log to appends, because of `error` at one of its files, and return what to
        raise.
        """
        return self.local.fail(error)

    # Producers.

    def _load_producers(self, *, clean: bool) -> None:
        self.producers.remove_stray_snapshots(self.segments.base_offsets)
        if clean and self.producers.latest_snapshot_offset is None:
            # Every clean shutdown leaves one: this log is from before there were producers.
            for offset in (*self.segments.base_offsets[-2:], self.log_end_offset):
                self.producers.update_map_end_offset(offset)
                self.producers.take_snapshot()
            return
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        self.local.name_changes += producer_replay.rebuild(
            self.producers, self.segments, self.log_end_offset
        )
        self.producers.on_high_watermark_updated(self.high_watermark)

    def _reload_producers(self) -> None:
        if not self.producers.producers:
            # Fewer records cannot have had more producers.
            self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
            self.producers.update_map_end_offset(self.log_end_offset)
            self.producers.take_snapshot()
            return
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        segments = self.segments.starting_with(self.producers.map_end_offset)
        self.local.name_changes += producer_replay.replay(
            self.producers, segments, self.log_end_offset
        )
        self.producers.on_high_watermark_updated(self.high_watermark)

    def write_topic_id(self) -> None:
        """Write the topic id, which is on the disk before the first record is (KIP-516)."""
        if not self._topic_id_on_disk and self.topic_id is not None:
            write_partition_metadata(self.local.file_system, self.directory, self.topic_id)
            self._topic_id_on_disk = True

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Set the id that the metadata has. Raise InconsistentTopicIdError where it is another
        topic's log.
        """
        if self.topic_id is None:
            self.topic_id = topic_id
            self._begun = False
        elif self.topic_id != topic_id:
            raise InconsistentTopicIdError(f"{self.topic_partition} has another topic id")


def _known_topic_id(
    file_system: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: TopicId | None,
) -> TopicId | None:
    known = read_partition_metadata(file_system, directory)
    if known is not None and topic_id not in (None, NO_TOPIC_ID, known):
        raise InconsistentTopicIdError(
            f"{topic_partition} in {directory} belongs to another topic of that name"
        )
    return known
