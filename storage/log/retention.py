"""Which of a log's oldest segments may go, and why. Nothing here deletes anything.

    log start    the log start offset has moved past all of it         (DeleteRecords, or the leader said so)
    size         the log stays at retention.bytes or above without it
    time         its youngest record is older than retention.ms

    [ 0 ─ 99 ][ 100 ─ 199 ][ 200 ─ 299 ][ 300 ─ 399 ]      high watermark 310
      start       size          time         stays: it ends above the high watermark

Rule 1: what goes is a first part of the log. The first segment that has to stay ends the walk
of that cause, and the next cause goes on from there.

Rule 2: a segment whose end is above the high watermark stays, whatever its age: so the log
start never passes the high watermark.

Rule 3: an empty last segment stays. If a last one that holds records has to go, a new one is
begun first: a log always has a segment, and its end does not move.

Rule 4: a log that is compacted and nothing else loses only what lies below its start.

(UnifiedLog.deleteOldSegments, LocalLog.deletableSegments in Kafka.)
"""

import enum
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from storage.attributes import frozen
from storage.config import LogConfig
from storage.types import Offset


class DeletionCause(enum.Enum):
    LOG_START = "log start"
    SIZE = "size"
    TIME = "time"
    TRUNCATION = "truncation"


@frozen(kw_only=True)
class DeletedSegments:
    """Neighbours that have left a log for one cause: [first_offset, end_offset) of it."""

    cause: DeletionCause
    count: int
    size: int
    first_offset: Offset
    end_offset: Offset


class RetainedSegment(Protocol):
    """The part of a segment that retention looks at."""

    @property
    def base_offset(self) -> Offset: ...

    @property
    def size(self) -> int: ...

    def newest_ms(self) -> int:
        """Return the time of its youngest record, or of its last write where no record has one.

        This may read the file: it is asked only of a segment that no other cause takes.
        """


@frozen
class RetentionPlan:
    """The number of oldest segments that go for each cause, in the order of the causes."""

    counts: dict[DeletionCause, int]
    # All of them go: a new one is begun first.
    rolls_first: bool

    @property
    def count(self) -> int:
        return sum(self.counts.values())


def plan(
    segments: Sequence[RetainedSegment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    log_end_offset: Offset,
    wall_ms: int | None,
) -> RetentionPlan:
    """Return which of `segments`, oldest first, go; without `wall_ms`, none goes for its age."""
    ends = [after.base_offset for _, after in pairwise(segments)]
    limit = _first_above(high_watermark, [*ends, log_end_offset])
    if limit == len(segments) and segments[-1].size == 0:
        limit -= 1
    below_start = _first_above(log_start_offset, ends)
    index = min(limit, below_start)
    counts = {DeletionCause.LOG_START: index}
    if config.is_deleted:
        for cause, may_go in _causes(segments, config, index, wall_ms):
            start = index
            while index < limit and may_go(segments[index]):
                index += 1
            counts[cause] = index - start
    return RetentionPlan(counts, rolls_first=index == len(segments))


def _causes(
    segments: Sequence[RetainedSegment], config: LogConfig, first: int, wall_ms: int | None
) -> list[tuple[DeletionCause, Callable[[RetainedSegment], bool]]]:
    causes: list[tuple[DeletionCause, Callable[[RetainedSegment], bool]]] = []
    if config.retention_bytes >= 0:
        excess = sum(each.size for each in segments[first:]) - config.retention_bytes

        def too_much(segment: RetainedSegment) -> bool:
            nonlocal excess
            if excess < segment.size:
                return False
            excess -= segment.size
            return True

        causes.append((DeletionCause.SIZE, too_much))
    if config.retention_ms >= 0 and wall_ms is not None:
        # A record from the future keeps its segment until then.
        oldest = wall_ms - config.retention_ms
        causes.append((DeletionCause.TIME, lambda segment: segment.newest_ms() < oldest))
    return causes


def _first_above(offset: Offset, ends: Sequence[Offset]) -> int:
    """Return how many of `ends`, in order, are at or below `offset`."""
    return next((index for index, end in enumerate(ends) if end > offset), len(ends))
