"""From a time to an offset, for ListOffsets.

    segments   [max 990][max 1400][max 1360]      t = 1200: the first that reaches it
    time index    ... (1150 -> 212) (1290 -> 240)  212: nothing up to there is younger than 1150
    offset index  ... (205 -> byte 81920)          walk headers from there; open the first batch
                                                   whose largest timestamp is 1200 or more

Only batches that can hold the answer are read. (LogSegment.findOffsetByTimestamp,
UnifiedLog.fetchOffsetByTimestamp in Kafka.)

A search that has an `Allowance` stops when that is spent:

    on the loop    the batch is read; LongLookUpError has it as a `LongSearch`
    in a thread    LongSearch.run searches the bytes that were read
    on the loop    the search is repeated with `after`: it answers, or goes on behind the batch

What was searched still counts if its segment is in the log and nothing before its end was cut
off; compaction only takes records away. Otherwise the search begins anew.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage.attributes import define
from storage.batch.allowance import STEPS_PER_BATCH, STEPS_PER_OUTLINE, Allowance
from storage.batch.record_batch import read_header
from storage.batch.records import outline, unpack
from storage.errors import LongCheckError, naming
from storage.log.file_region import FileRegion
from storage.log.segment import LOG_SUFFIX, Segment
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


class TimestampedOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that its batch was written in."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


@define(eq=False, kw_only=True)
class LongSearch:
    """The batch that an unfinished search has come to, and what `run` finds in it."""

    segment: Segment
    region: FileRegion
    """The batch; while it is pinned, a truncation below its end aborts it. It may be of no bytes,
    where the search stopped between two batches.
    """
    batch: bytes
    timestamp: int
    start_offset: Offset
    found: TimestampedOffset | None = None

    def run(self) -> None:
        """Search the batch. This touches no log, so a thread may do it."""
        if self.batch:
            with naming(self.segment.path(LOG_SUFFIX), self.region.position):
                self.found = _first_in(self.batch, self.timestamp, self.start_offset)

    def holds_in(self, segments: Sequence[Segment]) -> bool:
        """Return whether `segments` still have all that was searched and not compacted."""
        return self.segment in segments and not self.region.aborted


class LongLookUpError(LongCheckError):
    """A search that takes more than its allowance; `search` is what to do in a thread."""

    def __init__(self, search: LongSearch) -> None:
        super().__init__(f"a long search in {search.region}")
        self.search = search


def first_at_or_after(
    segments: Sequence[Segment],
    timestamp: int,
    *,
    start_offset: Offset,
    allowance: Allowance | None = None,
    after: LongSearch | None = None,
) -> TimestampedOffset | None:
    """Return the first record of `timestamp` or younger, from `start_offset` on.

    Raise LongLookUpError where that takes more than `allowance`. `after` is what such an error had,
    and has run.
    """
    position = 0
    if after is not None and after.holds_in(segments):
        if after.found is None:
            segments = segments[segments.index(after.segment) :]
            position = after.region.position + after.region.size
        elif after.found.offset >= start_offset:
            return after.found
    for segment in segments:
        _spend(allowance, STEPS_PER_BATCH, segment, 0)
        if segment.max_timestamp.timestamp >= timestamp:
            if not position:
                start = max(segment.start_before_time(timestamp), start_offset)
                position = segment.start_before(start)
            found = _find(segment, position, timestamp, start_offset, allowance)
            if found is not None:
                return found
        position = 0
    return None


def youngest(
    segments: Sequence[Segment],
    *,
    allowance: Allowance | None = None,
    after: LongSearch | None = None,
) -> TimestampedOffset | None:
    """Return the first record that carries the largest timestamp of all, as `first_at_or_after`."""
    if after is not None and after.holds_in(segments):
        return after.found
    candidates = [segment for segment in segments if segment.size]
    if not candidates:
        return None
    segment = max(candidates, key=lambda each: each.max_timestamp.timestamp)
    timestamp, last_offset = segment.max_timestamp
    for position, header in segment.headers(segment.start_before(last_offset)):
        if header.last_offset >= last_offset and header.max_timestamp == timestamp:
            region = segment.region(position, header.size)
            return _first_in_batch(segment, region, timestamp, header.base_offset, allowance)
    return None


def _find(
    segment: Segment,
    start: int,
    timestamp: int,
    start_offset: Offset,
    allowance: Allowance | None,
) -> TimestampedOffset | None:
    for position, header in segment.headers(start):
        _spend(allowance, STEPS_PER_OUTLINE, segment, position)
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            region = segment.region(position, header.size)
            found = _first_in_batch(segment, region, timestamp, start_offset, allowance)
            if found is not None:
                return found
    return None


def _spend(allowance: Allowance | None, steps: int, segment: Segment, position: int) -> None:
    """Stop before the byte at `position` where `allowance` has no more `steps`."""
    if allowance is None:
        return
    try:
        allowance.spend(steps)
    except LongCheckError:
        search = LongSearch(
            segment=segment,
            region=segment.region(position, 0),
            batch=b"",
            timestamp=0,
            start_offset=0,
        )
        raise LongLookUpError(search) from None


def _first_in_batch(
    segment: Segment,
    region: FileRegion,
    timestamp: int,
    start_offset: Offset,
    allowance: Allowance | None,
) -> TimestampedOffset | None:
    with naming(segment.path(LOG_SUFFIX), region.position):
        batch = region.read()
        try:
            return _first_in(batch, timestamp, start_offset, allowance)
        except LongCheckError:
            search = LongSearch(
                segment=segment,
                region=region,
                batch=batch,
                timestamp=timestamp,
                start_offset=start_offset,
            )
            raise LongLookUpError(search) from None


def _first_in(
    batch: bytes, timestamp: int, start_offset: Offset, allowance: Allowance | None = None
) -> TimestampedOffset | None:
    header = read_header(batch)
    if allowance is not None:
        allowance.spend(STEPS_PER_BATCH)
    for record in outline(header, unpack(header, batch, allowance=allowance), allowance):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            epoch = None if header.leader_epoch == NO_LEADER_EPOCH else header.leader_epoch
            return TimestampedOffset(record.timestamp, record.offset, epoch)
    return None
