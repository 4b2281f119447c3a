"""Logs in directories of one broker or several: which there are, and where they begin and end.

    path="b1,b2,b3"
      orders-0   b1 [e0: 0-4][e1: 5-9]     b2 [e0: 0-4][e1: 5-7]     b3 [e0: 0-4][e0: 5-6]
                 └── read from this one: the latest epoch, and of those the longest (KIP-279)

Rule 1: one of several replicas of a partition is read, the one that an election would choose:
the last leader epoch counts first, then the length. `replicas=all` reads each by itself.

Rule 2: `stopAtHighWatermark` ends at the highest high watermark that a replica has checkpointed
(`replication-offset-checkpoint`). A checkpoint lags by seconds and never overstates.

Rule 3: nothing is locked and nothing written; a broker may be running on it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from pipeline.audit.replicas import FILE_COST_BYTES, directory_names
from pipeline.source.errors import (
    DataLossError,
    NotALogDirectoryError,
    UnknownTopicError,
    lost_before,
    lost_behind,
)
from pipeline.source.files import FileSlice, slices_of
from pipeline.source.filters import Narrowing
from pipeline.source.options import ReadOptions
from pipeline.source.plan import TASK_BYTES, OffsetRange, group, split
from pipeline.source.replica import Replica
from replication.verify.directories import IGNORED_TOPICS
from storage.batch.batch_stream import log_start_offsets, partitions_in
from storage.checkpoint import HIGH_WATERMARK_CHECKPOINT, META_PROPERTIES, OffsetCheckpoint
from storage.errors import CheckpointError
from storage.filesystem import FileSystem, OsFileSystem
from storage.types import Offset, TopicPartition


@attrs.define(eq=False)
class LogDirectories:
    """The logs to be read in directories, by partition."""

    options: ReadOptions
    files: FileSystem = attrs.field(factory=OsFileSystem)

    expects_all: bool = True
    _replicas: dict[TopicPartition, list[Replica]] | None = attrs.field(init=False, default=None)

    @property
    def replicas(self) -> dict[TopicPartition, list[Replica]]:
        """The replicas that are read: one of each partition, or all with `replicas=all`."""
        if self._replicas is None:
            self._replicas = self._find()
        return self._replicas

    def _find(self) -> dict[TopicPartition, list[Replica]]:
        found: dict[TopicPartition, list[Replica]] = {}
        names = directory_names(self.options.paths)
        for name, path in zip(names, self.options.paths, strict=True):
            for replica in self._replicas_in(name, path):
                found.setdefault(replica.tp, []).append(replica)
        if self.expects_all:
            self._check_there(found)
        if self.options.all_replicas:
            return found
        for tp, replicas in found.items():
            known = max(each.high_watermark for each in replicas)
            # A single replica needs no rank, whose calculation reads files.
            chosen = replicas[0] if len(replicas) == 1 else max(replicas, key=lambda one: one.rank)
            chosen.high_watermark = known
            found[tp] = [chosen]
        return found

    def _replicas_in(self, name: str, path: str) -> Iterator[Replica]:
        partitions = self._partitions_in(path)
        starts = log_start_offsets(self.files, path)
        watermarks = self._high_watermarks(path)
        for tp, directory in sorted(partitions.items()):
            if tp.topic not in IGNORED_TOPICS and self.options.selection.selects(tp):
                yield Replica(
                    self.files,
                    name,
                    tp,
                    directory,
                    checkpointed_start=starts.get(tp, 0),
                    high_watermark=watermarks.get(tp, 0),
                    skip_corrupt=self.options.skip_corrupt,
                )

    def _partitions_in(self, path: str) -> Mapping[TopicPartition, str]:
        if not self.files.is_directory(path):
            raise NotALogDirectoryError(f"{path} is not a directory")
        partitions = partitions_in(self.files, path)
        marks = (META_PROPERTIES, HIGH_WATERMARK_CHECKPOINT)
        if not partitions and not any(self.files.exists(f"{path}/{mark}") for mark in marks):
            raise NotALogDirectoryError(
                f"{path} is not a log directory: it holds neither partitions nor {marks[0]}"
            )
        return partitions

    def _high_watermarks(self, path: str) -> Mapping[TopicPartition, Offset]:
        checkpoint = OffsetCheckpoint(self.files, f"{path}/{HIGH_WATERMARK_CHECKPOINT}")
        try:
            return checkpoint.read()
        except CheckpointError:
            return {}  # Kafka starts anew, too

    def _check_there(self, found: Iterable[TopicPartition]) -> None:
        selection, there = self.options.selection, set(found)
        if selection.partitions is not None and (missing := set(selection.partitions) - there):
            raise UnknownTopicError(
                f"no log of {', '.join(map(str, sorted(missing)))} in {', '.join(self.options.paths)}"
            )
        topics = {tp.topic for tp in there}
        for topic in selection.named_topics or ():
            if topic not in topics:
                raise UnknownTopicError(
                    f"no log of topic {topic} in {', '.join(self.options.paths)}"
                )

    # The methods that the planner calls, here as for brokers.

    def partitions(self) -> set[TopicPartition]:
        return set(self.replicas)

    def topic_ids(self) -> dict[str, str]:
        found = {tp.topic: replicas[0].topic_id for tp, replicas in self.replicas.items()}
        return {topic: known for topic, known in found.items() if known is not None}

    def earliest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {tp: min(each.start for each in self.replicas[tp]) for tp in wanted}

    def latest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {tp: max(map(self._end_of, self.replicas[tp])) for tp in wanted}

    def log_ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {tp: max(each.end for each in self.replicas[tp]) for tp in wanted}

    def at_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        found: dict[TopicPartition, Offset | None] = {}
        for tp, timestamp in wanted.items():
            each = [replica.first_at_or_after(timestamp) for replica in self.replicas[tp]]
            found[tp] = min((offset for offset in each if offset is not None), default=None)
        return found

    def _end_of(self, replica: Replica) -> Offset:
        end = replica.end
        if self.options.stop_at_high_watermark:
            end = max(replica.start, min(end, replica.high_watermark))
        return replica.last_stable_offset(end) if self.options.read_committed else end

    def tasks(
        self, ranges: Sequence[OffsetRange], narrowing: Narrowing
    ) -> list[tuple[FileSlice, ...]]:
        options = self.options
        for each in ranges:
            self._check_not_lost(each)
        parts = split(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        slices = [
            found
            for each in parts
            for replica in self.replicas[each.tp]
            for found in slices_of(replica, self._of(replica, each), narrowing, TASK_BYTES)
        ]
        if len(parts) > len(ranges) or options.min_partitions is not None:
            return [(each,) for each in slices]  # as many as were asked for
        return group([(each, each.size + FILE_COST_BYTES) for each in slices], TASK_BYTES)

    def _of(self, replica: Replica, wanted: OffsetRange) -> OffsetRange:
        """Return the range to read; with `replicas=all` it ends at the replica's own end."""
        if not self.options.all_replicas:
            return wanted
        return wanted._replace(end=min(wanted.end, self._end_of(replica)))

    def _check_not_lost(self, wanted: OffsetRange) -> None:
        if not self.options.fail_on_data_loss:
            return
        first = min(each.start for each in self.replicas[wanted.tp])
        if wanted.start < first:
            raise DataLossError(lost_before(wanted.tp, wanted.start, first))
        last = max(each.end for each in self.replicas[wanted.tp])
        if wanted.end > last:
            raise DataLossError(lost_behind(wanted.tp, wanted.end, last))

    def refresh(self) -> None:
        self._replicas = None
