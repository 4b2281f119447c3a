"""What a log holds, how far it may be seen, and how both move.

    log start offset      high watermark        log end offset
          │                     │                     │
    [ 100 ── 199 ][ 200 ── 31│5 ── 399 ][ 400 ── 4│55 │
      segment        segment   recovery   active       next append
                               point: synced below

    0 <= log start offset <= high watermark <= log end offset, always

Rule 1: epochs, producers and the marks above always describe exactly the batches that are
there: what an append adds, a truncation takes away, and opening derives again.

Rule 2: a read answers with a `FileRegion`. Record bytes never pass through Python.

Rule 3: a read is bounded by one snapshot: the end that its caller took once, and the sizes of
the files below that end, which only grow until a truncation aborts the read.

How it is opened, appended to and closed is `storage.log.log`'s; the bytes are `storage.log.local_log`'s.
(UnifiedLog in Kafka.)
"""

from collections.abc import Sequence

import attrs

from storage.batch.allowance import Allowance
from storage.config import LogConfig
from storage.errors import OffsetOutOfRangeError
from storage.log import producer_replay, retention, time_lookup
from storage.log.index.transaction_index import AbortedTransaction, aborted_between
from storage.log.leader_epoch_cache import LeaderEpochCache
from storage.log.local_log import FetchDataInfo, LocalLog
from storage.log.segment import Segment
from storage.log.time_lookup import LongSearch, TimestampedOffset
from storage.producers.state import ProducerStateManager
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch


@attrs.define(eq=False, kw_only=True)
class MarkedLog(LocalLog):
    leader_epoch_cache: LeaderEpochCache
    producers: ProducerStateManager
    high_watermark: Offset = 0

    # Where things stand.

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The leader epoch of the last batch, or of the reign that has begun since; None of an empty log."""
        return self.leader_epoch_cache.latest_epoch

    @property
    def last_stable_offset(self) -> Offset:
        """Below it no transaction is open."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

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
        `passes_empty`: a consumer asks, whose answer begins with a batch that has a record for it,
        where one follows (`storage.log.empty_batches`).
        """
        self._check_usable()
        self.open_segments.trim()
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {start_offset} of {self.topic_partition}, which holds"
                f" {self.log_start_offset} to {self.log_end_offset}"
            )
        return self._read(
            start_offset,
            max_bytes,
            max_offset_exclusive=max_offset_exclusive,
            min_one=min_one,
            passes_empty=passes_empty,
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
        """Where that leader epoch ended here (OffsetsForLeaderEpoch): exclusive, with the largest epoch
        up to it that this log has.
        """
        return self.leader_epoch_cache.end_offset_for(epoch, self.log_end_offset)

    def offset_for_timestamp(
        self,
        timestamp: int,
        *,
        allowance: Allowance | None = None,
        after: LongSearch | None = None,
    ) -> TimestampedOffset | None:
        """The first record of `timestamp` or younger that the log still holds.

        Raise LongLookUpError where that takes more than `allowance`: `storage.log.time_lookup`.
        """
        self._check_usable()
        self.open_segments.trim()
        with self._reading():
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
        """The first record that carries the largest timestamp; None in an empty log.

        Raise LongLookUpError where that takes more than `allowance`.
        """
        self._check_usable()
        self.open_segments.trim()
        with self._reading():
            return time_lookup.youngest(
                self.segments.starting_with(self.log_start_offset),
                allowance=allowance,
                after=after,
            )

    @property
    def earliest_epoch(self) -> LeaderEpoch | None:
        """Of the log start offset, where the cache reaches back to it."""
        entry = self.leader_epoch_cache.earliest_entry
        if entry is None or entry.start_offset > self.log_start_offset:
            return None
        return entry.epoch

    # Moving the marks.

    @property
    def lasting_high_watermark(self) -> Offset:
        """What may be written down as the high watermark for a start after a crash. Until a
        cut is synced, a power cut may bring back what was cut in place of what came after it.
        """
        if self._cut_unsynced:
            return min(self.high_watermark, self.recovery_point)
        return self.high_watermark

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
        self.hooks.high_watermark_moved(self)
        self.on_moved()
        return True

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """A leader's reign begins here, before it has written anything. On disk at once."""
        self._check_usable()
        with self._trying():
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
        self.on_moved()
        return True

    def delete_segments_below_log_start(self) -> int:
        """Drop the segments that end at or below the log start offset; how many."""
        return self._delete_oldest(attrs.evolve(self.config, cleanup_policy=frozenset()), None)

    def delete_old_segments(self, wall_ms: int) -> int:
        """Drop the segments that `storage.log.retention` lets go; how many."""
        return self._delete_oldest(self.config, wall_ms)

    def _delete_oldest(self, config: LogConfig, wall_ms: int | None) -> int:
        self._check_usable()
        with self._trying():
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
                # First, so that nobody looks for what is gone.
                self.increment_log_start_offset(start)
            for cause, count in plan.counts.items():
                self._drop_oldest(count, cause)
        return plan.count

    def _drop_oldest(self, count: int, cause: retention.DeletionCause) -> None:
        dropped = list(self.segments)[:count]
        for oldest in dropped:
            self.segments.remove(oldest)
            self._doom(oldest)
            self.producers.delete_snapshot(oldest.base_offset)
        if dropped:
            self._tell_deleted(cause, dropped, self.segments[0].base_offset)

    def replace_segments(self, old: Sequence[Segment], base_offset: Offset) -> None:
        """Put the `.cleaned` segment of `base_offset`, synced, in the place of `old`, neighbours
        that it was made from; CleaningAbortedError where one of them has gone meanwhile.
        """
        self._check_usable()
        with self._writing():
            self._replace(old, base_offset)
            for each in old[1:]:
                self.producers.delete_snapshot(each.base_offset)

    # Truncating.

    def truncate_to(self, offset: Offset) -> bool:
        """Cut to end at `offset`; False where it ends there already, or earlier.

        A batch that reaches past `offset` goes whole, and the log still ends at `offset`; so does
        the epoch that the batch began, which stays known.
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

    def _load_producers(self, *, clean: bool) -> None:
        self.producers.remove_stray_snapshots(self.segments.base_offsets)
        if clean and self.producers.latest_snapshot_offset is None:
            # Every clean shutdown leaves one: this log is from before there were producers.
            for offset in (*self.segments.base_offsets[-2:], self.log_end_offset):
                self.producers.update_map_end_offset(offset)
                self.producers.take_snapshot(sync=False)
            return
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        self._name_changes += producer_replay.rebuild(
            self.producers, self.segments, self.log_end_offset
        )
        self.producers.on_high_watermark_updated(self.high_watermark)

    def _reload_producers(self) -> None:
        if not self.producers.producers:
            # Fewer records cannot have had more producers.
            self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
            self.producers.update_map_end_offset(self.log_end_offset)
            self.producers.take_snapshot(sync=False)
            return
        self.producers.truncate_and_reload(self.log_start_offset, self.log_end_offset)
        segments = self.segments.starting_with(self.producers.map_end_offset)
        self._name_changes += producer_replay.replay(self.producers, segments, self.log_end_offset)
        self.producers.on_high_watermark_updated(self.high_watermark)
