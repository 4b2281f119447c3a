"""How dirty a log is, and up to where it may be cleaned. Nothing here reads a record.

       clean           dirty, cleanable            not yet
    [ 0 ── 99 ]│[ 100 ── 199 ][ 200 ── 299 ]│[ 300 ── 3│5 ][ 360 ── active
               │                            │          last stable offset
        first dirty offset         first uncleanable offset

Rule 1: the first dirty offset is where the last round ended. One outside the log says nothing
any more, and the whole log is dirty.

Rule 2: never cleaned are the active segment, what is at the last stable offset or above it,
and what is younger than `min.compaction.lag.ms`: the first segment that holds any of these,
and all that follow.

Rule 3: a log is due once more than `min.cleanable.dirty.ratio` of its bytes are dirty, or when
a dirty record is older than `max.compaction.lag.ms` (KIP-354). The dirtiest goes first.

(LogCleanerManager, LogToClean in Kafka.)
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage.attributes import frozen
from storage.config import LogConfig
from storage.types import Offset


class CleanableSegment(Protocol):
    @property
    def base_offset(self) -> Offset: ...

    @property
    def size(self) -> int: ...

    @property
    def first_batch_timestamp(self) -> int | None: ...

    def newest_ms(self) -> int:
        """Return the time of its youngest record."""


@frozen(kw_only=True)
class DirtyRange:
    """The part of a log that a round would clean. `resets`: the checkpoint lies outside of the log."""

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    cleanable_bytes: int
    # By how much a record has outstayed max.compaction.lag.ms.
    delay_ms: int = 0
    resets: bool = False

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def dirty_range(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    checkpoint: Offset | None,
    log_start_offset: Offset,
    log_end_offset: Offset,
    last_stable_offset: Offset,
    wall_ms: int,
) -> DirtyRange:
    """Return what a round would clean of `segments`, oldest first, the last of which is active."""
    first_dirty, resets = log_start_offset, False
    if checkpoint is not None:
        resets = not log_start_offset <= checkpoint <= log_end_offset
        first_dirty = first_dirty if resets else checkpoint
    closed = segments[:-1]
    dirty = _from(closed, first_dirty)
    limit = min(last_stable_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        youngest = wall_ms - config.min_compaction_lag_ms
        young = (each.base_offset for each in dirty if each.newest_ms() > youngest)
        limit = min(limit, next(young, limit))
    # Whole segments only: the one that `limit` lies in is the first that stays.
    first_uncleanable = _from(segments, limit)[0].base_offset
    return DirtyRange(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=first_uncleanable,
        clean_bytes=sum(each.size for each in segments if each.base_offset < first_dirty),
        cleanable_bytes=sum(
            each.size
            for each in _from(segments, first_dirty)
            if each.base_offset < first_uncleanable
        ),
        delay_ms=_delay_ms(dirty, config, wall_ms),
        resets=resets,
    )


def _from(segments: Sequence[CleanableSegment], offset: Offset) -> Sequence[CleanableSegment]:
    """Return the segment that holds `offset`, and all that follow."""
    for index in range(len(segments) - 1, -1, -1):
        if segments[index].base_offset <= offset:
            return segments[index:]
    return segments


def _delay_ms(dirty: Iterable[CleanableSegment], config: LogConfig, wall_ms: int) -> int:
    times = [each.first_batch_timestamp for each in dirty]
    oldest = min((each for each in times if each is not None and each > 0), default=wall_ms)
    return max(0, wall_ms - max(config.max_compaction_lag_ms, 0) - oldest)
