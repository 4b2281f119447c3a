"""The small files that record offsets and identities, each of which is replaced in one step.

    in a log directory                         holds
    recovery-point-offset-checkpoint           topic partition offset   synced up to here
    log-start-offset-checkpoint                topic partition offset   deleted up to here
    replication-offset-checkpoint              topic partition offset   high watermark
    cleaner-offset-checkpoint                  topic partition offset   compacted up to here
    meta.properties                            which cluster, node and directory this is
    .kafka_cleanshutdown                       present: the last shutdown flushed everything

    in a partition's directory
    leader-epoch-checkpoint                    epoch start_offset
    compaction-gap-checkpoint                  topic partition offset   gaps only below here
    partition.metadata                         the topic id

Rule 1: a file is written under another name (`.tmp`), synced, renamed over the old one,
and its directory synced. A crash leaves the old file or the new one, never a mixture.

Rule 2: an empty file is an empty map. Anything else that does not parse, or is longer than such
a file can be, is a CheckpointError, and the caller decides what to do about it.

The checkpoints are text: a version line, a count line, then one entry a line.
(Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile, MetaProperties, CleanShutdownFileHandler.)
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from storage.attributes import frozen
from storage.errors import CheckpointError, raise_shortage
from storage.filesystem import FileSystem
from storage.types import NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
COMPACTION_GAP_CHECKPOINT: Final = "compaction-gap-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

# The longest lines of a checkpoint of 50,000 partitions, or half a million epochs.
SMALL_FILE_BYTES: Final = 16 << 20

_VERSION: Final = 0
_INTEGER: Final = re.compile(r"[0-9]{1,19}")
_RESERVED_IDS: Final = 100
_INT32_MOST: Final = 2**31 - 1
_INT64_MOST: Final = 2**63 - 1


def replace_file(file_system: FileSystem, path: str, data: bytes) -> None:
    """Make `data` the contents of `path`, completely or not at all, even in a crash. Raise
    ShortageError if the caller should try again.
    """
    try:
        _replace_file(file_system, path, data)
    except OSError as error:
        raise_shortage(error)
        raise


def _replace_file(file_system: FileSystem, path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    file = file_system.open(temporary, create=True)
    try:
        file.truncate(0)  # a crash may have left a longer one
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_directory(os.path.dirname(path) or ".")


def read_file(file_system: FileSystem, path: str, *, most: int = SMALL_FILE_BYTES) -> bytes | None:
    """Return all of a small file, and None where there is none.

    Raise CheckpointError where it is longer than `most` bytes: it is not read then.
    """
    try:
        file = file_system.open_for_reading(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        if size > most:
            raise CheckpointError(f"{path}: {size} bytes, where such a file has {most} at most")
        return file.read(0, size)
    finally:
        file.close()


@frozen
class OffsetCheckpoint:
    """One offset for each partition that the file names."""

    file_system: FileSystem
    path: str

    def read(self) -> dict[TopicPartition, Offset]:
        """Return what was last written; nothing where there is no file."""
        offsets = {}
        for line in _read_lines(self.file_system, self.path):
            match line.split():
                case [topic, partition, offset]:
                    number = _integer(self.path, line, partition, most=_INT32_MOST)
                    offsets[TopicPartition(topic, number)] = _integer(self.path, line, offset)
                case _:
                    raise _malformed(self.path, line)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        _write_lines(self.file_system, self.path, lines)


class EpochEntry(NamedTuple):
    """`epoch` began at `start_offset`."""

    epoch: LeaderEpoch
    start_offset: Offset

    def __str__(self) -> str:
        return f"{self.epoch}@{self.start_offset}"


@frozen
class LeaderEpochCheckpoint:
    """The leader epochs of one partition, oldest first."""

    file_system: FileSystem
    path: str

    def read(self) -> list[EpochEntry]:
        """Return what was last written; nothing where there is no file."""
        entries = []
        for line in _read_lines(self.file_system, self.path):
            match line.split():
                case [epoch, start_offset]:
                    start = _integer(self.path, line, start_offset)
                    number = _integer(self.path, line, epoch, most=_INT32_MOST)
                    entries.append(EpochEntry(number, start))
                case _:
                    raise _malformed(self.path, line)
        return entries

    def write(self, entries: Iterable[EpochEntry]) -> None:
        """Write `entries`, or nothing once the partition's directory is gone: a late flush may
        follow that.
        """
        if self.file_system.is_directory(os.path.dirname(self.path) or "."):
            lines = [f"{epoch} {start_offset}" for epoch, start_offset in entries]
            _write_lines(self.file_system, self.path, lines)


def _read_lines(file_system: FileSystem, path: str) -> list[str]:
    data = read_file(file_system, path)
    if not data:
        return []
    lines = _text(path, data).splitlines()
    if lines[0].strip() != str(_VERSION):
        raise CheckpointError(f"{path}: version {lines[0]!r} is not one we know ({_VERSION})")
    if len(lines) < 2:
        raise CheckpointError(f"{path}: it ends before the number of its entries")
    expected = _integer(path, lines[1], lines[1].strip())
    if len(lines) - 2 != expected:
        raise CheckpointError(f"{path}: {len(lines) - 2} entries where it says {expected}")
    return lines[2:]


def _write_lines(file_system: FileSystem, path: str, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in (str(_VERSION), str(len(lines)), *lines))
    replace_file(file_system, path, text.encode())


def _integer(path: str, line: str, text: str, *, most: int = _INT64_MOST) -> int:
    """Return the number in `text`; these files have no negative numbers."""
    if not _INTEGER.fullmatch(text) or int(text) > most:
        raise _malformed(path, line)
    return int(text)


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not text ({error.reason})") from error


def _malformed(path: str, line: str) -> CheckpointError:
    return CheckpointError(f"{path}: malformed line {line!r}")


def uuid_text(uuid: bytes) -> str:
    """Return 16 bytes as Kafka prints an id: URL-safe base 64 without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of an id that is written as Kafka prints it. Raise ValueError for
    anything else.
    """
    try:
        uuid = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id") from error
    if len(uuid) != len(NO_TOPIC_ID) or uuid_text(uuid) != text:
        raise ValueError(f"{text!r} is not the text of 16 bytes")
    return uuid


def is_reserved_directory(text: str) -> bool:
    """Return whether no directory can have this id: it stands for one that is unknown or lost
    (DirectoryId.reserved).
    """
    return int.from_bytes(uuid_bytes(text), "big") < _RESERVED_IDS


def read_partition_metadata(file_system: FileSystem, directory: str) -> TopicId | None:
    """Return the topic id of the partition in `directory`; None where the file is not there."""
    path = os.path.join(directory, PARTITION_METADATA)
    data = read_file(file_system, path)
    if data is None:
        return None
    found = re.fullmatch(r"version: (\S+)\r?\ntopic_id: (\S+)\s*", _text(path, data))
    if found is None:
        raise CheckpointError(f"{path}: not a version and a topic id")
    if found[1] != str(_VERSION):
        raise CheckpointError(f"{path}: version {found[1]} is not one we know ({_VERSION})")
    try:
        topic_id = uuid_bytes(found[2])
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if topic_id == NO_TOPIC_ID:
        raise CheckpointError(f"{path}: the topic id is zero")
    return topic_id


def write_partition_metadata(file_system: FileSystem, directory: str, topic_id: TopicId) -> None:
    assert topic_id != NO_TOPIC_ID, "the zero id stands for no topic"
    text = f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}"
    replace_file(file_system, os.path.join(directory, PARTITION_METADATA), text.encode())


@frozen(kw_only=True)
class MetaProperties:
    """Whose log directory this is (version 1; version 0 names the node `broker.id`)."""

    cluster_id: str | None
    node_id: int
    directory_id: str | None = None

    @property
    def values(self) -> dict[str, str]:
        """The keys and values of the file."""
        values = {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": self.directory_id,
        }
        return {key: value for key, value in values.items() if value is not None}


def read_meta_properties(file_system: FileSystem, log_directory: str) -> MetaProperties | None:
    """Return the owner that the directory names; None if it has never been used."""
    path = os.path.join(log_directory, META_PROPERTIES)
    data = read_file(file_system, path)
    if data is None:
        return None
    values = _parse_properties(_text(path, data))
    version = values.get("version", "0")
    node_key = {"0": "broker.id", "1": "node.id"}.get(version)
    if node_key is None:
        raise CheckpointError(f"{path}: version {version} is not one we know (0 or 1)")
    if node_key not in values:
        raise CheckpointError(f"{path}: no {node_key}")
    directory_id = values.get("directory.id")
    if directory_id is not None:
        _check_directory_id(path, directory_id)
    return MetaProperties(
        cluster_id=values.get("cluster.id"),
        node_id=_integer(path, values[node_key], values[node_key], most=_INT32_MOST),
        directory_id=directory_id,
    )


def _check_directory_id(path: str, directory_id: str) -> None:
    try:
        is_reserved = is_reserved_directory(directory_id)
    except ValueError as error:
        raise CheckpointError(f"{path}: directory.id: {error}") from error
    if is_reserved:
        raise CheckpointError(f"{path}: the directory.id {directory_id} is reserved")


def write_meta_properties(
    file_system: FileSystem, log_directory: str, properties: MetaProperties
) -> None:
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties.values.items())
    replace_file(file_system, os.path.join(log_directory, META_PROPERTIES), text.encode())


def _escaped(value: str) -> str:
    """Return a value as Java properties hold it."""
    return re.sub(r"([\\:=#!])", r"\\\1", value)


def _parse_properties(text: str) -> dict[str, str]:
    """Read Java properties, as far as `meta.properties` needs them."""
    values = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            values[key.strip()] = re.sub(r"\\(.)", r"\1", value.strip())
    return values


@frozen
class CleanShutdown:
    """The marker of a clean shutdown, with the broker epoch for the next registration; None if it is not
    legible.
    """

    broker_epoch: int | None
    # When it was written, after everything else.
    written_ms: int | None = attrs.field(default=None, eq=False)


def read_clean_shutdown(file_system: FileSystem, log_directory: str) -> CleanShutdown | None:
    """Return the marker of a clean shutdown, None without one. Any file, even an empty one, is a
    marker.
    """
    path = os.path.join(log_directory, CLEAN_SHUTDOWN)
    data = read_file(file_system, path)
    if data is None:
        return None
    return CleanShutdown(_broker_epoch(data), file_system.modified_ms(path))


def _broker_epoch(data: bytes) -> int | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    match content:
        case {"version": int(version), "brokerEpoch": int(broker_epoch)} if (
            # True and False are integers to Python.
            type(broker_epoch) is int and version == _VERSION and -1 <= broker_epoch <= _INT64_MOST
        ):
            return broker_epoch
        case _:
            return None


def write_clean_shutdown(file_system: FileSystem, log_directory: str, broker_epoch: int) -> None:
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(file_system, os.path.join(log_directory, CLEAN_SHUTDOWN), text.encode())


def remove_clean_shutdown(file_system: FileSystem, log_directory: str) -> None:
    """Remove the marker, because the directory is in use and its next end may be a crash."""
    file_system.remove(os.path.join(log_directory, CLEAN_SHUTDOWN))
    file_system.sync_directory(log_directory)
