"""One partition's log: append as leader and as follower, read, roll, truncate.

    log start offset      high watermark        log end offset
          │                     │                     │
    [ 100 ── 199 ][ 200 ── 31│5 ── 399 ][ 400 ── 4│55 │
      segment        segment   recovery   active       next append
                               point: synced below

    0 <= log start offset <= high watermark <= log end offset, always

Rule 1: a refused append changes nothing.

Rule 2: records are written from the buffer that they came in, by one `write` of a view of
it, and read as a `FileRegion`. Record bytes never pass through Python.

Rule 3: epochs, producers and the marks above always describe exactly the batches that are
there: what an append adds, a truncation takes away, and opening derives again.

The bytes and what is synced of them are `storage.local_log`'s. (UnifiedLog in Kafka.)
"""

import os

import attrs

from storage import producer_replay, retention, time_lookup
from storage.append import (
    LogAppendInfo,
    PlacedBatch,
    analyze,
    append_info,
    check_sizes,
    duplicate_info,
    groups,
    marker_of,
    max_timestamp,
    place,
    validate,
)
from storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    LeaderEpochCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from storage.config import LogConfig
from storage.errors import (
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    UnexpectedAppendOffsetError,
)
from storage.filesystem import FileSystem
from storage.leader_epoch_cache import LeaderEpochCache
from storage.local_log import FetchDataInfo, LocalLog, LogHooks
from storage.producer_state import ProducerStateManager
from storage.recovery import Loader, RecoveryReport
from storage.segment import LogOffsetMetadata
from storage.segments import Segments
from storage.time_lookup import TimestampedOffset
from storage.transaction_index import AbortedTransaction, aborted_between
from storage.types import (
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicId,
    TopicPartition,
)


@attrs.define(eq=False, kw_only=True)
class Log(LocalLog):
    leader_epoch_cache: LeaderEpochCache
    producers: ProducerStateManager
    topic_id: TopicId | None
    recovery: RecoveryReport
    high_watermark: Offset = 0
    _topic_id_on_disk: bool = False
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
        hooks: LogHooks | None = None,
        wall_ms: int | None = None,
    ) -> "Log":
        """Open what is there, or begin; `clean`: the last shutdown was."""
        config = config or LogConfig()
        existed = file_system.exists(directory)
        file_system.make_directory(directory)
        known_id = _known_topic_id(file_system, directory, topic_partition, topic_id)
        epochs = LeaderEpochCache(
            LeaderEpochCheckpoint(file_system, os.path.join(directory, LEADER_EPOCH_CHECKPOINT))
        )
        producers = ProducerStateManager(file_system, directory)
        loaded = Loader(
            file_system=file_system,
            directory=directory,
            max_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            epochs=epochs,
            producers=producers,
        ).load(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
        if loaded.segments:
            log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
        log = cls(
            file_system=file_system,
            topic_partition=topic_partition,
            directory=directory,
            config=config,
            hooks=hooks or LogHooks(),
            segments=Segments(loaded.segments),
            leader_epoch_cache=epochs,
            producers=producers,
            topic_id=known_id or topic_id,
            topic_id_on_disk=known_id is not None,
            log_start_offset=log_start_offset,
            log_end_offset=loaded.next_offset,
            recovery_point=(
                loaded.next_offset if loaded.clean else min(recovery_point, loaded.next_offset)
            ),
            high_watermark=log_start_offset,
            name_changes=0 if existed and loaded.segments and loaded.clean else 1,
            cut_unsynced=not loaded.clean,
            recovery=loaded.report(topic_partition, recovery_point, log_start_offset),
        )
        epochs.truncate_from_end(log.log_end_offset)
        epochs.truncate_from_start(log.log_start_offset)
        if not loaded.segments:
            log._add_segment(log.log_end_offset, wall_ms)
        log._load_producers()
        if not loaded.clean:
            log.producers.sync_removals()
        return log

    # Where things stand.

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self.leader_epoch_cache.latest_epoch

    @property
    def last_stable_offset(self) -> Offset:
        """Below it no transaction is open."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        return self.offset_metadata(self.high_watermark)

    # Appending.

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: LeaderEpoch,
        wall_ms: int,
        from_client: bool = True,
    ) -> LogAppendInfo:
        """Place a producer's batch at the end, in its own bytes, and write it."""
        self._check_usable()
        assert not records.readonly, "the leader stamps its batch in the buffer it came in"
        batches = validate(records, self.config, wall_ms=wall_ms, from_client=from_client)
        check_sizes(batches, self.config)
        for position, header in batches:
            marker = marker_of(header, records[position : position + header.size])
            # A coordinator's markers have no sequence, but an epoch, as their producer has.
            checked = from_client or header.is_control
            duplicate = self.producers.check(header, marker) if checked else None
            if duplicate is not None:
                return duplicate_info(duplicate, self.log_start_offset)
        append_time = wall_ms if self.config.stamps_append_time else None
        placed = place(
            records,
            batches,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            append_time=append_time,
        )
        return self._append(records, placed, wall_ms=wall_ms, append_time=append_time)

    def append_as_follower(
        self, records: memoryview, *, wall_ms: int | None = None
    ) -> LogAppendInfo:
        """Write the leader's batches as they are; a partial one at the end is left out."""
        self._check_usable()
        batches = analyze(records)
        if not batches:
            return LogAppendInfo(log_start_offset=self.log_start_offset)
        first, last = batches[0].header, batches[-1].header
        if first.base_offset < self.log_end_offset:
            raise UnexpectedAppendOffsetError(
                f"{self.topic_partition}: offsets {first.base_offset} to {last.last_offset}"
                f" would be appended where the log ends at {self.log_end_offset}",
                first_offset=first.base_offset,
                last_offset=last.last_offset,
            )
        check_sizes(batches, self.config)
        return self._append(records, batches, wall_ms=wall_ms)

    def _append(
        self,
        records: memoryview,
        batches: list[PlacedBatch],
        *,
        wall_ms: int | None,
        append_time: int | None = None,
    ) -> LogAppendInfo:
        with self._writing():
            if not self._begun:
                self._write_topic_id()
                self.hooks.marks_relied_on(self)
                self._begun = True
            for group in groups(batches, self.config.segment_bytes):
                self._append_group(records, group, wall_ms)
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return append_info(batches, log_start_offset=self.log_start_offset, append_time=append_time)

    def _append_group(
        self, records: memoryview, batches: list[PlacedBatch], wall_ms: int | None
    ) -> None:
        """One write of one view: what fits one segment."""
        first, last = batches[0].header, batches[-1].header
        view = records[batches[0].position : batches[-1].end]
        youngest = max((header for _, header in batches), key=max_timestamp)
        epoch = self.leader_epoch_cache.latest_epoch
        for _, header in batches:
            if header.leader_epoch >= 0 and header.leader_epoch != epoch:
                self.leader_epoch_cache.assign(header.leader_epoch, header.base_offset)
                epoch = header.leader_epoch
        segment = self._segment_for(len(view), first, last, youngest.max_timestamp, wall_ms)
        segment.append(view, batches)
        self.log_end_offset = last.next_offset
        for position, header in batches:
            if header.has_producer:
                batch = records[position : position + header.size]
                self._name_changes += producer_replay.note(self.producers, segment, header, batch)
        self.producers.update_map_end_offset(self.log_end_offset)

    def _before_roll(self, base_offset: Offset) -> None:
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)

    # Reading.

    def read(
        self, start_offset: Offset, max_bytes: int, *, max_offset_exclusive: Offset, min_one: bool
    ) -> FetchDataInfo:
        """Where the bytes from `start_offset` on lie, from the batch that holds it.

        Bounded by one snapshot of `max_offset_exclusive` and never past one segment. May
        end in the middle of a batch. `min_one` raises `max_bytes` to the first batch.
        """
        self._check_usable()
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self.topic_partition}, which holds"
                f" {self.log_start_offset} to {self.log_end_offset}"
            )
        return self._read(
            start_offset, max_bytes, max_offset_exclusive=max_offset_exclusive, min_one=min_one
        )

    def aborted_transactions(self, data: FetchDataInfo) -> list[AbortedTransaction]:
        """Those that whoever reads `data`, and only what is committed, has to skip."""
        self._check_usable()
        start, base, position = attrs.astuple(data.offset_metadata)
        if data.records is None:
            return []
        with self._reading():
            segments = self.segments.starting_with(base)
            upper_bound = segments[0].upper_bound(position + data.records.size)
            if upper_bound is None:
                upper_bound = segments[1].base_offset if len(segments) > 1 else self.log_end_offset
            indexes = (segment.transaction_index for segment in segments)
            return aborted_between(indexes, start, upper_bound)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self.leader_epoch_cache.end_offset_for(epoch, self.log_end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record of `timestamp` or younger that the log still holds."""
        self._check_usable()
        with self._reading():
            return time_lookup.first_at_or_after(
                self.segments.starting_with(self.log_start_offset),
                timestamp,
                start_offset=self.log_start_offset,
            )

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """The first record that carries the largest timestamp; None in an empty log."""
        self._check_usable()
        with self._reading():
            return time_lookup.youngest(self.segments.starting_with(self.log_start_offset))

    @property
    def earliest_epoch(self) -> LeaderEpoch | None:
        """Of the log start offset, where the cache reaches back to it."""
        entry = self.leader_epoch_cache.earliest_entry
        if entry is None or entry.start_offset > self.log_start_offset:
            return None
        return entry.epoch

    # Moving the marks.

    def update_high_watermark(self, offset: Offset) -> bool:
        """Set it, inside the log; whether that changed it."""
        return self._set_high_watermark(
            max(self.log_start_offset, min(offset, self.log_end_offset))
        )

    def increment_high_watermark(self, offset: Offset) -> bool:
        """Raise it, never above the log end; whether that changed it."""
        assert offset <= self.log_end_offset, "the high watermark is never past the log end"
        return offset > self.high_watermark and self.update_high_watermark(offset)

    def _set_high_watermark(self, offset: Offset) -> bool:
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return True

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """A leader's reign begins here, before it has written anything. On disk at once."""
        self._check_usable()
        with self._writing():
            self.leader_epoch_cache.assign(epoch, start_offset)

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Give up what lies below `offset`; whether that changed anything."""
        self._check_usable()
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
        return True

    def delete_segments_below_log_start(self) -> int:
        """Drop the segments that end at or below the log start offset; how many."""
        return self._delete_oldest(attrs.evolve(self.config, cleanup_policy=frozenset()), None)

    def delete_old_segments(self, wall_ms: int) -> int:
        """Drop the segments that `storage.retention` lets go; how many."""
        return self._delete_oldest(self.config, wall_ms)

    def _delete_oldest(self, config: LogConfig, wall_ms: int | None) -> int:
        self._check_usable()
        with self._writing():
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
                # First, so that nobody looks for what is gone.
                self.increment_log_start_offset(self.segments[plan.count].base_offset)
            for _ in range(plan.count):
                oldest = self.segments[0]
                self.segments.remove(oldest)
                self._doom(oldest)
                self.producers.delete_snapshot(oldest.base_offset)
        return plan.count

    # Truncating.

    def truncate_to(self, offset: Offset) -> bool:
        """Cut to end at `offset`; False where it ends there already, or earlier.

        A batch that reaches past `offset` goes whole, and the log still ends at `offset`.
        """
        self._check_usable()
        if offset < 0:
            raise ValueError(f"truncation to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epoch_cache.truncate_from_end(self.log_end_offset)
            return False
        if self.segments[0].base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with self._writing():
            self._cut(offset)
            self._set_high_watermark(min(self.high_watermark, offset))
            self.leader_epoch_cache.truncate_from_end(offset)
            self._reload_producers()
            self.producers.sync_removals()
        return True

    def truncate_fully_and_start_at(
        self, offset: Offset, log_start_offset: Offset | None = None
    ) -> None:
        """Empty, to go on at `offset`: the leader no longer has what would come next."""
        self._check_usable()
        start = offset if log_start_offset is None else log_start_offset
        assert start <= offset, "a log starts before it ends"
        with self._writing():
            self._empty(log_end_offset=offset, log_start_offset=start)
            self._set_high_watermark(offset)
            self.leader_epoch_cache.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self.producers.sync_removals()

    # Producers.

    def _load_producers(self) -> None:
        self.producers.remove_stray_snapshots(self.segments.base_offsets)
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        self._replay_producers()

    def _reload_producers(self) -> None:
        if not self.producers.producers:
            # Fewer records cannot have had more producers.
            self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
            self.producers.update_map_end_offset(self.log_end_offset)
            return
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        self._replay_producers()

    def _replay_producers(self) -> None:
        segments = self.segments.starting_with(self.producers.map_end_offset)
        self._name_changes += producer_replay.replay(self.producers, segments, self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)

    # Syncing.

    def _before_flush(self) -> None:
        self._write_topic_id()
        self.leader_epoch_cache.flush()

    def _unsynced_paths(self) -> list[str]:
        return [
            self.producers.snapshot_path(offset)
            for offset in self.producers.snapshots
            if offset > self.recovery_point
        ]

    def close(self) -> None:
        """Sync everything, take a producer snapshot, give back the indexes' spare room."""
        if self.closed:
            return
        if self.failure is None:
            with self._writing():
                self.producers.take_snapshot(sync=False)
                self.segments.active.become_inactive()
                self._cut_unsynced = True
                self.commit_flush(self._sync_now(closing=True))
            # A truncation inside a batch left the log ending past its last batch. Opened
            # again it ends with that batch, and must not look as if it had lost something.
            self.recovery_point = min(self.recovery_point, self.segments.active.end_offset)
        self.close_uncleanly()

    def _write_topic_id(self) -> None:
        """On disk before the first record is (KIP-516)."""
        if not self._topic_id_on_disk and self.topic_id is not None:
            write_partition_metadata(self.file_system, self.directory, self.topic_id)
            self._topic_id_on_disk = True

    def assign_topic_id(self, topic_id: TopicId) -> None:
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
