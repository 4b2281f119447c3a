"""From a time to an offset, for ListOffsets.

    segments   [max 990][max 1400][max 1360]      t = 1200: the first that reaches it
    time index    ... (1150 -> 212) (1290 -> 240)  212: nothing up to there is younger than 1150
    offset index  ... (205 -> byte 81920)          walk headers from there; open the first batch
                                                   whose largest timestamp is 1200 or more

Only batches that can hold the answer are read. (LogSegment.findOffsetByTimestamp,
UnifiedLog.fetchOffsetByTimestamp in Kafka.)
"""

from collections.abc import Iterable
from typing import NamedTuple

from storage.errors import naming
from storage.record_batch import BatchHeader
from storage.records import outline_batch
from storage.segment import LOG_SUFFIX, Segment
from storage.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


class TimestampedOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that its batch was written in."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch | None


def first_at_or_after(
    segments: Iterable[Segment], timestamp: int, *, start_offset: Offset
) -> TimestampedOffset | None:
    """The first record of `timestamp` or younger, from `start_offset` on."""
    for segment in segments:
        if segment.max_timestamp.timestamp >= timestamp:
            found = _find(segment, timestamp, start_offset=start_offset)
            if found is not None:
                return found
    return None


def youngest(segments: Iterable[Segment]) -> TimestampedOffset | None:
    """The first record that carries the largest timestamp of all."""
    candidates = [segment for segment in segments if segment.size]
    if not candidates:
        return None
    segment = max(candidates, key=lambda each: each.max_timestamp.timestamp)
    timestamp, last_offset = segment.max_timestamp
    for position, header in segment.headers(segment.offset_index.lookup(last_offset).position):
        if header.last_offset >= last_offset and header.max_timestamp == timestamp:
            return _first_in_batch(segment, position, header, timestamp, header.base_offset)
    return None


def _find(segment: Segment, timestamp: int, *, start_offset: Offset) -> TimestampedOffset | None:
    known = segment.time_index.lookup(timestamp).offset
    start = segment.offset_index.lookup(max(known, start_offset)).position
    for position, header in segment.headers(start):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            found = _first_in_batch(segment, position, header, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: Offset
) -> TimestampedOffset | None:
    epoch = None if header.leader_epoch == NO_LEADER_EPOCH else header.leader_epoch
    with naming(segment.path(LOG_SUFFIX), position):
        for record in outline_batch(segment.region(position, header.size).read()):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampedOffset(record.timestamp, record.offset, epoch)
    return None
