"""Reads what header rows cannot say from the files, where those can be reached.

    one batch            does its CRC-32C match?                  where two batches differ
    all of a partition   which record is the last of each key?    where a cleaner has been at work

Rule: the second is `understudy verify` itself, over the replicas of one partition.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import crc32c

from pipeline.audit.header_stream import ReplicaHeaders
from replication.verify import comparing
from replication.verify.directories import closing
from replication.verify.results import PartitionResult
from storage.batch.batch_stream import BatchStream
from storage.batch.record_batch import CRC_COVERS_FROM
from storage.filesystem import FileSystem
from storage.types import TopicPartition

# Says whether the batch of `size` bytes at `position` of a file matches its CRC-32C.
CheckBatch: TypeAlias = Callable[[str, int, int], bool | None]
# Says what `verify` finds out about these replicas, by its rules.
CompareRecords: TypeAlias = Callable[
    [TopicPartition, Sequence[ReplicaHeaders], comparing.Rules], PartitionResult | None
]


def check_on(files: FileSystem) -> CheckBatch:
    """Return a check that reads a batch again, and answers None if its file cannot be read here."""

    def check(path: str, position: int, size: int) -> bool | None:
        try:
            file = files.open_for_reading(path)
        except OSError:
            return None
        try:
            data = file.read(position, size)
        finally:
            file.close()
        if len(data) < size:
            return None  # cut off meanwhile, as retention and truncation do to a live log
        stored = int.from_bytes(data[CRC_COVERS_FROM - 4 : CRC_COVERS_FROM], "big")
        return int(crc32c.crc32c(memoryview(data)[CRC_COVERS_FROM:])) == stored

    return check


def compare_on(files: FileSystem) -> CompareRecords:
    """Return a comparison that reads whole replicas, and answers None if one cannot be read here."""

    def compare(
        partition: TopicPartition, copies: Sequence[ReplicaHeaders], rules: comparing.Rules
    ) -> PartitionResult | None:
        directories = [copy.directory for copy in copies if copy.directory is not None]
        if len(directories) < len(copies) or not all(map(files.is_directory, directories)):
            return None
        streams = [BatchStream(files, directory) for directory in directories]
        held = [
            comparing.PartitionCopy(
                name=copy.replica,
                stream=stream,
                start_offset=copy.start_offset,
                topic_id=copy.topic_id,
                past=copy.past,
            )
            for copy, stream in zip(copies, streams, strict=True)
        ]
        with closing(held):
            walk = comparing.Comparing(partition, held, rules)
            try:
                return walk.run()
            finally:
                walk.close()

    return compare
