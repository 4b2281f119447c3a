"""The splitting of a segment whose offsets do not fit its base (KAFKA-6264).

    base 0    [0-9][10-19][2^31+5 - 2^31+9]       2^31+9 cannot be written relative to 0

    becomes   base 0 [0-9][10-19]    base 2^31+5 [2^31+5 - 2^31+9]

The parts are written beside it and replace it in the order that `storage.log.swap` describes. They
have no indexes and are therefore read again. Any bytes after the last batch become the end of the
last part, and are judged when that part is read.

(UnifiedLog.splitOverflowedSegment, LogSegment.appendFromFile in Kafka.)
"""

import contextlib

from storage.batch.spare_room import CHUNK_SIZE
from storage.errors import CorruptRecordError
from storage.log import swap
from storage.log.segment import CLEANED_SUFFIX, Segment


def split(segment: Segment) -> list[str]:
    """Replace a segment that overflows by its parts; return the files to unlink."""
    assert overflows(segment), "only a segment whose offsets overflow is split"
    parts: list[Segment] = []
    position = 0
    while position < segment.size:
        part = _begin_part(segment, position)
        position += append_from(part, segment, position)
        part.pins.file.sync()
        part.close()
        parts.append(part)
    assert sum(part.size for part in parts) == segment.size, "a split keeps every byte"
    # From the last to the first: as long as one of them is `.cleaned`, loading takes none.
    for part in reversed(parts):
        swap.prepare(part.file_system, part.directory, part.base_offset)
    doomed = segment.delete()
    for part in parts:
        swap.finish(part.file_system, part.directory, part.base_offset)
    return doomed


def overflows(segment: Segment) -> bool:
    return _fitting_end(segment, segment, 0) < segment.size


def _begin_part(segment: Segment, position: int) -> Segment:
    _, first = next(segment.headers(position))
    return Segment.create(
        segment.file_system,
        segment.directory,
        first.base_offset,
        max_index_bytes=segment.max_index_bytes,
        index_interval_bytes=segment.index_interval_bytes,
        wall_ms=segment.created_ms,
        name_suffix=CLEANED_SUFFIX,
    )


def append_from(part: Segment, source: Segment, position: int) -> int:
    """Copy from `position` on, up to the first batch that does not fit; return how many bytes."""
    end = _fitting_end(part, source, position)
    for start in range(position, end, CHUNK_SIZE):
        data = source.pins.file.read(start, min(CHUNK_SIZE, end - start))
        part.pins.file.write(part.size, data)
        part.size += len(data)
    return end - position


def _fitting_end(part: Segment, source: Segment, position: int) -> int:
    """Return where the first batch begins that cannot be written relative to the base of `part`."""
    with contextlib.suppress(CorruptRecordError):
        for at, header in source.headers(position):
            if not part.holds_offset(header.base_offset) or not part.holds_offset(
                header.last_offset
            ):
                return at
    return source.size
