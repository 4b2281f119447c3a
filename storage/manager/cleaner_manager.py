"""The choice of the log that is cleaned next, and how far each log has been cleaned.

    idle ── start ──> in progress ── finish ──> idle           checkpoint := end of the round
                          │
                          └─ the log is cut or deleted ──> aborted ── finish ──> idle
                             checkpoint pulled back                  checkpoint as it was

Rule 1: a log is cleaned by one round at a time.

Rule 2: the checkpoint (`cleaner-offset-checkpoint`) never claims more of a log than there is: later
records would count as clean, and a tombstone could be removed before the record that it deletes. It
is lowered *before* a log is truncated, and before the first append to a new log of an old name.

Rule 3: a log that cannot be cleaned, because a batch is not valid, is left alone from then on, and
counted; a disk that fails takes its directory offline, as everywhere.

Everything here is called on the loop, except `forget`, which only sets a mark. Truncating and
deleting a log are one step on the loop each, so no task has to wait until a round pauses, as
Kafka's threads do. (LogCleanerManager in Kafka.)
"""

from collections.abc import Callable, Generator, Mapping

import attrs

from storage.attributes import define
from storage.batch.spare_room import CHUNK_SIZE
from storage.cleaner.candidates import DirtyRange, dirty_range
from storage.cleaner.cleaner import Cleaning, plan
from storage.cleaner.offset_map import OffsetMap
from storage.errors import CorruptRecordError, InvalidRecordError, ShortageError, StorageError
from storage.log.log import Log
from storage.manager.log_directory import LogDirectory
from storage.types import Offset, TopicPartition


@define(eq=False)
class CleanerManager:
    """Compaction of all logs of a broker; `live` returns the log directories that are online."""

    live: Callable[[], list[LogDirectory]]
    uncleanable: dict[TopicPartition, Log] = attrs.field(init=False, factory=dict)
    # As the last look at all logs found them.
    dirtiest_ratio: float = attrs.field(init=False, default=0.0)
    max_delay_ms: int = attrs.field(init=False, default=0)
    in_progress: dict[TopicPartition, Cleaning] = attrs.field(init=False, factory=dict)

    # One round.

    def start(
        self, wall_ms: int, make_map: Callable[[], OffsetMap], *, read_bytes: int = CHUNK_SIZE
    ) -> Generator[int, None, Cleaning | None]:
        """Begin a round over the dirtiest log that is due, if one is; `finish` must follow.

        Yield 1 after each log, so that the caller may let others run: many logs take long to look at.
        """
        due = yield from self._due(wall_ms)
        if not due:
            return None
        directory, log, _ = max(due, key=lambda each: each[2].ratio)
        # As it is now: it may have been cut or closed since it was looked at.
        dirty = self._look_at(directory, log, wall_ms)
        if dirty is None or not dirty.is_due(log.config):
            return None
        with log.local.retryable():
            cleaning = Cleaning(
                plan=plan(log, dirty, wall_ms), offset_map=make_map(), read_bytes=read_bytes
            )
        self.in_progress[log.topic_partition] = cleaning
        return cleaning

    def finish(self, cleaning: Cleaning, error: BaseException | None = None) -> None:
        """End the round, which is complete or was stopped by `error`."""
        log = cleaning.log
        self.in_progress.pop(log.topic_partition, None)
        if isinstance(error, CorruptRecordError | InvalidRecordError):
            self.uncleanable[log.topic_partition] = log
        with log.local.retryable():
            cleaning.close()
            directory = self._directory_of(log)
            if directory is not None and cleaning.done and not cleaning.aborted:
                self._write(directory, {log.topic_partition: cleaning.end_offset})

    # What happens to the logs.

    def before_cut(
        self, directory: LogDirectory, topic_partition: TopicPartition, offset: Offset
    ) -> None:
        """Abort the round over a log that is about to be cut, so that its last segment begins at `offset`,
        and lower its checkpoint.
        """
        self.forget(topic_partition)
        if directory.cleaner_offsets.get(topic_partition, 0) > offset:
            self._write(directory, {topic_partition: offset})

    def forget(self, topic_partition: TopicPartition) -> None:
        """Abort the round over that log, if there is one."""
        self.uncleanable.pop(topic_partition, None)
        cleaning = self.in_progress.get(topic_partition)
        if cleaning is not None:
            cleaning.aborted = True

    # Looking at all of them.

    def uncleanable_partitions(self, path: str) -> int:
        """Return the number of uncleanable partitions in the log directory at `path`."""
        return sum(
            self.uncleanable.get(topic_partition) is log
            for directory in self.live()
            if directory.path == path
            for topic_partition, log in directory.open_logs()
        )

    def _due(
        self, wall_ms: int
    ) -> Generator[int, None, list[tuple[LogDirectory, Log, DirtyRange]]]:
        """Return the logs that are due, each with its directory; yield 1 after each log."""
        looked_at = []
        for directory in self.live():
            for _, log in directory.open_logs():
                dirty = self._look_at(directory, log, wall_ms)
                if dirty is not None:
                    looked_at.append((directory, log, dirty))
                yield 1
        self.dirtiest_ratio = max((dirty.ratio for *_, dirty in looked_at), default=0.0)
        self.max_delay_ms = max((dirty.delay_ms for *_, dirty in looked_at), default=0)
        return [each for each in looked_at if each[2].is_due(each[1].config)]

    def _look_at(self, directory: LogDirectory, log: Log, wall_ms: int) -> DirtyRange | None:
        """Return the dirty part of `log`; None if it cannot be cleaned, or cannot be read now."""
        key = log.topic_partition
        if not self._may_be_cleaned(key, log):
            return None
        try:
            return self._dirty_range(log, directory, wall_ms)
        except CorruptRecordError:
            self.uncleanable[key] = log
        except ShortageError:
            pass
        except StorageError:
            assert log.failed, "a log that cannot be read has failed its directory"
        return None

    def _may_be_cleaned(self, key: TopicPartition, log: Log) -> bool:
        return (
            log.config.is_compacted
            and not log.failed
            and not log.closed
            and key not in self.in_progress
            and key not in self.uncleanable
        )

    def _dirty_range(self, log: Log, directory: LogDirectory, wall_ms: int) -> DirtyRange:
        with log.local.retryable():
            dirty = dirty_range(
                list(log.segments),
                log.config,
                checkpoint=directory.cleaner_offsets.get(log.topic_partition),
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                last_stable_offset=log.last_stable_offset,
                wall_ms=wall_ms,
            )
            if dirty.resets:
                self._write(directory, {log.topic_partition: dirty.first_dirty_offset})
        return dirty

    # The checkpoint.

    def _write(self, directory: LogDirectory, changes: Mapping[TopicPartition, Offset]) -> None:
        """Write the offsets of the existing logs, without those of deleted ones."""
        offsets = {
            key: offset
            for key, offset in {**directory.cleaner_offsets, **changes}.items()
            if key in directory.logs
        }
        directory.write_cleaner_offsets(offsets)

    def _directory_of(self, log: Log) -> LogDirectory | None:
        """Return None where the log has been deleted, or its directory is offline."""
        key = log.topic_partition
        return next((each for each in self.live() if each.logs.get(key) is log), None)
