"""ListOffsets 0, whose answers are the boundaries of segments (UnifiedLog.legacyFetchOffsetsBefore).

    segments   [0 ── 99][100 ── 199][200 ── 250|
    written         9:00        10:00      now
    asked for 10:30, two of them:  200? no, 10:00 is the last not after it: [100, 0]

The possible answers are the base offsets of segments and the log's end. A base offset has the time
at which its segment's file was written, the end has the present time. The offsets are in descending
order. A consumer gets the high watermark in place of the offsets above it.
"""

from functools import partial

from replication.steps import Steps, each_of
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX, Segment
from storage.types import Offset


def legacy_offsets(log: Log, *, timestamp: int, count: int, wall_ms: int) -> Steps[list[Offset]]:
    """Return up to `count` offsets from `timestamp` backwards, the newest first."""
    segments, end, start = list(log.segments), log.log_end_offset, log.log_start_offset
    written = yield from each_of(partial(_written_ms, log), segments)
    known = [
        (max(segment.base_offset, start), written_ms)
        for segment, written_ms in zip(segments, written, strict=True)
        if written_ms is not None
    ]
    if segments[-1].size > 0:
        known.append((end, wall_ms))
    if timestamp == EARLIEST:
        found = known[:1]
    elif timestamp == LATEST:
        found = known
    else:
        found = [each for each in known if each[1] <= timestamp]
    last = max(0, len(found) - max(0, count))
    return sorted((offset for offset, _ in found[last:]), reverse=True)


def _written_ms(log: Log, segment: Segment) -> int | None:
    """Return when a segment was written; None where retention has deleted it meanwhile."""
    try:
        return log.local.file_system.modified_ms(segment.path(LOG_SUFFIX))
    except FileNotFoundError:
        return None


def as_a_consumer_sees(offsets: list[Offset], high_watermark: Offset) -> list[Offset]:
    visible = [offset for offset in offsets if offset <= high_watermark]
    return visible if len(visible) == len(offsets) else [high_watermark, *visible]
