"""The check that the file and the index of a trusted segment fit together.

    .index   ... (57 -> 8192)             the last entry: offset 57 is in the batch at byte 8192
    .log     [0] ... [50-57][58-61]│      from there on, batch by batch, to the last byte

One read of the index and two of the log show a file that was emptied, cut short, or written
over at an end, an index that is longer than its log, and where the segment ends. The active
segment's last batches have their CRC checked: a crash that no marker reports hits them first.
The bytes in between are checked when they are read. (Kafka checks nothing of this after a clean
shutdown.)

Apache Kafka's index may have its entries far apart (`index.interval.bytes`): its requests walk the
batches between two of them in threads. An event loop cannot, so such a segment is read again, which
makes its index anew.
"""

import os
from itertools import islice
from typing import Final

from storage.batch.record_batch import HEADER_SIZE, check_crc
from storage.errors import CorruptIndexError, CorruptRecordError, OffsetOverflowError
from storage.log.index.offset_index import ENTRY_SIZE, OffsetPosition
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, MAX_INDEX_INTERVAL, Segment
from storage.types import LAST_LOG_END, Offset

# A copy of a directory has files of new times, in any order, that have not changed.
COPYING_MS: Final = 10_000
# Twice what our own index leaves without an entry, and more batches than that holds.
_WIDE_GAP: Final = 2 * MAX_INDEX_INTERVAL
_MOST_WALKED: Final = MAX_INDEX_INTERVAL // HEADER_SIZE


def end_of_believed(segment: Segment, *, active: bool, marker_ms: int | None) -> Offset:
    """Return the offset after its last batch. Raise CorruptRecordError or CorruptIndexError, with the
    reason, where it has to be read again.
    """
    if marker_ms is not None and (segment.created_ms or 0) > marker_ms + COPYING_MS:
        raise CorruptRecordError("written to after the clean shutdown")
    segment.transaction_index.sanity_check(segment.base_offset)
    if not segment.file_system.exists(segment.path(INDEX_SUFFIX)):
        if segment.size:
            raise CorruptIndexError(f"no {os.path.basename(segment.path(INDEX_SUFFIX))}")
        return segment.base_offset
    last = _last_entry(segment)
    _check_gaps(segment, last)
    if last.position > 0:
        _check_order(segment, _first_offset(segment), last.offset)
    end = _walk(segment, last, check_crcs=active)
    if active:
        segment.time_index.sanity_check()
        _check_times(segment, end)
    else:
        segment.release_indexes()
    return end


def _check_times(segment: Segment, end: Offset) -> None:
    """Raise CorruptIndexError for a time behind `end`: a disk that lied about records may have kept
    their times, and those of new records could not follow them.
    """
    times = segment.time_index
    if times.entry_count and times.last_entry.offset >= end:
        raise CorruptIndexError(
            f"its last time is that of offset {times.last_entry.offset}, and it ends at {end}"
        )


def _last_entry(segment: Segment) -> OffsetPosition:
    index = segment.offset_index
    index.sanity_check()
    last = index.lookup(index.last_offset)
    if index.entry_count and not 0 <= last.position < segment.size:
        raise CorruptIndexError(
            f"the last entry of its index leads to byte {last.position} of {segment.size}"
        )
    return last


def _check_gaps(segment: Segment, last: OffsetPosition) -> None:
    """Raise CorruptIndexError where too many batches lie before the first entry or behind the last."""
    index = segment.offset_index
    if index.size_in_bytes + ENTRY_SIZE > segment.max_index_bytes:
        return  # it is full, and would be again
    first = index.entry(0).position if index.entry_count else segment.size
    for begin, end in ((0, first), (last.position, segment.size)):
        if end - begin > _WIDE_GAP:
            position, _ = next(islice(segment.headers(begin), _MOST_WALKED, None), (end, None))
            if position < end:
                raise CorruptIndexError(f"its index has no entry for {end - begin} bytes")


def _first_offset(segment: Segment) -> Offset:
    for _, header in segment.headers():
        return header.base_offset
    raise CorruptRecordError("half a batch at byte 0")


def _walk(segment: Segment, last: OffsetPosition, *, check_crcs: bool) -> Offset:
    end, next_offset = last.position, segment.base_offset
    for position, header in segment.headers(last.position):
        if position == last.position and last.position > 0:
            _check_order(segment, header.base_offset, last.offset)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptRecordError(f"offset {header.base_offset} at byte {position} goes back")
        if header.next_offset > LAST_LOG_END:
            raise CorruptRecordError(f"no offset comes after {header.last_offset}")
        if not segment.holds_offset(header.last_offset):
            raise OffsetOverflowError(
                f"{segment.path(LOG_SUFFIX)}: offset {header.last_offset} at byte {position}"
                " is too far from the base",
                segment.base_offset,
            )
        if check_crcs and not check_crc(segment.pins.file.read(position, header.size)):
            raise CorruptRecordError(f"the CRC-32C of the batch at byte {position} does not match")
        end, next_offset = position + header.size, header.next_offset
    if end != segment.size:
        raise CorruptRecordError(f"half a batch at byte {end}")
    return next_offset


def _check_order(segment: Segment, first: Offset, last: Offset) -> None:
    if not segment.base_offset <= first <= last:
        raise CorruptRecordError(f"offset {first} lies outside {segment.base_offset} to {last}")
