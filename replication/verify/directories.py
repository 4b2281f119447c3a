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
from typing import Final

import attrs
import crc32c

from replication.errors import UnderstudyError
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
from storage.batch_stream import BatchStream, DamagedLogError, log_start_offsets, partitions_in
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
    topic_ids = [_topic_id(file_system, copy.path) for copy in copies]

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
        walk = _LockStep(directories, streams, start)
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


def _topic_id(file_system: FileSystem, path: str) -> str | None:
    try:
        topic_id = read_partition_metadata(file_system, path)
    except CheckpointError:
        return "unreadable"
    return None if topic_id is None else uuid_text(topic_id)


@attrs.frozen
class _Parting:
    difference: Difference
    offset: Offset
    copies: list[CopyAt]


@attrs.define(eq=False)
class _LockStep:
    """Walks the streams batch by batch, for as long as they say the same."""

    directories: Sequence[str]
    streams: Sequence[BatchStream]
    start_offset: Offset
    compared: Compared = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.compared = Compared(start_offset=self.start_offset, end_offset=self.start_offset)

    def run(self) -> _Parting | None:
        """Where they part; None where they never do."""
        try:
            for stream in self.streams:
                stream.seek(self.start_offset)
        except DamagedLogError:
            return self._damaged()
        while True:
            try:
                heads = [stream.head() for stream in self.streams]
            except DamagedLogError:
                return self._damaged()
            if parting := self._part_by_offset(heads):
                return parting
            headers = [header for header in heads if header is not None]
            if not headers:
                return None
            if parting := self._part_by_bytes(headers):
                return parting

    def _part_by_offset(self, heads: Sequence[BatchHeader | None]) -> _Parting | None:
        held = [header.base_offset for header in heads if header is not None]
        if len(held) == len(heads) and len(set(held)) == 1:
            return None
        if not held:
            # Nothing to compare from here on; but a copy may end before the others begin.
            ends = [stream.next_offset for stream in self.streams]
            if min(ends) >= self.start_offset:
                return None
            views = [self._view(i, None) for i in range(len(heads))]
            return _Parting(Difference.MISSING_TAIL, min(ends), views)
        difference = Difference.GAP if len(held) == len(heads) else Difference.MISSING_TAIL
        views = [self._view(i, header) for i, header in enumerate(heads)]
        return _Parting(difference, max(min(held), self.start_offset), views)

    def _part_by_bytes(self, headers: Sequence[BatchHeader]) -> _Parting | None:
        views = [self._view(i, header) for i, header in enumerate(headers)]
        equal, crcs = _read_batch(self.streams, headers)
        sound = [crc == header.crc for crc, header in zip(crcs, headers, strict=True)]
        if equal and all(sound):
            self._advance(headers)
            return None
        offset = max(headers[0].base_offset, self.start_offset)
        if not all(sound):
            views = [
                view if is_sound else attrs.evolve(view, damage="its CRC-32C does not match")
                for view, is_sound in zip(views, sound, strict=True)
            ]
            return _Parting(Difference.CORRUPT, offset, views)
        epochs = {header.leader_epoch for header in headers}
        return _Parting(Difference.EPOCH if len(epochs) > 1 else Difference.BYTES, offset, views)

    def _advance(self, headers: Sequence[BatchHeader]) -> None:
        for stream, header in zip(self.streams, headers, strict=True):
            stream.passed(header)
        header = headers[0]
        self.compared = Compared(
            start_offset=self.start_offset,
            end_offset=header.next_offset,
            batches=self.compared.batches + 1,
            records=self.compared.records + header.record_count,
            size=self.compared.size + header.size,
            last_epoch=header.leader_epoch,
        )

    def _damaged(self) -> _Parting:
        views, offsets = [], []
        for i, stream in enumerate(self.streams):
            try:
                views.append(self._view(i, stream.head()))
            except DamagedLogError as damage:
                views.append(attrs.evolve(self._view(i, None), damage=damage.reason))
                offsets.append(stream.next_offset)
        return _Parting(Difference.CORRUPT, max(min(offsets), self.compared.end_offset), views)

    def _view(self, index: int, header: BatchHeader | None) -> CopyAt:
        stream = self.streams[index]
        return CopyAt(
            directory=self.directories[index],
            leader_epoch=None if header is None else header.leader_epoch,
            base_offset=None if header is None else header.base_offset,
            last_offset=None if header is None else header.last_offset,
            file=stream.file_name,
            position=stream.position,
        )


def _read_batch(
    streams: Sequence[BatchStream], headers: Sequence[BatchHeader]
) -> tuple[bool, list[int]]:
    """Take one batch from each: whether all bytes are equal, and each one's own CRC-32C."""
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
