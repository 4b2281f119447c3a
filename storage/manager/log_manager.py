"""Every log of a broker, over all of its log directories.

    startup     lock every directory, check its owner, read its checkpoints, open its logs
    running     find, create and delete logs; write checkpoints; unlink deleted files
    shutdown    sync and close every log, write the checkpoints, then the clean-shutdown marker

    recovery-point-offset-checkpoint      what is synced, and need not be read again
    log-start-offset-checkpoint           where logs begin that begin within a segment
    replication-offset-checkpoint         high watermarks

Rule 1: a second process that uses a directory is refused before it reads or writes anything.

Rule 2: a checkpoint never claims more of a log than there is, not even one of an older
topic of the same name. Recovery points and log starts are therefore published where logs
are appended to and truncated, never by a worker thread, which may only prepare them
(`storage.manager.checkpoint_plan`): a lower one must not be overtaken by an older, higher one.

Rule 3: a write or a sync that fails takes its whole directory offline: every log in it refuses to
work from then on, and `on_directory_failed` is called once. The other directories go on. A shortage
of descriptors ends a start, or is passed on; no directory fails by it.

Rule 4: the clean-shutdown marker is written last, and only into a directory whose logs were all
opened and have all been synced. A killed node calls only `close_uncleanly`, which writes nothing.

Rule 5: a directory that was offline while a topic was made again comes back with a log of the former
topic, beside the one of the present topic in another directory. Both are opened, and the metadata
decides which of them is stray. Two logs of one topic end the start.

This file is long because opening, checkpointing and failing look at the same logs. (LogManager in
Kafka.)
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

import attrs

from storage.attributes import define
from storage.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_partition_metadata,
)
from storage.config import LogConfig
from storage.errors import (
    CheckpointError,
    InconsistentMetadataError,
    KafkaStorageError,
    LogDirectoryError,
    ShortageError,
)
from storage.filesystem import FileSystem
from storage.log.local_log import LogHooks
from storage.log.log import Log
from storage.log.open_segments import OpenSegments
from storage.log.recovery.report import RecoveryReport
from storage.log.retention import DeletedSegments
from storage.manager.checkpoint_plan import CheckpointPlan
from storage.manager.cleaner_manager import CleanerManager
from storage.manager.log_directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory, owner_of
from storage.manager.pending_deletes import DoomedFile, DoomedFiles
from storage.producers.state import DEFAULT_EXPIRATION_MS
from storage.types import NO_BROKER_EPOCH, Offset, TopicId, TopicPartition

LoadJob: TypeAlias = Callable[[], None]
# Called with how many logs are loaded, and of how many.
OnLoading: TypeAlias = Callable[[int, int], None]


def _ignore(*_what: object) -> None:
    """Do nothing, where no callback is given."""


@define(eq=False, repr=False)
class LogManager:
    """The logs of one broker, in all of its log directories."""

    file_system: FileSystem
    log_dirs: Sequence[str]
    node_id: int = attrs.field(kw_only=True)
    cluster_id: str | None = attrs.field(kw_only=True, default=None)
    config: LogConfig = attrs.field(kw_only=True, factory=LogConfig)
    producer_id_expiration_ms: int = attrs.field(kw_only=True, default=DEFAULT_EXPIRATION_MS)
    # For a directory that has no id yet: 16 random bytes. None: it gets none.
    new_directory_id: Callable[[], bytes] | None = attrs.field(kw_only=True, default=None)
    # A directory went offline, and why; called in the thread that found out.
    on_directory_failed: Callable[[str, OSError], None] = attrs.field(kw_only=True, default=_ignore)
    # Segments have left a log, and why; called in the thread that took them out.
    on_segments_deleted: Callable[[TopicPartition, DeletedSegments], None] = attrs.field(
        kw_only=True, default=_ignore
    )
    open_segments: OpenSegments = attrs.field(kw_only=True, factory=OpenSegments)
    # Read every batch again, whatever the last shutdown was.
    believe_nothing: bool = attrs.field(kw_only=True, default=False)
    # The logs in these directories that somebody else in this process keeps, and where they lie: such
    # a directory is locked already.
    kept_elsewhere: Mapping[TopicPartition, str] = attrs.field(kw_only=True, factory=dict)
    directories: list[LogDirectory] = attrs.field(init=False, factory=list)
    cleaner: CleanerManager = attrs.field(init=False)
    _hooks: dict[str, LogHooks] = attrs.field(init=False, factory=dict)
    _rolled: dict[TopicPartition, None] = attrs.field(init=False, factory=dict)
    # What opening those logs found that were there at the start.
    _loaded: list[RecoveryReport] = attrs.field(init=False, factory=list)
    doomed: DoomedFiles = attrs.field(init=False, factory=DoomedFiles)

    def __attrs_post_init__(self) -> None:
        self.cleaner = CleanerManager(self._live)

    # Starting.

    def startup(self, on_loading: OnLoading | None = None) -> list[RecoveryReport]:
        """Open everything, one log after another; return the report of each log.

        A broker takes the three steps of this, and loads several logs at once, in threads.
        """
        try:
            jobs = list(chain.from_iterable(self.find_logs()))
            for done, job in enumerate(jobs):
                if on_loading is not None:
                    on_loading(done, len(jobs))
                job()
            return self.all_loaded()
        except BaseException:
            self.close_uncleanly()
            raise

    def find_logs(self) -> list[list[LoadJob]]:
        """Lock every directory and list its logs; return the jobs that load them, by directory.

        A job touches one log, and fits a worker thread. What it raises ends the start.
        """
        self._lock_all()
        for directory in self._live():
            self._enter(directory)
        found: dict[TopicPartition, list[tuple[LogDirectory, str]]] = {}
        return [self._find_logs_in(directory, found) for directory in self._live()]

    def all_loaded(self) -> list[RecoveryReport]:
        """Return the report of each log, once the jobs are done. Raise KafkaStorageError if no directory is
        left.
        """
        if not any(self._live()):
            causes = "; ".join(f"{each.path}: {each.failure}" for each in self.directories)
            raise KafkaStorageError(f"no log directory can be used: {causes}")
        self._loaded = [log.recovery for log in self.logs()]
        return list(self._loaded)

    def _lock_all(self) -> None:
        for path in self.log_dirs:
            directory = LogDirectory(file_system=self.file_system, path=path)
            self.directories.append(directory)
            if path not in self.kept_elsewhere.values():
                with self._failing(directory):
                    directory.lock()

    def _enter(self, directory: LogDirectory) -> None:
        new_id = self.new_directory_id() if self.new_directory_id else None
        with self._failing(directory):
            directory.claim(cluster_id=self.cluster_id, node_id=self.node_id, directory_id=new_id)
            directory.take_clean_shutdown()
            for path in directory.deleted_partitions():
                self._doom_log(directory, path, owner_of(path), "deletion interrupted")
        if directory.failure is not None:
            return
        assert directory.properties is not None, "a claimed directory has its properties"
        self.cluster_id = self.cluster_id or directory.properties.cluster_id
        for other in self.directories:
            if other is not directory and other.has_id_of(directory):
                raise InconsistentMetadataError(
                    f"{other.path} and {directory.path} have the same directory.id"
                    f" {directory.properties.directory_id}: one is a copy of the other"
                )

    def join_cluster(self, cluster_id: str) -> None:
        """Write the owner into the directories, for a node that did not know its cluster when it started."""
        self.cluster_id = cluster_id
        for directory in self._live():
            with self._failing(directory):
                directory.claim(cluster_id=cluster_id, node_id=self.node_id, directory_id=None)

    def _find_logs_in(
        self,
        directory: LogDirectory,
        found: dict[TopicPartition, list[tuple[LogDirectory, str]]],
    ) -> list[LoadJob]:
        partitions: dict[TopicPartition, str] = {}
        with self._failing(directory):
            directory.read_checkpoints()
            partitions = directory.partitions()
            directory.miss({*partitions, *self.kept_elsewhere})
            for kept in self.kept_elsewhere:
                partitions.pop(kept, None)
        for topic_partition, path in partitions.items():
            others = found.setdefault(topic_partition, [])
            for other_directory, other in others:
                topic_id = self._topic_id_in(directory, path)
                if topic_id is not None and topic_id == self._topic_id_in(other_directory, other):
                    raise LogDirectoryError(f"{topic_partition} is both in {other} and in {path}")
            others.append((directory, path))
        return [partial(self._load, directory, *each) for each in partitions.items()]

    def _topic_id_in(self, directory: LogDirectory, path: str) -> TopicId | None:
        try:
            return read_partition_metadata(self.file_system, path)
        except ShortageError:
            raise
        except OSError as error:
            self.fail(directory, error)
            return None

    def _load(self, directory: LogDirectory, topic_partition: TopicPartition, path: str) -> None:
        if directory.failure is not None:
            return
        with self._failing(directory):
            try:
                self._keep(self._open(directory, topic_partition, path), directory)
            except KafkaStorageError as error:
                if not isinstance(error.__cause__, OSError):
                    raise
                raise error.__cause__ from None

    def _keep(self, log: Log, directory: LogDirectory) -> None:
        directory.logs[log.topic_partition] = log
        if directory.failure is not None:  # found out in another thread meanwhile
            log.fail(directory.failure)

    def _open(self, directory: LogDirectory, topic_partition: TopicPartition, path: str) -> Log:
        marker = directory.clean_shutdown
        return Log.open(
            self.file_system,
            path,
            topic_partition,
            config=self.config,
            clean=marker is not None,
            marker_ms=None if marker is None else marker.written_ms,
            recovery_point=directory.recovery_points.get(topic_partition, 0),
            log_start_offset=directory.log_start_offsets.get(topic_partition, 0),
            compacted_to=directory.cleaner_offsets.get(topic_partition, 0),
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            hooks=self._hooks_of(directory),
            open_segments=self.open_segments,
            believe_nothing=self.believe_nothing,
        )

    def _hooks_of(self, directory: LogDirectory) -> LogHooks:
        """Return the hooks of all logs in `directory`, which share them: there may be very many."""
        if directory.path not in self._hooks:
            self._hooks[directory.path] = self._make_hooks(directory)
        return self._hooks[directory.path]

    def _make_hooks(self, directory: LogDirectory) -> LogHooks:
        def failed(error: OSError) -> None:
            self.fail(directory, error)

        def doomed(paths: list[str], delay_ms: int) -> None:
            for path in paths:
                self.doomed.add(DoomedFile(path=path, log_dir=directory.path, delay_ms=delay_ms))

        return LogHooks(
            failed=failed,
            marks_relied_on=lambda log: self._correct_checkpoints(directory, log),
            log_start_lasts=lambda _log: directory.checkpoint_log_start_offsets(),
            rolled=lambda log: self._rolled.__setitem__(log, None),
            doomed=doomed,
            deleted=self.on_segments_deleted,
            cut=lambda log, offset: self.cleaner.before_cut(directory, log, offset),
        )

    @property
    def clean(self) -> bool:
        """Whether every directory was left by a clean shutdown and still held all of it."""
        return all(
            directory.clean_shutdown is not None and not directory.lost
            for directory in self._live()
        ) and all(report.clean for report in self._loaded)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch that this broker last shut down in, cleanly; -1 where it did not, or where
        its directories do not agree (KIP-966).
        """
        epochs = {
            None if each.clean_shutdown is None else each.clean_shutdown.broker_epoch
            for each in self._live()
        }
        if not self.clean or len(epochs) != 1:
            return NO_BROKER_EPOCH
        return NO_BROKER_EPOCH if (epoch := epochs.pop()) is None else epoch

    @property
    def warnings(self) -> list[str]:
        """Warnings about the directories, one line each; nothing was changed because of them."""
        return [warning for directory in self.directories for warning in directory.warnings]

    # Finding, creating, deleting.

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of the partition; None where there is none."""
        for directory in self.directories:
            if (log := directory.logs.get(topic_partition)) is not None:
                return log
        return None

    def logs(self) -> list[Log]:
        """Return every log, in offline directories too."""
        return [log for directory in self.directories for _, log in directory.open_logs()]

    def _home_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the directory of the log; raise KeyError if there is no such log."""
        for directory in self.directories:
            if topic_partition in directory.logs:
                return directory
        raise KeyError(topic_partition)

    def directory_id_of(self, topic_partition: TopicPartition) -> bytes | None:
        """Return the id of the directory that the log of that partition lies in."""
        found = [each.directory_id for each in self.directories if topic_partition in each.logs]
        return found[0] if found else None

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set, in every log, how long a silent producer is remembered."""
        self.producer_id_expiration_ms = expiration_ms
        for log in self.logs():
            log.producers.expiration_ms = expiration_ms

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None = None,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
        directory_id: bytes | None = None,
        wall_ms: int | None = None,
    ) -> Log:
        """Return the log; where there is none it is made in `directory_id`, if that is online, or in
        the directory with the fewest.

        Raise InconsistentTopicIdError where it belongs to another topic of that name. If not
        `is_new`, it may lie in a directory that is offline, and is not made a second time.
        """
        log = self.get(topic_partition)
        if log is None:
            if os.path.basename(topic_partition.topic) != topic_partition.topic:
                raise LogDirectoryError(f"{topic_partition} is no name of a directory")
            directory = self._choose_directory(
                topic_partition, is_new=is_new, directory_id=directory_id
            )
            log = self._create(directory, topic_partition, topic_id, config, wall_ms)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        if config is not None:
            log.config = config
        return log

    def _choose_directory(
        self, topic_partition: TopicPartition, *, is_new: bool, directory_id: bytes | None
    ) -> LogDirectory:
        live = self._live()
        for directory in live:
            if directory_id is not None and directory.directory_id == directory_id:
                return directory
        # A log that is assigned to no online directory lies in one that is offline.
        is_new = is_new and directory_id is None
        if not live or (not is_new and len(live) < len(self.directories)):
            raise KafkaStorageError(f"{topic_partition}: a log directory is offline")
        return min(live, key=lambda each: len(each.logs))

    def _create(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig | None,
        wall_ms: int | None,
    ) -> Log:
        try:
            if topic_partition in directory.log_start_offsets:  # of a deleted log of that name
                directory.checkpoint_log_start_offsets()
            log = Log.open(
                self.file_system,
                f"{directory.path}/{topic_partition}",
                topic_partition,
                config=config or self.config,
                topic_id=topic_id,
                producer_id_expiration_ms=self.producer_id_expiration_ms,
                hooks=self._hooks_of(directory),
                open_segments=self.open_segments,
                wall_ms=wall_ms,
            )
        except ShortageError:
            raise
        except OSError as error:
            raise self.fail(directory, error) from error
        self._keep(log, directory)
        return log

    def async_delete(self, topic_partition: TopicPartition, cause: str = "") -> None:
        """Forget the log and rename its directory; `unlink` removes it later."""
        directory = self._home_of(topic_partition)
        path = self._set_aside(directory, topic_partition, DELETE_SUFFIX)
        if path is not None:
            self._doom_log(directory, path, topic_partition, cause)

    def _doom_log(
        self, directory: LogDirectory, path: str, log: TopicPartition | None, cause: str
    ) -> None:
        delay_ms = self.config.file_delete_delay_ms
        self.doomed.add(
            DoomedFile(path=path, log_dir=directory.path, delay_ms=delay_ms, log=log, cause=cause)
        )

    def strays(self, topic_id_of: Callable[[TopicPartition], TopicId | None]) -> list[Log]:
        """Return the logs of partitions without a topic id in the metadata, and of several logs of one
        partition those that have another id, or none (LogManager.isStrayKraftReplica).
        """
        logs = self.logs()
        copies = Counter(log.topic_partition for log in logs)
        return [
            log
            for log in logs
            if (topic_id := topic_id_of(log.topic_partition)) is None
            or (copies[log.topic_partition] > 1 and log.topic_id != topic_id)
        ]

    def put_aside(self, log: Log) -> None:
        """Forget a stray log and rename its directory, which only a person removes.

        Metadata that does not know a topic may be wrong: a controller that has lost its
        own directory knows none of them.
        """
        key = log.topic_partition
        [directory] = [each for each in self.directories if each.logs.get(key) is log]
        path = self._set_aside(directory, key, STRAY_SUFFIX)
        if path is not None:
            directory.warnings.append(f"{key} is not in the metadata: now {path}")

    def _set_aside(
        self, directory: LogDirectory, topic_partition: TopicPartition, suffix: str
    ) -> str | None:
        """Rename the log's directory, and return its new path; None where its disk is gone."""
        log = directory.logs.pop(topic_partition)
        self._rolled.pop(topic_partition, None)
        self.cleaner.forget(topic_partition)
        if directory.failure is not None:
            log.close_uncleanly()
            return None
        try:
            # Without it the directory does not say which topic its records are of.
            log.write_topic_id()
            return directory.set_aside(log.directory, topic_partition, log.topic_id, suffix)
        except OSError as error:
            raise self.fail(directory, error) from error
        finally:
            log.close_uncleanly()

    def unlink(self, doomed: Iterable[DoomedFile]) -> list[DoomedFile]:
        """Remove the files that are due; return those that were removed. A disk that fails goes offline.

        This is slow and touches nothing else, so a worker thread may do it; the caller then passes
        the removed files to `doomed.forget`.
        """
        gone = []
        for directory in self.directories:
            for each in doomed:
                if each.log_dir == directory.path and directory.failure is None:
                    try:
                        each.unlink(self.file_system)
                    except ShortageError:
                        continue
                    except OSError as error:
                        self.fail(directory, error)
                    else:
                        gone.append(each)
        return gone

    def take_rolled(self) -> list[Log]:
        """Return the logs that have closed a segment since the last call, which are to be flushed."""
        rolled, self._rolled = self._rolled, {}
        logs = [self.get(each) for each in rolled]
        return [log for log in logs if log is not None and not log.failed and not log.closed]

    # Checkpoints.

    def checkpoint_recovery_points(self) -> None:
        """Write every log's recovery point. Not for a worker thread (rule 2)."""
        for directory in self._live():
            with self._failing(directory):
                directory.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        """Write where those logs start that start within a segment. Not for a worker thread (rule
        2).
        """
        for directory in self._live():
            with self._failing(directory):
                directory.checkpoint_log_start_offsets()

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[Log, Offset]) -> None:
        """Write `high_watermarks`, each in the directory of its log."""
        for directory in self._live():
            with self._failing(directory):
                directory.checkpoint_high_watermarks(high_watermarks)

    def read_high_watermarks(self) -> dict[Log, Offset]:
        """Return them as last checkpointed. A file that does not parse takes its directory offline."""
        found: dict[Log, Offset] = {}
        for directory in self._live():
            with self._failing(directory):
                try:
                    found |= directory.read_high_watermarks()
                except CheckpointError as error:
                    raise OSError(str(error)) from error
        return found

    def is_marked(self, log: Log) -> bool:
        """Return whether the checkpoint of high watermarks has its name: of it, or a deleted one."""
        return log.topic_partition in self._home_of(log.topic_partition).high_watermarks

    def plan_recovery_points(self) -> list[CheckpointPlan]:
        """Plan what `checkpoint_recovery_points` writes, for a worker thread to prepare."""
        return [
            CheckpointPlan(
                directory=directory,
                name=RECOVERY_POINT_CHECKPOINT,
                offsets=directory.recovery_points_now(),
                marks_now=directory.recovery_points_now,
                published=partial(setattr, directory, "recovery_points"),
            )
            for directory in self._live()
        ]

    def plan_log_start_offsets(self) -> list[CheckpointPlan]:
        """Plan what `checkpoint_log_start_offsets` writes, for a worker thread to prepare."""
        return [
            CheckpointPlan(
                directory=directory,
                name=LOG_START_OFFSET_CHECKPOINT,
                offsets=directory.log_starts_within_segments(),
                marks_now=directory.log_start_offsets_now,
                published=partial(setattr, directory, "log_start_offsets"),
            )
            for directory in self._live()
        ]

    def _correct_checkpoints(self, directory: LogDirectory, key: TopicPartition) -> None:
        """Lower every checkpoint on the disk that claims more of a log than there is."""
        log = directory.logs.get(key)
        if log is None:
            return
        if directory.recovery_points.get(key, 0) > log.recovery_point:
            directory.checkpoint_recovery_points()
        if directory.log_start_offsets.get(key, 0) > log.log_start_offset:
            directory.checkpoint_log_start_offsets()
        if directory.cleaner_offsets.get(key, 0) > log.log_end_offset:
            self.cleaner.before_cut(directory, key, log.log_start_offset)

    # Failing.

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    @contextlib.contextmanager
    def _failing(self, directory: LogDirectory) -> Iterator[None]:
        """Take `directory` offline if its disk fails, and continue; a shortage is raised."""
        try:
            yield
        except ShortageError:
            raise
        except OSError as error:
            self.fail(directory, error)

    def fail(self, directory: LogDirectory, error: OSError) -> KafkaStorageError:
        """Take `directory` offline, if it is not yet, and return what to raise."""
        if directory.failure is None:
            directory.failure = error
            for _, log in directory.open_logs():
                log.fail(error)
            self.on_directory_failed(directory.path, error)
        return KafkaStorageError(f"{directory.path} is offline: {directory.failure}")

    # Ending.

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Sync and close everything, and write the marker last. A worker thread may do it."""
        for directory in self._live():
            for _, log in directory.open_logs():
                if not log.failed:
                    self._closing(log)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        for directory in self._live():
            with self._failing(directory):
                directory.write_clean_shutdown(broker_epoch)
        self.close_uncleanly()

    def _closing(self, log: Log) -> None:
        try:
            log.close()
        except KafkaStorageError:
            assert log.failed, "a log that cannot be closed has taken its directory offline"

    def close_uncleanly(self) -> None:
        """Release every file and lock, and write nothing."""
        for log in self.logs():
            log.close_uncleanly()
        for directory in self.directories:
            directory.release()
