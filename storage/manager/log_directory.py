"""One directory of `log.dirs`: its owner, its logs and its checkpoints.

    <log.dir>/
      .lock                                held while a process uses it
      meta.properties                      cluster.id, node.id, directory.id
      .kafka_cleanshutdown                 the last shutdown synced everything; read once
      *-offset-checkpoint                  recovery points, log starts, high watermarks
      orders-0/  orders-1/                 a partition each
      orders-2.<32 hex>-delete/            is going to be deleted
      orders-3.<32 hex>-stray/  -future/   never opened

(LogManager, BrokerMetadataCheckpoint, UnifiedLog.parseTopicPartitionName in Kafka.)
"""

import os
import re
from collections.abc import Collection, Mapping

import attrs

from storage.attributes import define
from storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdown,
    MetaProperties,
    OffsetCheckpoint,
    read_clean_shutdown,
    read_meta_properties,
    remove_clean_shutdown,
    uuid_bytes,
    uuid_text,
    write_clean_shutdown,
    write_meta_properties,
)
from storage.errors import CheckpointError, InconsistentMetadataError, LogDirectoryError
from storage.filesystem import FileSystem, Lock, make_lasting_directory
from storage.log.log import Log
from storage.log.recovery.aside import keep_file
from storage.types import NO_TOPIC_ID, Offset, TopicId, TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
# Left where they are: a move between directories, and what metadata does not know.
_SET_ASIDE = ("-future", STRAY_SUFFIX)
FORMER_METADATA_TOPIC = "__understudy_metadata"
"""The topic of the metadata log in releases whose records were not Kafka's."""
LOCK = ".lock"
_LONGEST_NAME = 255
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)")


def former_metadata(path: str) -> LogDirectoryError:
    """Return the error for the metadata log of a release whose records were not Kafka's."""
    return LogDirectoryError(
        f"{path} is the metadata log of an older release, whose records this release does not read;"
        " start with empty directories, or with that release"
    )


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a directory called `name`; its number follows the last
    hyphen.
    """
    found = _NAME.fullmatch(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None


def owner_of(path: str) -> TopicPartition | None:
    """Return the partition whose directory is now set aside at `path`; a long topic may be cut
    short.
    """
    return partition_of(os.path.basename(path).rpartition(".")[0])


def aside_name(topic_partition: TopicPartition, unique: int, suffix: str) -> str:
    """Return the name of its directory once it is set aside; a long topic is cut short."""
    ending = f"-{topic_partition.partition}.{unique % (1 << 128):032x}{suffix}"
    return topic_partition.topic[: _LONGEST_NAME - len(ending)] + ending


@define(eq=False, kw_only=True)
class LogDirectory:
    file_system: FileSystem
    path: str
    failure: OSError | None = None
    properties: MetaProperties | None = None
    # None: the last shutdown was not clean.
    clean_shutdown: CleanShutdown | None = None
    warnings: list[str] = attrs.field(factory=list)
    # Partitions that were there at a clean shutdown, and are not any more.
    lost: list[TopicPartition] = attrs.field(factory=list)
    # The logs that are open here; the manager opens and closes them.
    logs: dict[TopicPartition, Log] = attrs.field(factory=dict)
    # The checkpoints as they stand on the disk.
    recovery_points: dict[TopicPartition, Offset] = attrs.field(factory=dict)
    log_start_offsets: dict[TopicPartition, Offset] = attrs.field(factory=dict)
    high_watermarks: dict[TopicPartition, Offset] = attrs.field(factory=dict)
    cleaner_offsets: dict[TopicPartition, Offset] = attrs.field(factory=dict)
    _lock: Lock | None = None

    def lock(self) -> None:
        """Lock the directory, making it if need be. Raise LogDirectoryLockedError where another
        process uses it.
        """
        make_lasting_directory(self.file_system, self.path)
        self._lock = self.file_system.lock(os.path.join(self.path, LOCK))

    @property
    def directory_id(self) -> bytes | None:
        """The 16 bytes that it is known by (KIP-858); None where it has none, or is unread."""
        text = None if self.properties is None else self.properties.directory_id
        return None if text is None else uuid_bytes(text)

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # Whose it is.

    def claim(self, *, cluster_id: str | None, node_id: int, directory_id: bytes | None) -> None:
        """Make this node the owner of the directory. Raise InconsistentMetadataError if it has another
        owner.
        """
        found = read_meta_properties(self.file_system, self.path)
        if found is not None:
            self._compare(found, cluster_id=cluster_id, node_id=node_id)
        cluster_id = cluster_id or (found.cluster_id if found else None)
        known_id = found.directory_id if found else None
        properties = MetaProperties(
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=known_id or (uuid_text(directory_id) if directory_id else None),
        )
        if properties != found:
            write_meta_properties(self.file_system, self.path, properties)
        self.properties = properties

    def has_id_of(self, other: "LogDirectory") -> bool:
        """Return whether both are, by their ids, one directory."""
        mine, theirs = self.properties, other.properties
        if mine is None or theirs is None or mine.directory_id is None:
            return False
        return mine.directory_id == theirs.directory_id

    def _compare(self, found: MetaProperties, *, cluster_id: str | None, node_id: int) -> None:
        if cluster_id and found.cluster_id and found.cluster_id != cluster_id:
            raise InconsistentMetadataError(
                f"{self.path} belongs to cluster {found.cluster_id}, and this is {cluster_id}"
            )
        if found.node_id != node_id:
            raise InconsistentMetadataError(
                f"{self.path} belongs to node {found.node_id}, and this is node {node_id}"
            )

    # How the last shutdown was.

    def take_clean_shutdown(self) -> None:
        """Read the marker of a clean shutdown and remove it, because the next end may be a crash."""
        self.clean_shutdown = read_clean_shutdown(self.file_system, self.path)
        if self.clean_shutdown is not None:
            remove_clean_shutdown(self.file_system, self.path)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        write_clean_shutdown(self.file_system, self.path, broker_epoch)

    # What is in it.

    def partitions(self) -> dict[TopicPartition, str]:
        """Return each partition's directory. Raise LogDirectoryError for one whose name is no
        partition's.
        """
        found = {}
        for name, path in self._directories():
            if name.endswith((DELETE_SUFFIX, *_SET_ASIDE)):
                continue
            if self.file_system.is_link(path):
                raise LogDirectoryError(
                    f"{path} is a symbolic link, and a link is not followed inside of a log"
                    " directory; put the directory in its place"
                )
            topic_partition = partition_of(name)
            if topic_partition is None:
                raise LogDirectoryError(
                    f"{path} is not the directory of a partition (<topic>-<number>);"
                    " move it away, or name another log directory"
                )
            if topic_partition.topic == FORMER_METADATA_TOPIC:
                raise former_metadata(path)
            found[topic_partition] = path
        return found

    def deleted_partitions(self) -> list[str]:
        return [path for name, path in self._directories() if name.endswith(DELETE_SUFFIX)]

    def _directories(self) -> list[tuple[str, str]]:
        named = [
            (name, os.path.join(self.path, name))
            for name in self.file_system.list_directory(self.path)
        ]
        return [(name, path) for name, path in named if self.file_system.is_directory(path)]

    def set_aside(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        suffix: str,
    ) -> str:
        """Rename a partition's directory, for good; return its new path."""
        unique = int.from_bytes(topic_id or NO_TOPIC_ID, "big")
        while self.file_system.exists(
            path := os.path.join(self.path, aside_name(topic_partition, unique, suffix))
        ):
            unique += 1
        self.file_system.rename(directory, path)
        self.file_system.sync_directory(self.path)
        return path

    # Its logs.

    def recovery_points_now(self) -> dict[TopicPartition, Offset]:
        return {each: log.recovery_point for each, log in self.open_logs()}

    def log_start_offsets_now(self) -> dict[TopicPartition, Offset]:
        return {each: log.log_start_offset for each, log in self.open_logs()}

    def log_starts_within_segments(self) -> dict[TopicPartition, Offset]:
        """Return the starts of the logs whose start does not follow from their first segment."""
        return {
            each: log.log_start_offset
            for each, log in self.open_logs()
            if log.log_start_offset > log.segments[0].base_offset
        }

    def open_logs(self) -> list[tuple[TopicPartition, Log]]:
        """Return a copy of `logs`: another thread may add to it."""
        return list(self.logs.items())

    def checkpoint_recovery_points(self) -> None:
        offsets = self.recovery_points_now()
        self._checkpoint(RECOVERY_POINT_CHECKPOINT).write(offsets)
        self.recovery_points = offsets

    def checkpoint_log_start_offsets(self) -> None:
        offsets = self.log_starts_within_segments()
        self._checkpoint(LOG_START_OFFSET_CHECKPOINT).write(offsets)
        self.log_start_offsets = offsets

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[Log, Offset]) -> None:
        offsets = {
            each: high_watermarks[log] for each, log in self.open_logs() if log in high_watermarks
        }
        # Both may stand there while they are written, and after a write that failed.
        self.high_watermarks = self.high_watermarks | offsets
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT).write(offsets)
        self.high_watermarks = offsets

    # What it remembers.

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.file_system, os.path.join(self.path, name))

    def read_checkpoints(self) -> None:
        """Read the checkpoints. If one is missing, more of the logs is read again than necessary, and
        nothing is lost.
        """
        self.recovery_points = self._read_or_warn(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._read_or_warn(LOG_START_OFFSET_CHECKPOINT)
        self.cleaner_offsets = self._read_or_warn(CLEANER_CHECKPOINT)

    def read_high_watermarks(self) -> dict[Log, Offset]:
        offsets = self.high_watermarks = self._checkpoint(HIGH_WATERMARK_CHECKPOINT).read()
        return {log: offsets[each] for each, log in self.open_logs() if each in offsets}

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._checkpoint(CLEANER_CHECKPOINT).write(offsets)
        self.cleaner_offsets = dict(offsets)

    def _read_or_warn(self, name: str) -> dict[TopicPartition, Offset]:
        checkpoint = self._checkpoint(name)
        try:
            return checkpoint.read()
        except CheckpointError as error:
            kept = keep_file(self.file_system, checkpoint.path)
            self.warnings.append(f"{error}; kept as {kept}")
            return {}

    def miss(self, found: Collection[TopicPartition]) -> None:
        """Note the partitions that were there at a clean shutdown and are not in `found`."""
        if self.clean_shutdown is not None:
            self.lost = [
                each
                for each, offset in self.recovery_points.items()
                if offset > 0 and each not in found
            ]
            self.warnings += [
                f"{self.path}: {each} had been synced up to offset"
                f" {self.recovery_points[each]}, and its directory is gone"
                for each in self.lost
            ]
