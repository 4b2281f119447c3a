"""One partition's log: opened, appended to as leader and as follower, closed.

    opened     what is there is believed or recovered; epochs and producers are derived from it
    appended   checked (storage.log.append), rolled if need be, written, noted
    closed     synced, a producer snapshot taken, the indexes' spare room given back

Rule 1: a refused append changes nothing.

Rule 2: records are written from the buffer that they came in, by one `write` of a view of it.
Record bytes never pass through Python.

Rule 3: the topic id is on disk before the first record is (KIP-516).

What it holds and how far it may be seen is `storage.log.marked_log`'s. (UnifiedLog in Kafka.)
"""

import contextlib
from typing import NamedTuple

import attrs

from storage.batch.allowance import Allowance
from storage.checkpoint import read_partition_metadata, write_partition_metadata
from storage.config import LogConfig
from storage.errors import InconsistentTopicIdError, ShortageError, UnexpectedAppendOffsetError
from storage.filesystem import FileSystem
from storage.log import producer_replay
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
    validate,
)
from storage.log.compaction_gaps import read_compaction_gaps
from storage.log.local_log import LogHooks
from storage.log.marked_log import MarkedLog
from storage.log.open_segments import OpenSegments
from storage.log.recompression import recompress
from storage.log.recovery.epochs import read_epochs
from storage.log.recovery.loader import Loader
from storage.log.recovery.report import Marks, RecoveryReport
from storage.log.segment import Segment
from storage.log.segments import Segments
from storage.producers.snapshot import snapshots_in
from storage.producers.state import DEFAULT_EXPIRATION_MS, ProducerStateManager
from storage.producers.verification import NO_TERMS, TransactionTerms
from storage.types import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition


class PreparedAppend(NamedTuple):
    """What a leader may append, checked and in the codec of its topic."""

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


@attrs.define(eq=False, kw_only=True)
class Log(MarkedLog):
    """One partition's log in one directory (UnifiedLog). Offsets are exclusive where they are ends; sizes
    are bytes, times milliseconds of the wall clock. Opened by `Log.open`, or by a `LogManager`.

    KafkaStorageError of any call that writes: the disk failed, and the log takes no more.
    """

    topic_id: TopicId | None
    recovery: RecoveryReport
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
        producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        compacted_to: Offset = 0,
        marker_ms: int | None = None,
        believe_nothing: bool = False,
        hooks: LogHooks | None = None,
        open_segments: OpenSegments | None = None,
        wall_ms: int | None = None,
    ) -> "Log":
        """Open what is there, or begin; what its directory remembers of it is in `Marks`."""
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
        log = cls(
            file_system=file_system,
            topic_partition=topic_partition,
            directory=directory,
            config=config,
            hooks=hooks or LogHooks(),
            open_segments=OpenSegments() if open_segments is None else open_segments,
            segments=Segments(loaded.segments),
            leader_epoch_cache=epochs,
            compaction_gaps=gaps,
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
            cut_unsynced=existed and not loaded.clean,
            recovery=loaded.report(topic_partition, recovery_point, log_start_offset),
        )
        epochs.truncate_from_end(log.log_end_offset)
        gaps.lower_to(log.log_end_offset)
        epochs.truncate_from_start(log.log_start_offset)
        if not loaded.segments:
            log._add_segment(log.log_end_offset, wall_ms)
        log._load_producers(clean=loaded.clean)
        if not loaded.clean:
            log.producers.sync_removals()
        # Idle from here on: what is used opens its files again.
        for segment in log.segments:
            segment.release()
            segment.open_segments = log.open_segments
        log.hooks.high_watermark_moved(log)
        return log

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
        """Place a producer's batch at the end, in its own bytes where it may keep them. Without
        `flush` the caller sees to what `flush_is_due` says, before anybody is answered.

        Raise LongCheckError where checking `records` costs more than `allowance`: the caller
        prepares them elsewhere then.
        """
        self._check_usable()
        if isinstance(records, memoryview):
            records = prepare_append(
                records,
                self.config,
                wall_ms=wall_ms,
                from_client=from_client,
                allowance=allowance,
            )
        records, batches = records
        assert not records.readonly, "the leader stamps its batch in the buffer it came in"
        for position, header in batches:
            marker = marker_of(header, records[position : position + header.size])
            duplicate = self.producers.check(header, marker, from_client=from_client, terms=terms)
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
        self._check_usable()
        batches = analyze(records, leader_epoch)
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
        self.open_segments.trim()
        appended = 0
        try:
            if not self._begun:
                self._begin()
            for group in groups(batches, self.config.segment_bytes):
                segment = self._ready_for(group, wall_ms)
                self._append_group(records, group, segment)
                appended += len(group)
        except ShortageError:
            if not appended:
                raise
            batches = batches[:appended]  # a follower goes on from there
        except OSError as error:  # as in `_writing`, which costs what a small append does
            raise self.fail(error) from error
        self.on_moved()
        # While a thread writes the epochs, two would meet in one file; the next append asks again.
        if flush and self.flush_is_due and not self.leader_epoch_cache.is_being_written:
            # For want of descriptors it is put off: what was appended is appended.
            with contextlib.suppress(ShortageError):
                self.flush()
        return append_info(batches, log_start_offset=self.log_start_offset, append_time=append_time)

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` have come since the last flush."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def _begin(self) -> None:
        """What is on the disk before the first record."""
        self.write_topic_id()
        self.hooks.marks_relied_on(self)
        self._begun = True

    def _ready_for(self, batches: list[PlacedBatch], wall_ms: int | None) -> Segment:
        """Return the segment for `batches`, with the files open that they will be written to."""
        first, last = batches[0], batches[-1]
        youngest = max([header.max_timestamp for _, header in batches])
        segment = self._segment_for(
            last.end - first.position, first.header, last.header, youngest, wall_ms
        )
        segment.open_for_append(batches)
        return segment

    def _append_group(
        self, records: memoryview, batches: list[PlacedBatch], segment: Segment
    ) -> None:
        """One write of one view: what fits one segment."""
        last = batches[-1].header
        view = records[batches[0].position : batches[-1].end]
        latest = self.leader_epoch_cache.latest_entry
        epoch, start = (NO_LEADER_EPOCH, 0) if latest is None else latest
        for _, header in batches:
            if header.leader_epoch >= 0 and (
                header.leader_epoch != epoch or header.base_offset < start
            ):
                # Flushed before the recovery point passes it. Until then a crash has these
                # batches read again, and they say their epochs themselves.
                self.leader_epoch_cache.assign(header.leader_epoch, header.base_offset, flush=False)
                epoch, start = header.leader_epoch, header.base_offset
        try:
            segment.append(view, batches)
            self.log_end_offset = last.next_offset
            for position, header in batches:
                if header.has_producer:
                    batch = records[position : position + header.size]
                    self._name_changes += producer_replay.note(
                        self.producers, segment, header, batch
                    )
            self.producers.update_map_end_offset(self.log_end_offset)
        except OSError as error:  # also for want of a descriptor: the records are in the file
            raise self.fail(error) from error

    def _before_roll(self, base_offset: Offset) -> None:
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)

    # Syncing.

    def _before_flush(self) -> None:
        self.write_topic_id()
        self.leader_epoch_cache.flush()

    def _unsynced_paths(self) -> list[str]:
        return [
            self.producers.snapshot_path(offset)
            for offset in self.producers.snapshots
            if offset > self.recovery_point
        ]

    def close(self) -> None:
        """Sync everything, take a producer snapshot, give back the indexes' spare room.

        Raise KafkaStorageError where that fails, or where the log had failed before: what it
        holds may not be on the disk. Its files are released all the same.
        """
        if self.closed and self.failure is None:
            return
        try:
            if self.failure is not None:
                raise self._storage_error() from self.failure
            with self._trying():
                self.producers.take_snapshot(sync=False)
                if self.segments.active.become_inactive(closing=True):
                    self._cut_unsynced = True
                self.commit_flush(self._sync_now(closing=True))
            # A truncation inside a batch left the log ending past its last batch. Opened
            # again it ends with that batch, and must not look as if it had lost something.
            self.recovery_point = min(self.recovery_point, self.segments.active.end_offset)
        finally:
            self.close_uncleanly()

    def write_topic_id(self) -> None:
        """On disk before the first record is (KIP-516)."""
        if not self._topic_id_on_disk and self.topic_id is not None:
            write_partition_metadata(self.file_system, self.directory, self.topic_id)
            self._topic_id_on_disk = True

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """The id that the metadata has for it; InconsistentTopicIdError where it is another topic's log."""
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
