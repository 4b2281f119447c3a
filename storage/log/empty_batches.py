"""The batches without records in a compacted log, which fetches of consumers skip.

    fetch at 4    [0: k0 .. .. .. .. ..][6: ][7: ][8: ]│[9: ][10: k10 .. k12]     answered from 10
                   its records are before 4      empty       records follow

Compaction leaves batches without records, which show the last sequence of a producer or the end of
the log, and batches whose last records are removed. Some clients advance only by the records that
they receive (kafkajs, kafka-go). A response with nothing but such batches would stop them: they
would request the same offset again without end.

Rule 1: batches without records for the reader are skipped only if a batch with records follows,
below the end that the reader may see. Otherwise the response has them, as in Kafka, so that a
client that reads headers gets to the end. A batch with a control record is not empty: a
read_committed reader needs it.

Rule 2: one call skips at most `MOST_BYTES` of empty batches, about 17,000, and notes how far it
came. The next read at that offset continues there.

Rule 3: a response does not end with empty batches if records follow. To find its last batch with
records, it is searched from its end with the offset index, so that little of it is read.

Followers get every batch.
"""

from typing import Final, NamedTuple

import attrs

from storage.attributes import define
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.records import last_record_offset
from storage.errors import StorageError
from storage.log.segment import LocatedBatch, LogOffsetMetadata, Segment
from storage.log.segments import Segments
from storage.types import Offset

MOST_BYTES: Final = 17_000 * HEADER_SIZE
# To look into another segment costs about as much as to pass so many bytes in one.
_SEGMENT_COST: Final = 100 * HEADER_SIZE
# A batch that is larger, in or out of its codec, is not looked into: its reader is given it.
_MOST_LOOKED_INTO: Final = 2 << 20
_MOST_REMEMBERED: Final = 64


@define(eq=False)
class EmptyBatches:
    """The places of batches without records in one log, as far as reads have found them."""

    # There is no record for a reader at the first offset below the second.
    _passed: dict[Offset, Offset] = attrs.field(factory=dict)

    def forget(self) -> None:
        """Forget everything, because the log was truncated."""
        self._passed.clear()

    def offset_with_records(
        self, segments: Segments, start_offset: Offset, bound: LogOffsetMetadata
    ) -> Offset | None:
        """Return where a batch begins, below `bound`, that has a record at `start_offset` or after;
        None where there is none, or none was found yet (rule 2).
        """
        offset = self._passed.get(start_offset, start_offset)
        segment = segments.floor(offset)
        left = MOST_BYTES
        while segment is not None and left > 0:
            in_bound = segment.base_offset == bound.segment_base_offset
            limit = bound.position if in_bound else segment.size
            located = segment.locate(offset)
            if located is not None and located.position < limit:
                position = located.position
                if located.record_count and not _has_record_from(segment, located, start_offset):
                    position += located.size
                end = segment.end_of_empty(position, min(limit, position + left))
                left -= end - position
                if end < limit:
                    for _, header in segment.headers(end):
                        self._note(start_offset, header.base_offset)
                        return header.base_offset if left > 0 else None
            if in_bound:
                self._note(start_offset, bound.offset)
                return None
            left -= _SEGMENT_COST
            segment = segments.after(segment)
            if segment is not None:
                offset = segment.base_offset
        self._note(start_offset, offset)
        return None

    def end_of_answer(
        self,
        segments: Segments,
        segment: Segment,
        start: int,
        end: int,
        bound: LogOffsetMetadata,
    ) -> int:
        """Return where an answer that begins at byte `start` of `segment`, and may go as far as `end`,
        has to end by rule 3.
        """
        if segment.base_offset == bound.segment_base_offset and end >= bound.position:
            return end
        last = _last_with_records(segment, start, end)
        if last is None or self.offset_with_records(segments, last.next_offset, bound) is None:
            return end
        return last.end

    def _note(self, start_offset: Offset, offset: Offset) -> None:
        self._passed.pop(start_offset, None)
        self._passed[start_offset] = offset
        if len(self._passed) > _MOST_REMEMBERED:
            del self._passed[next(iter(self._passed))]


class _LastWithRecords(NamedTuple):
    end: int
    next_offset: Offset


def _last_with_records(segment: Segment, start: int, end: int) -> _LastWithRecords | None:
    """Return the last whole batch with records between two bytes, if an empty one follows it there;
    None, too, where more than `MOST_BYTES` of those do.
    """
    stop, last_is_empty = end, None
    while stop > max(start, end - MOST_BYTES):
        begin, found, header = max(start, segment.start_before_byte(stop)), None, None
        for position, each in segment.headers(begin):
            if position + each.size > stop:
                break
            header = each
            if header.record_count:
                found = _LastWithRecords(position + header.size, header.next_offset)
        if header is not None and last_is_empty is None:
            last_is_empty = header.record_count == 0
        if found is not None:
            return found if last_is_empty else None
        stop = begin
    return None


def _has_record_from(segment: Segment, located: LocatedBatch, offset: Offset) -> bool:
    if not located.may_lack(offset):
        return True
    if located.size > _MOST_LOOKED_INTO:
        return True
    try:
        batch = segment.region(located.position, located.size).read()
        return last_record_offset(batch, max_size=_MOST_LOOKED_INTO) >= offset
    except StorageError:
        return True  # its reader is to find out what is wrong with it
