"""Every log of a broker, over all of its log directories.

    startup     lock every directory, see whose it is, read how it was left, open its logs
    running     find, create and delete logs; write checkpoints; take what may be unlinked
    shutdown    sync and close every log, write the checkpoints, then the clean-shutdown marker

Rule 1: a second process is refused before it has read or written anything.

Rule 2: a shortage of descriptors ends a start, or is passed on; no directory fails by it.

Rule 3: the marker is the last thing that is written, and only into a directory whose logs
were all opened and have all been synced. Whoever is killed comes to `close_uncleanly`,
which writes nothing.

What checkpoints hold and what becomes of a directory that fails is in
`storage.manager.checkpointed_logs`. (LogManager in Kafka.)
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

import attrs

from storage.config import LogConfig
from storage.errors import (
    InconsistentMetadataError,
    KafkaStorageError,
    LogDirectoryError,
    ShortageError,
)
from storage.filesystem import FileSystem
from storage.log.local_log import LocalLog, LogHooks
from storage.log.log import Log
from storage.log.open_segments import OpenSegments
from storage.log.recovery.report import RecoveryReport
from storage.log.retention import DeletedSegments
from storage.manager.checkpointed_logs import CheckpointedLogs
from storage.manager.log_directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory, owner_of
from storage.manager.pending_deletes import DoomedFile, DoomedFiles
from storage.producers.state import DEFAULT_EXPIRATION_MS
from storage.types import TopicId, TopicPartition

NO_BROKER_EPOCH = -1
LoadJob: TypeAlias = Callable[[], None]
# So many logs are loaded, of so many.
OnLoading: TypeAlias = Callable[[int, int], None]


def _ignore_deletion(_log: TopicPartition, _deleted: DeletedSegments) -> None:
    """Nobody asked to know."""


def ignore_loading(_done: int, _total: int) -> None:
    """Nobody watches."""


@attrs.define(eq=False)
class LogManager(CheckpointedLogs):
    """See the head of this module; what it has in common with its base is there."""

    file_system: FileSystem
    log_dirs: Sequence[str]
    node_id: int = attrs.field(kw_only=True)
    cluster_id: str | None = attrs.field(kw_only=True, default=None)
    config: LogConfig = attrs.field(kw_only=True, factory=LogConfig)
    producer_id_expiration_ms: int = attrs.field(kw_only=True, default=DEFAULT_EXPIRATION_MS)
    # For a directory that has no id yet: 16 random bytes. None: it gets none.
    new_directory_id: Callable[[], bytes] | None = attrs.field(kw_only=True, default=None)
    # Segments have left a log, and why; called in the thread that took them out.
    on_segments_deleted: Callable[[TopicPartition, DeletedSegments], None] = attrs.field(
        kw_only=True, default=_ignore_deletion
    )
    open_segments: OpenSegments = attrs.field(kw_only=True, factory=OpenSegments)
    # Read every batch again, whatever the last shutdown was.
    believe_nothing: bool = attrs.field(kw_only=True, default=False)
    _hooks: dict[str, LogHooks] = attrs.field(init=False, factory=dict)
    _rolled: dict[TopicPartition, None] = attrs.field(init=False, factory=dict)
    # What opening those logs found that were there at the start.
    _loaded: list[RecoveryReport] = attrs.field(init=False, factory=list)
    doomed: DoomedFiles = attrs.field(init=False, factory=DoomedFiles)

    # Starting.

    def startup(self, on_loading: OnLoading = ignore_loading) -> list[RecoveryReport]:
        """Open everything, one log after another; what opening each log found.

        Who has threads takes the three steps of this, and loads several logs at once.
        """
        try:
            jobs = list(chain.from_iterable(self.find_logs()))
            for done, job in enumerate(jobs):
                on_loading(done, len(jobs))
                job()
            return self.all_loaded()
        except BaseException:
            self.close_uncleanly()
            raise

    def find_logs(self) -> list[list[LoadJob]]:
        """Lock every directory and see what is in it: for each, what loads its logs.

        A job touches one log, and fits a worker thread. What it raises ends the start.
        """
        self._lock_all()
        for directory in self._live():
            self._enter(directory)
        found: dict[TopicPartition, str] = {}
        return [self._find_logs_in(directory, found) for directory in self._live()]

    def all_loaded(self) -> list[RecoveryReport]:
        """The jobs are done; KafkaStorageError where not one directory is left."""
        if not any(self._live()):
            causes = "; ".join(f"{each.path}: {each.failure}" for each in self.directories)
            raise KafkaStorageError(f"no log directory can be used: {causes}")
        self._loaded = [log.recovery for log in self._logs.values()]
        return list(self._loaded)

    def _lock_all(self) -> None:
        for path in self.log_dirs:
            try:
                self.directories.append(LogDirectory.lock(self.file_system, path))
            except ShortageError:
                raise
            except OSError as error:
                directory = LogDirectory(file_system=self.file_system, path=path)
                self.directories.append(directory)
                self._fail_directory(directory, error)

    def _enter(self, directory: LogDirectory) -> None:
        new_id = self.new_directory_id() if self.new_directory_id else None
        try:
            directory.claim(cluster_id=self.cluster_id, node_id=self.node_id, directory_id=new_id)
            directory.take_clean_shutdown()
            for path in directory.deleted_partitions():
                self._doom_log(directory, path, owner_of(path), "deletion interrupted")
        except ShortageError:
            raise
        except OSError as error:
            self._fail_directory(directory, error)
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
        """Write down whose the directories are, for a node that did not know when it started."""
        self.cluster_id = cluster_id
        for directory in self._live():
            self._checkpointing(
                directory,
                lambda each: each.claim(
                    cluster_id=cluster_id, node_id=self.node_id, directory_id=None
                ),
            )

    def _find_logs_in(
        self, directory: LogDirectory, found: dict[TopicPartition, str]
    ) -> list[LoadJob]:
        try:
            directory.read_checkpoints()
            partitions = directory.partitions()
        except ShortageError:
            raise
        except OSError as error:
            self._fail_directory(directory, error)
            return []
        directory.miss(partitions)
        for topic_partition, path in partitions.items():
            if topic_partition in found:
                other = found[topic_partition]
                raise LogDirectoryError(f"{topic_partition} is both in {other} and in {path}")
            found[topic_partition] = path
        return [partial(self._load, directory, *each) for each in partitions.items()]

    def _load(self, directory: LogDirectory, topic_partition: TopicPartition, path: str) -> None:
        if directory.failure is not None:
            return
        try:
            log = self._open(directory, topic_partition, path)
        except ShortageError:
            raise
        except OSError as error:
            self._fail_directory(directory, error)
        except KafkaStorageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self._fail_directory(directory, error.__cause__)
        else:
            self._keep(log, directory)

    def _keep(self, log: Log, directory: LogDirectory) -> None:
        self._logs[log.topic_partition] = log
        self._home[log.topic_partition] = directory
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
        """The same for all logs in it: there may be very many."""
        if directory.path not in self._hooks:
            self._hooks[directory.path] = self._make_hooks(directory)
        return self._hooks[directory.path]

    def _make_hooks(self, directory: LogDirectory) -> LogHooks:
        def failed(_log: LocalLog, error: OSError) -> None:
            self._fail_directory(directory, error)

        def doomed(log: LocalLog, paths: list[str]) -> None:
            delay_ms = log.config.file_delete_delay_ms
            for path in paths:
                self.doomed.add(DoomedFile(path=path, log_dir=directory.path, delay_ms=delay_ms))

        return LogHooks(
            failed=failed,
            marks_relied_on=lambda log: self._correct_checkpoints(directory, log),
            rolled=lambda log: self._rolled.__setitem__(log.topic_partition, None),
            doomed=doomed,
            deleted=lambda log, deleted: self.on_segments_deleted(log.topic_partition, deleted),
            cut=lambda log, offset: self.cleaner.before_cut(directory, log.topic_partition, offset),
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
        """What was odd in any of its directories, a line each; nothing was changed for it."""
        return [warning for directory in self.directories for warning in directory.warnings]

    # Finding, creating, deleting.

    def directory_id_of(self, topic_partition: TopicPartition) -> bytes | None:
        """Of the directory that the log of that partition lies in."""
        directory = self._home.get(topic_partition)
        return None if directory is None else directory.directory_id

    def expire_producers_after(self, expiration_ms: int) -> None:
        """From now on, in every log."""
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
        """The log; where there is none it is made in `directory_id`, if that is online, or in
        the directory with the fewest.

        InconsistentTopicIdError where it belongs to another topic of that name. Not `is_new`:
        it may lie in a directory that is offline, and is not made a second time.
        """
        log = self._logs.get(topic_partition)
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
        # Assigned to one that is not online, it lies in one of those that are offline.
        is_new = is_new and directory_id is None
        if not live or (not is_new and len(live) < len(self.directories)):
            raise KafkaStorageError(f"{topic_partition}: a log directory is offline")
        if len(live) == 1:
            return live[0]
        homes = list(self._home.values())
        return min(live, key=homes.count)

    def _create(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig | None,
        wall_ms: int | None,
    ) -> Log:
        try:
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
            raise self._fail_directory(directory, error) from error
        self._keep(log, directory)
        return log

    def async_delete(self, topic_partition: TopicPartition, cause: str = "") -> None:
        """Forget the log and rename its directory; `unlink` removes it later."""
        directory = self._home[topic_partition]
        path = self._set_aside(topic_partition, DELETE_SUFFIX)
        if path is not None:
            self._doom_log(directory, path, topic_partition, cause)

    def _doom_log(
        self, directory: LogDirectory, path: str, log: TopicPartition | None, cause: str
    ) -> None:
        delay_ms = self.config.file_delete_delay_ms
        self.doomed.add(
            DoomedFile(path=path, log_dir=directory.path, delay_ms=delay_ms, log=log, cause=cause)
        )

    def put_aside(self, topic_partition: TopicPartition) -> None:
        """Forget a stray log and rename its directory. Nobody but a person removes it.

        Metadata that does not know a topic may be wrong: a controller that has lost its
        own directory knows none of them.
        """
        directory = self._home[topic_partition]
        path = self._set_aside(topic_partition, STRAY_SUFFIX)
        if path is not None:
            directory.warnings.append(f"{topic_partition} is not in the metadata: now {path}")

    def _set_aside(self, topic_partition: TopicPartition, suffix: str) -> str | None:
        """The directory's new path; None where its disk is gone."""
        log = self._logs.pop(topic_partition)
        directory = self._home.pop(topic_partition)
        self._rolled.pop(topic_partition, None)
        self.cleaner.forget(topic_partition)
        if directory.failure is not None:
            log.close_uncleanly()
            return None
        try:
            # Or nobody could tell whose records it holds.
            log.write_topic_id()
            return directory.set_aside(log.directory, topic_partition, log.topic_id, suffix)
        except OSError as error:
            raise self._fail_directory(directory, error) from error
        finally:
            log.close_uncleanly()

    def unlink(self, doomed: Iterable[DoomedFile]) -> list[DoomedFile]:
        """Remove what is due, for good; what is gone. A disk that refuses is offline.

        Slow, touches nothing else, and fit for a worker thread; `doomed.forget` it afterwards.
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
                        self._fail_directory(directory, error)
                    else:
                        gone.append(each)
        return gone

    def take_rolled(self) -> list[Log]:
        """The logs that have closed a segment since this was last asked: flush them."""
        rolled, self._rolled = self._rolled, {}
        logs = [self._logs[each] for each in rolled if each in self._logs]
        return [log for log in logs if not log.failed and not log.closed]

    # Ending.

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Sync and close everything; the marker last. Fit for a worker thread."""
        for directory in self._live():
            for log in self.logs_in(directory):
                if not log.failed:
                    self._closing(log)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        for directory in self._live():
            self._checkpointing(directory, lambda each: each.write_clean_shutdown(broker_epoch))
        self.close_uncleanly()

    def _closing(self, log: Log) -> None:
        try:
            log.close()
        except KafkaStorageError:
            assert log.failed, "a log that cannot be closed has taken its directory offline"

    def close_uncleanly(self) -> None:
        """Release every file and lock, and write nothing."""
        for log in self._logs.values():
            log.close_uncleanly()
        for directory in self.directories:
            directory.release()
