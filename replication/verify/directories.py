"""Are two or more copies of a log the same; if not, where do they part, and how.

    A  [e0: 0-4][e0: 5-9][e1: 10-12]
    B           [e0: 5-9][e2: 10-11]         its log start is 5

    compared from 5, the highest log start; they part at offset 10, at epochs 1 and 2

Rule 1: what is compared is the stream of batches, byte for byte as on disk, leader epochs
included. Where one segment ends and the next begins is each copy's own affair.

Rule 2: each byte is read once, in chunks, and every batch's CRC-32C is checked on the way:
where copies differ, that says whose is damaged.

Rule 3: only logs at rest are compared, as files. What a copy holds beyond the high
watermark counts: two copies that were stopped in the middle may differ there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import attrs
import crc32c

from replication.errors import UnderstudyError
from replication.verify.lock_step import LockStep
from replication.verify.results import (
    Alone,
    Compared,
    Comparison,
    CopyAt,
    Difference,
    Different,
    PartitionResult,
    Same,
)
from storage.batch_stream import BatchStream, log_start_offsets, partitions_in
from storage.checkpoint import read_partition_metadata, uuid_text
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.record_batch import CRC_COVERS_FROM, HEADER_SIZE, BatchHeader
from storage.types import Offset, TopicPartition

# The controller's own log is no replica of anything.
IGNORED_TOPICS: Final = frozenset({"__understudy_metadata", "__cluster_metadata"})


class CannotCompareError(UnderstudyError):
    """A directory that is not there, or nothing in any of them to compare."""


def verify_directories(
    file_system: FileSystem,
    directories: Sequence[str],
    *,
    copies: int | None = None,
    on_partition: Callable[[PartitionResult], None] = lambda _: None,
) -> Comparison:
    """Compare the copies that `directories` hold of each partition found in any of them.

    `copies`: how many of each there must be, where the caller knows; fewer is a difference.
    `on_partition` hears each result as it is known, for progress.
    """
    found: dict[TopicPartition, list[_Copy]] = {}
    for directory in directories:
        if not file_system.is_directory(directory):
            raise CannotCompareError(f"{directory} is not a directory")
        starts = log_start_offsets(file_system, directory)
        for partition, path in partitions_in(file_system, directory).items():
            if partition.topic not in IGNORED_TOPICS:
                copy = _Copy(directory, path, starts.get(partition, 0))
                found.setdefault(partition, []).append(copy)
    if not found:
        raise CannotCompareError(f"no partition in {', '.join(directories) or 'no directory'}")
    results = []
    for partition in sorted(found):
        results.append(_compare(file_system, partition, found[partition], copies))
        on_partition(results[-1])
    return Comparison(tuple(directories), tuple(results))


@attrs.frozen
class _Copy:
    directory: str
    path: str
    checkpointed_start: Offset


def _compare(
    file_system: FileSystem,
    partition: TopicPartition,
    copies: Sequence[_Copy],
    expected_copies: int | None,
) -> PartitionResult:
    directories = tuple(copy.directory for copy in copies)
    topic_ids = [topic_id_in(file_system, copy.path) for copy in copies]

    def different(
        difference: Difference, offset: Offset, views: Sequence[CopyAt], compared: Compared
    ) -> Different:
        return Different(
            partition=partition,
            directories=directories,
            difference=difference,
            offset=offset,
            copies=tuple(views),
            compared=compared,
        )

    with ExitStack() as stack:
        streams = [BatchStream(file_system, copy.path) for copy in copies]
        for stream in streams:
            stack.callback(stream.close)
        start = max(
            max(copy.checkpointed_start, stream.next_offset)
            for copy, stream in zip(copies, streams, strict=True)
        )
        walk = LockStep(directories, streams, start, partial(compare_bytes, streams))
        if expected_copies is not None and len(copies) < expected_copies:
            views = [CopyAt(directory=directory) for directory in directories]
            return different(Difference.MISSING_COPY, start, views, walk.compared)
        if len(copies) == 1:
            return Alone(partition=partition, directories=directories)
        if len({topic_id for topic_id in topic_ids if topic_id is not None}) > 1:
            views = [
                CopyAt(directory=directory, topic_id=topic_id)
                for directory, topic_id in zip(directories, topic_ids, strict=True)
            ]
            return different(Difference.TOPIC_ID, start, views, walk.compared)
        parting = walk.run()
        if parting is None:
            return Same(partition=partition, directories=directories, compared=walk.compared)
        return different(parting.difference, parting.offset, parting.copies, walk.compared)


def topic_id_in(file_system: FileSystem, path: str) -> str | None:
    """As text; None where the partition's directory has none."""
    try:
        topic_id = read_partition_metadata(file_system, path)
    except CheckpointError:
        return "unreadable"
    return None if topic_id is None else uuid_text(topic_id)


def compare_bytes(
    streams: Sequence[BatchStream], headers: Sequence[BatchHeader]
) -> tuple[bool, list[bool]]:
    """Take one batch from each: whether all bytes are equal, and whose CRC-32C matches."""
    equal, crcs = _take_batch(streams, headers)
    return equal, [crc == header.crc for crc, header in zip(crcs, headers, strict=True)]


def _take_batch(
    streams: Sequence[BatchStream], headers: Sequence[BatchHeader]
) -> tuple[bool, list[int]]:
    firsts = [stream.take(HEADER_SIZE) for stream in streams]
    crcs = [crc32c.crc32c(first[CRC_COVERS_FROM:]) for first in firsts]
    if any(first != firsts[0] for first in firsts):
        for i, header in enumerate(headers):
            for pieces in _pieces(streams[i : i + 1], header.size - HEADER_SIZE):
                crcs[i] = crc32c.crc32c(pieces[0], crcs[i])
        return False, crcs
    equal = True
    for pieces in _pieces(streams, headers[0].size - HEADER_SIZE):
        equal = equal and all(piece == pieces[0] for piece in pieces)
        crcs = [crc32c.crc32c(p, crc) for p, crc in zip(pieces, crcs, strict=True)]
    return equal, crcs


def _pieces(streams: Sequence[BatchStream], size: int) -> Iterator[list[bytes]]:
    """The next `size` bytes of every stream, in pieces that all of them have at hand."""
    while size:
        count = min(size, *(stream.available for stream in streams))
        yield [stream.take(count) for stream in streams]
        size -= count
