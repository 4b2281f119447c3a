"""The comparison of log directories at rest.

    A  [e0: 0-4][e0: 5-9][e1: 10-12]
    B           [e0: 5-9][e2: 10-11]         its log start is 5

    compared from 5, the highest log start; they diverge at offset 10, at epochs 1 and 2

Rule 1: the stream of batches is compared, byte for byte as on disk, leader epochs included.
Copies may differ in where segments end, and in what their cleaners have dropped (`compacted.py`).

Rule 2: each byte is read once, in chunks, and every batch's CRC-32C is checked on the way: if
copies differ, that says which one is damaged.

Rule 3: only logs at rest are compared, as files. Records beyond the high watermark count: two
copies that were stopped in the middle may differ there.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from replication.metadata.rules.records import METADATA_TOPIC
from replication.verify.comparing import Comparing, PartitionCopy, Rules
from replication.verify.lock_step import Past
from replication.verify.results import CannotCompareError, Comparison, PartitionResult
from storage.attributes import frozen
from storage.batch.batch_stream import (
    BatchStream,
    DamagedLogError,
    log_start_offsets,
    partitions_in,
)
from storage.checkpoint import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LeaderEpochCheckpoint,
    OffsetCheckpoint,
    read_partition_metadata,
    uuid_text,
)
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.manager.log_directory import FORMER_METADATA_TOPIC
from storage.types import Offset, TopicPartition

# The controller's own log is no replica of anything.
IGNORED_TOPICS: Final = frozenset({FORMER_METADATA_TOPIC, METADATA_TOPIC})

_SNAPSHOT: Final = re.compile(r"([0-9]{20})\.snapshot")


def verify_directories(
    file_system: FileSystem,
    directories: Sequence[str],
    *,
    copies: int | None = None,
    exact: bool = False,
    compacted: bool = False,
    on_partition: Callable[[PartitionResult], None] = lambda _: None,
) -> Comparison:
    """Compare the copies that `directories` hold of each partition found in any of them.

    `copies`: the number of copies that there must be, if known; fewer is a difference.
    `exact`: compare byte for byte, even if a cleaner has been at work.
    `compacted`: compare by keys, even without a sign of a cleaner.
    `on_partition` is called with each result, for progress.
    """
    sources = [DirectoryAtRest.at(file_system, directory) for directory in directories]
    rules = Rules(copies=copies, exact=exact, compacted=compacted)
    found = sorted({partition for source in sources for partition in source.partitions})
    if not found:
        raise CannotCompareError(f"no partition in {', '.join(directories) or 'no directory'}")
    results = []
    for partition in found:
        with closing([copy for source in sources for copy in source.copies_of(partition)]) as held:
            comparing = Comparing(partition, held, rules)
            try:
                results.append(comparing.run())
            finally:
                comparing.close()
        on_partition(results[-1])
    return Comparison(tuple(directories), tuple(results))


@contextmanager
def closing(copies: Sequence[PartitionCopy]) -> Iterator[Sequence[PartitionCopy]]:
    """Close the files of the copies at the end of the block."""
    try:
        yield copies
    finally:
        for copy in copies:
            copy.stream.close()


@frozen(kw_only=True)
class DirectoryAtRest:
    """The replicas of a log directory at rest."""

    name: str
    partitions: Mapping[TopicPartition, str]
    _file_system: FileSystem
    _starts: Mapping[TopicPartition, Offset]
    _pasts: "Pasts"

    @classmethod
    def at(cls, file_system: FileSystem, directory: str) -> "DirectoryAtRest":
        """Return the replicas in `directory`; CannotCompareError if it is no directory."""
        if not file_system.is_directory(directory):
            raise CannotCompareError(f"{directory} is not a directory")
        return cls(
            name=directory,
            partitions={
                partition: path
                for partition, path in partitions_in(file_system, directory).items()
                if partition.topic not in IGNORED_TOPICS
            },
            file_system=file_system,
            starts=log_start_offsets(file_system, directory),
            pasts=Pasts.at(file_system, directory),
        )

    def copies_of(self, partition: TopicPartition) -> list[PartitionCopy]:
        """Return the copy of a partition in this directory, or none."""
        path = self.partitions.get(partition)
        if path is None:
            return []
        stream = BatchStream(self._file_system, path)
        return [
            PartitionCopy(
                name=self.name,
                stream=stream,
                start_offset=max(self._starts.get(partition, 0), stream.next_offset),
                topic_id=topic_id_in(self._file_system, path),
                past=self._pasts.of(partition, path),
            )
        ]

    def offset_for_time(self, partition: TopicPartition, timestamp: int) -> Offset | None:
        """Return the base offset of the first batch with a record that is not older."""
        path = self.partitions.get(partition)
        if path is None:
            return None
        with contextlib.closing(BatchStream(self._file_system, path)) as stream:
            try:
                while (header := stream.head()) is not None:
                    if header.max_timestamp >= timestamp:
                        return header.base_offset
                    stream.skip(header.size)
                    stream.passed(header)
            except DamagedLogError:
                pass  # the comparison reports it
            return stream.next_offset


@frozen(kw_only=True)
class Pasts:
    """The facts known about the replicas of a log directory beside their batches."""

    _file_system: FileSystem
    _cleaned: Mapping[TopicPartition, Offset]
    _reached: Sequence[Mapping[TopicPartition, Offset]]

    @classmethod
    def at(cls, file_system: FileSystem, directory: str) -> "Pasts":
        return cls(
            file_system=file_system,
            cleaned=checkpointed(file_system, directory, CLEANER_CHECKPOINT),
            reached=[
                checkpointed(file_system, directory, name)
                for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)
            ],
        )

    def of(self, partition: TopicPartition, path: str) -> Past:
        """Return the facts about the replica in `path`."""
        reached = [each.get(partition, 0) for each in self._reached]
        return Past(
            cleaned_before=self._cleaned.get(partition, 0),
            reached=max(*reached, reached_in(self._file_system, path)),
        )


def topic_id_in(file_system: FileSystem, path: str) -> str | None:
    """Return the topic id as text; None if the partition's directory has none."""
    try:
        topic_id = read_partition_metadata(file_system, path)
    except CheckpointError:
        return "unreadable"
    return None if topic_id is None else uuid_text(topic_id)


def checkpointed(
    file_system: FileSystem, directory: str, name: str
) -> Mapping[TopicPartition, Offset]:
    """Read a checkpoint of the log directory; an unreadable one is empty."""
    try:
        return OffsetCheckpoint(file_system, f"{directory}/{name}").read()
    except CheckpointError:
        return {}


def reached_in(file_system: FileSystem, path: str) -> Offset:
    """Return an offset that the log in `path` has reached, even if it ends before it now.

    A leader epoch begins at the log's end, and a producer snapshot is taken there.
    """
    snapshots = map(_SNAPSHOT.fullmatch, file_system.list_directory(path))
    reached = [int(found[1]) for found in snapshots if found]
    try:
        checkpoint = LeaderEpochCheckpoint(file_system, f"{path}/{LEADER_EPOCH_CHECKPOINT}")
        reached += [entry.start_offset for entry in checkpoint.read()]
    except CheckpointError:
        pass
    return max(reached, default=0)
