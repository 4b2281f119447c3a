"""Producers in batches that are read again, for the state and the indexes that remember them.

    batch ──> ProducerStateManager     who wrote last, and what is open
         └──> TransactionIndex         what was aborted, in the segment that holds the marker

The same for a batch that was just appended, for one that is read again after a crash or a
truncation, and for one whose transaction has been written down before.
"""

from collections.abc import Iterable

from storage.batch.record_batch import BatchHeader
from storage.errors import naming
from storage.log.append import marker_of
from storage.log.index.transaction_index import AbortedTransaction
from storage.log.segment import LOG_SUFFIX, Segment
from storage.log.segments import Segments
from storage.producers.state import ProducerStateManager
from storage.types import Offset


def note(
    producers: ProducerStateManager, segment: Segment, header: BatchHeader, batch: memoryview
) -> bool:
    """Note that `header` is in `segment`; return whether that made a new file. `batch` is read of markers
    only.
    """
    completed = producers.update(header, marker_of(header, batch))
    if completed is None:
        return False
    made = False
    index = segment.transaction_index
    if completed.aborted and completed.last_offset > index.last_offset:
        made = not index.exists
        index.append(
            AbortedTransaction(
                producer_id=completed.producer_id,
                first_offset=completed.first_offset,
                last_offset=completed.last_offset,
                last_stable_offset=producers.last_stable_offset_after(completed),
            )
        )
    producers.complete_transaction(completed)
    return made


def replay(
    producers: ProducerStateManager, segments: Iterable[Segment], end_offset: Offset
) -> bool:
    """Note every header from where `producers` ends to `end_offset`; return whether that made a file.

    `segments` are those from that place on.
    """
    start, made = producers.map_end_offset, False
    if start < end_offset:
        for segment in segments:
            located = segment.locate(start)
            if located is None:
                continue
            for position, header in segment.headers(located.position):
                if header.has_producer:
                    batch = memoryview(b"")
                    if header.is_control:
                        batch = memoryview(segment.region(position, header.size).read())
                    with naming(segment.path(LOG_SUFFIX), position):
                        made = note(producers, segment, header, batch) or made
    producers.update_map_end_offset(end_offset)
    return made


def rebuild(producers: ProducerStateManager, segments: Segments, end_offset: Offset) -> bool:
    """Bring `producers` from where it ends to `end_offset`, where a segment begins or the log ends.

    Snapshots that are missing are taken on the way: at the bases of the last two segments, so
    that the next truncation has somewhere to begin, and at the end. Return whether it made a file.
    (ProducerStateManager.rebuildProducerState in Kafka.)
    """
    made = False
    bases = [base for base in segments.base_offsets if base <= end_offset]
    for offset in (*bases[-2:], end_offset):
        start = producers.map_end_offset
        if start < offset:
            made = replay(producers, segments.between(start, offset), offset) or made
            producers.take_snapshot()
    return made
