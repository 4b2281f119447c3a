"""Batch headers of logs that grow, as a stream: each offset once, from every replica.

    b1  [ . . . . . . . . ]      end 900
    b2  [ . . . . . . ]          end 700        a micro-batch has [500, 700) of both
    b3  [ . . . . . . . ]        end 800
             └── 500, the position

    offset  {"orders": {"0": [500, 700]}}       from where and up to where

Rule 1: a micro-batch has the offsets that every replica holds. A replica that lacks for
`settleMs` what another one holds is not waited for: then it lacks it. With Trigger.AvailableNow,
the query has all that is there when it starts.

Rule 2: if a replica ends earlier than before, it has been truncated, and the partition is read again
from there.

Rule 3: planned offsets are read as planned, by whichever process and however often. A batch that is
cut off at the end of a log is still being written.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from pipeline.audit.batches import WhatToRead
from pipeline.audit.headers import HeaderDamage, Scanned, SegmentHeaders, headers_of, scan, to_arrow
from pipeline.audit.replicas import ReplicaDirectory, find_replicas, segments_of, tasks
from pipeline.source.replica import Replica, SegmentPlace
from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import BatchHeader
from storage.filesystem import FileSystem, OsFileSystem
from storage.types import Offset, TopicPartition

_LEAST_POLL_SECONDS: Final = 0.5

Spans = dict[TopicPartition, tuple[Offset, Offset]]


@attrs.frozen
class HeadersOfRange(InputPartition):
    """The segments that one task reads, each with the offsets [start, end) that are wanted."""

    parts: tuple[tuple[SegmentHeaders, Offset], ...]


@attrs.define(eq=False)
class GrowingLogs:
    """What the logs of all replicas held at the last looks; it stays on the driver."""

    what: WhatToRead
    settle_ms: int
    files: FileSystem = attrs.field(factory=OsFileSystem)
    target: dict[TopicPartition, Offset] | None = None
    """The ends of a query that runs once."""
    _looked_at: float = attrs.field(init=False, default=-math.inf)
    _ends: dict[tuple[TopicPartition, str], Offset] = attrs.field(init=False, factory=dict)
    _cuts: dict[TopicPartition, Offset] = attrs.field(init=False, factory=dict)
    _noted: dict[TopicPartition, tuple[float, Offset]] = attrs.field(init=False, factory=dict)
    _settled: dict[TopicPartition, Offset] = attrs.field(init=False, factory=dict)

    def replicas(self) -> dict[TopicPartition, list[ReplicaDirectory]]:
        """Return the replicas of each partition that has several."""
        found: dict[TopicPartition, list[ReplicaDirectory]] = {}
        for replica in find_replicas(self.files, self.what.directories, self.what.only):
            found.setdefault(replica.topic_partition, []).append(replica)
        return {tp: replicas for tp, replicas in found.items() if len(replicas) > 1}

    def look(self) -> dict[TopicPartition, tuple[Offset, list[Offset]]]:
        """Return the highest log start of each partition, and the end of each of its replicas."""
        time.sleep(max(0.0, self._looked_at + _LEAST_POLL_SECONDS - time.monotonic()))  # noqa: TID251 - Spark waits in real time
        self._looked_at = time.monotonic()  # noqa: TID251 - as above
        found = {}
        for tp, replicas in self.replicas().items():
            ends = [self._end(replica) for replica in replicas]
            self._note(tp, replicas, ends)
            found[tp] = max(replica.start_offset for replica in replicas), ends
        return found

    def _end(self, replica: ReplicaDirectory) -> Offset:
        log = Replica(
            self.files,
            replica.replica,
            replica.topic_partition,
            replica.directory or "",
            checkpointed_start=replica.log_start_offset,
            high_watermark=0,
            skip_corrupt=True,
        )
        return log.end

    def _note(
        self, tp: TopicPartition, replicas: Sequence[ReplicaDirectory], ends: Sequence[Offset]
    ) -> None:
        """Note what was truncated, and what was there long enough."""
        for replica, end in zip(replicas, ends, strict=True):
            if end < self._ends.get((tp, replica.replica), end):
                self._cuts[tp] = min(end, self._cuts.get(tp, end))
            self._ends[tp, replica.replica] = end
        noted_at, noted = self._noted.setdefault(tp, (self._looked_at, max(ends)))
        if (self._looked_at - noted_at) * 1000 >= self.settle_ms:
            self._settled[tp] = noted
            self._noted[tp] = self._looked_at, max(ends)

    def next(self, passed: Spans) -> Spans:
        """Return the spans of the next micro-batch; those without news are as they were."""
        spans = dict(passed)
        for tp, (start, ends) in self.look().items():
            begin = passed[tp][1] if tp in passed else start
            begin = min(begin, self._cuts.get(tp, begin))
            if self.target is None:
                wanted = max(min(ends), min(self._settled.get(tp, 0), max(ends)))
            else:
                wanted = min(max(ends), self.target.get(tp, begin))
            end = max(begin, wanted)
            if tp in self._cuts or end > begin:
                spans[tp] = begin, end
                self._cuts.pop(tp, None)
        return spans

    def tasks(self, passed: Spans, spans: Spans) -> list[InputPartition]:
        parts = []
        for tp, replicas in self.replicas().items():
            if tp not in spans or spans[tp] == passed.get(tp):
                continue
            start, end = spans[tp]
            for replica in replicas:
                for segment in segments_of(self.files, replica, start):
                    is_before = segment.next_base is not None and segment.next_base <= start
                    if not is_before and segment.base_offset < end:
                        parts.append((segment, end))
        ends = dict(parts)
        groups = tasks(segment for segment, _ in parts)
        return [
            HeadersOfRange(tuple((segment, ends[segment]) for segment in group)) for group in groups
        ]


@attrs.define(eq=False)
class GrowingBatches(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of `understudy-batches`."""

    what: WhatToRead
    settle_ms: int
    _logs: GrowingLogs | None = attrs.field(init=False, default=None)

    @property
    def logs(self) -> GrowingLogs:
        """The logs; made on the driver on first use, and not sent with the reader."""
        if self._logs is None:
            self._logs = GrowingLogs(self.what, self.settle_ms)
        return self._logs

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        return to_json(self.logs.next(from_json(start)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.logs.target = {tp: max(ends) for tp, (_, ends) in self.logs.look().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.logs.tasks(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, HeadersOfRange):
            files = OsFileSystem()
            found = [
                (segment, scan_range(files, segment, end, check_crcs=self.what.check_crcs))
                for segment, end in partition.parts
            ]
            yield to_arrow(found)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark keeps the checkpoint."""


def scan_range(
    files: FileSystem, segment: SegmentHeaders, end: Offset, *, check_crcs: bool
) -> Scanned:
    """Read the headers of a segment's batches in [segment.start_offset, end)."""
    start = segment.start_offset
    is_whole = segment.next_base is not None and segment.next_base <= end
    if check_crcs or (is_whole and segment.base_offset >= start):
        found = scan(files, segment, check_crcs=check_crcs)
    else:
        found = _scan_from_index(files, segment, end)
    bases = found.headers["base_offset"].astype(np.int64)
    wanted = (found.last_offsets >= start) & (bases < end)
    damage = found.damage
    if damage is not None and not (start <= damage.offset < end):
        damage = None
    sound = None if found.is_sound is None else found.is_sound[wanted]
    return Scanned(found.headers[wanted], found.positions[wanted], sound, damage)


def _scan_from_index(files: FileSystem, segment: SegmentHeaders, end: Offset) -> Scanned:
    """Read headers one by one, from the entry of the offset index that is nearest below the start."""
    place = SegmentPlace(files, segment.directory, segment.base_offset, segment.size)
    headers: list[tuple[int, BatchHeader]] = []
    damage = None
    behind = segment.base_offset
    try:
        for position, header in place.headers(place.position_of(segment.start_offset)):
            if header.base_offset >= end:
                break
            headers.append((position, header))
            behind = header.next_offset
    except DamagedLogError as error:
        damage = HeaderDamage(error.position, behind, error.reason)
    return headers_of(headers, damage)


def from_json(offsets: Mapping[str, Any]) -> Spans:
    """Return the spans in an offset of Spark's."""
    return {
        TopicPartition(topic, int(number)): (span[0], span[1])
        for topic, partitions in offsets.items()
        for number, span in partitions.items()
    }


def to_json(spans: Spans) -> dict[str, Any]:
    """Return the spans as an offset of Spark's, always in the same order."""
    found: dict[str, Any] = {}
    for tp, span in sorted(spans.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = list(span)
    return found
