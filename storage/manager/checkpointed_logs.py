"""Which log lies in which directory, what of it is checkpointed, and directories that fail.

    recovery-point-offset-checkpoint      what is synced, and need not be read again
    log-start-offset-checkpoint           where logs begin that begin within a segment
    replication-offset-checkpoint         high watermarks

Rule 1: a checkpoint never claims more of a log than there is, not even one of an older
topic of the same name. Recovery points and log starts are therefore published where logs
are appended to and truncated, never by a worker thread, which may only prepare them
(`storage.manager.checkpoint_plan`): a lower one must not be overtaken by an older, higher one.

Rule 2: a write or a sync that fails takes its whole directory offline: every log in it
refuses to work from then on, and whoever asked to know is told once. The other directories
go on.

(LogManager in Kafka.)
"""

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from storage.errors import CheckpointError, KafkaStorageError, ShortageError
from storage.log.local_log import LocalLog
from storage.log.log import Log
from storage.manager.checkpoint_plan import CheckpointPlan
from storage.manager.cleaner_manager import CleanerManager
from storage.manager.log_directory import LogDirectory
from storage.types import Offset, TopicPartition


def _ignore_failure(_directory: str, _error: OSError) -> None:
    """Nobody asked to know."""


@attrs.define(eq=False)
class CheckpointedLogs:
    """Logs that somebody else opens and closes."""

    # A directory went offline, and why; called in the thread that found out.
    on_directory_failed: Callable[[str, OSError], None] = attrs.field(
        kw_only=True, default=_ignore_failure
    )
    directories: list[LogDirectory] = attrs.field(init=False, factory=list)
    cleaner: CleanerManager = attrs.field(init=False)
    _logs: dict[TopicPartition, Log] = attrs.field(init=False, factory=dict)
    _home: dict[TopicPartition, LogDirectory] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.cleaner = CleanerManager(self._online)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        return [
            log
            for topic_partition, log in list(self._logs.items())
            if self._home.get(topic_partition) is directory
        ]

    # Checkpoints.

    def checkpoint_recovery_points(self) -> None:
        """Not from a worker thread (rule 1)."""
        for directory in self._live():
            self._checkpointing(directory, self._write_recovery_points)

    def checkpoint_log_start_offsets(self) -> None:
        """Of the logs whose start does not follow from their first segment (and rule 1)."""
        for directory in self._live():
            self._checkpointing(directory, self._write_log_start_offsets)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        for directory in self._live():
            offsets = {
                log.topic_partition: high_watermarks[log.topic_partition]
                for log in self.logs_in(directory)
                if log.topic_partition in high_watermarks
            }
            self._checkpointing(directory, partial(_write_high_watermarks, offsets=offsets))

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """As last checkpointed. A file that does not parse takes its directory offline."""
        found: dict[TopicPartition, Offset] = {}
        for directory in self._live():
            try:
                found |= directory.read_high_watermarks()
            except CheckpointError as error:
                self._fail_directory(directory, OSError(str(error)))
            except ShortageError:
                raise
            except OSError as error:
                self._fail_directory(directory, error)
        return found

    def plan_recovery_points(self) -> list[CheckpointPlan]:
        """The same in steps, of which only `plan` and `publish` are not for a worker thread."""
        return [
            CheckpointPlan(
                directory=directory,
                name=RECOVERY_POINT_CHECKPOINT,
                offsets=self._recovery_points(directory),
                marks_now=partial(self._recovery_points, directory),
                published=partial(setattr, directory, "recovery_points"),
            )
            for directory in self._live()
        ]

    def plan_log_start_offsets(self) -> list[CheckpointPlan]:
        return [
            CheckpointPlan(
                directory=directory,
                name=LOG_START_OFFSET_CHECKPOINT,
                offsets=self._log_starts(directory),
                marks_now=partial(self._all_log_starts, directory),
                published=partial(setattr, directory, "log_start_offsets"),
            )
            for directory in self._live()
        ]

    def fail(self, directory: LogDirectory, error: OSError) -> KafkaStorageError:
        """A plan for `directory` could not be carried out: it is offline."""
        return self._fail_directory(directory, error)

    def _recovery_points(self, directory: LogDirectory) -> dict[TopicPartition, Offset]:
        return {log.topic_partition: log.recovery_point for log in self.logs_in(directory)}

    def _all_log_starts(self, directory: LogDirectory) -> dict[TopicPartition, Offset]:
        return {log.topic_partition: log.log_start_offset for log in self.logs_in(directory)}

    def _log_starts(self, directory: LogDirectory) -> dict[TopicPartition, Offset]:
        return {
            log.topic_partition: log.log_start_offset
            for log in self.logs_in(directory)
            if log.log_start_offset > log.segments[0].base_offset
        }

    def _write_recovery_points(self, directory: LogDirectory) -> None:
        directory.write_recovery_points(self._recovery_points(directory))

    def _correct_checkpoints(self, directory: LogDirectory, log: LocalLog) -> None:
        """No checkpoint on the disk may claim more of `log` than there is."""
        key = log.topic_partition
        if directory.recovery_points.get(key, 0) > log.recovery_point:
            self._write_recovery_points(directory)
        if directory.log_start_offsets.get(key, 0) > log.log_start_offset:
            self._write_log_start_offsets(directory)
        if directory.cleaner_offsets.get(key, 0) > log.log_end_offset:
            self.cleaner.before_cut(directory, key, log.log_start_offset)

    def _write_log_start_offsets(self, directory: LogDirectory) -> None:
        directory.write_log_start_offsets(self._log_starts(directory))

    def _checkpointing(
        self, directory: LogDirectory, write: Callable[[LogDirectory], None]
    ) -> None:
        try:
            write(directory)
        except ShortageError:
            raise
        except OSError as error:
            self._fail_directory(directory, error)

    # Failing.

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _online(self) -> list[tuple[Log, LogDirectory]]:
        return [(log, directory) for directory in self._live() for log in self.logs_in(directory)]

    def _fail_directory(self, directory: LogDirectory, error: OSError) -> KafkaStorageError:
        if directory.failure is None:
            directory.failure = error
            for log in self.logs_in(directory):
                log.fail(error)
            self.on_directory_failed(directory.path, error)
        return KafkaStorageError(f"{directory.path} is offline: {directory.failure}")


def _write_high_watermarks(
    directory: LogDirectory, *, offsets: Mapping[TopicPartition, Offset]
) -> None:
    directory.write_high_watermarks(offsets)
