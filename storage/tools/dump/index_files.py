"""The entries of `.index` and `.timeindex`, each checked against the log it points into.

Rule 1: the index of an active segment ends in zeroes: an entry of the segment's base offset,
after the first, is the end.

Rule 2: the log is read once, forwards. Entries of a time index whose offsets go back are
damage in the index, and nothing is looked up for them.
"""

import os
from collections.abc import Iterator

from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header
from storage.errors import CorruptIndexError, CorruptRecordError
from storage.filesystem import File, FileSystem
from storage.log.index.offset_index import OffsetIndex
from storage.log.index.time_index import TimeIndex
from storage.log.segment_file import read_batches
from storage.tools.dump.entries import (
    Damage,
    DumpOptions,
    EmptyIndex,
    Entry,
    IndexedOffsetNotFound,
    IndexMismatch,
    OffsetIndexEntry,
    SanityPassed,
    TimeIndexEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
)
from storage.types import NO_OFFSET, Offset


def dump_offset_index(
    file_system: FileSystem, path: str, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    index = OffsetIndex(file_system.open_for_reading(path), base_offset)
    try:
        if not index.entry_count:
            yield EmptyIndex(path)
        elif options.index_sanity_check:
            yield _sanity(index)
        else:
            log = file_system.open_for_reading(_log_of(path))
            try:
                yield from _offset_entries(index, log, options)
            finally:
                log.close()
    finally:
        index.close()


def dump_time_index(
    file_system: FileSystem, path: str, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    index = TimeIndex(file_system.open_for_reading(path), base_offset)
    try:
        if options.index_sanity_check:
            yield _sanity(index)
        else:
            log = file_system.open_for_reading(_log_of(path))
            try:
                yield from _time_entries(index, log, options)
            finally:
                log.close()
    finally:
        index.close()


def _log_of(path: str) -> str:
    return os.path.splitext(path)[0] + ".log"


def _sanity(index: OffsetIndex | TimeIndex) -> Entry:
    """Return the result of the check that decides at start-up whether an index is rebuilt."""
    try:
        index.sanity_check()
    except CorruptIndexError as error:
        is_odd = index.length != index.size_in_bytes
        at = index.size_in_bytes - (0 if is_odd else index.layout.size)
        return Damage(index.path, at, str(error).removeprefix(f"{index.path}: "))
    return SanityPassed(index.path)


def _offset_entries(index: OffsetIndex, log: File, options: DumpOptions) -> Iterator[Entry]:
    path = index.path
    for number, (offset, position) in enumerate(index.entries()):
        if number and offset == index.base_offset:
            return  # the zeroes of an active segment's index
        at = number * index.layout.size
        try:
            header = _header_at(log, position)
        except CorruptRecordError as error:
            yield Damage(path, at, f"offset {offset} at byte {position} of the log: {error}")
        else:
            if header.last_offset != offset:
                misleads = header.base_offset > offset
                yield IndexMismatch(path, offset, header.last_offset, misleads)
        if not options.verify_index_only:
            yield OffsetIndexEntry(offset, position)


def _header_at(log: File, position: int) -> BatchHeader:
    if position < 0 or position >= log.size():
        raise CorruptRecordError(f"the log has {log.size()} bytes")
    data = log.read(position, HEADER_SIZE)
    try:
        return read_header(data)
    except CorruptRecordError:
        raise CorruptRecordError("no batch begins there") from None


def _time_entries(index: TimeIndex, log: File, options: DumpOptions) -> Iterator[Entry]:
    path = index.path
    headers = _headers(log)
    header = next(headers, None)
    previous_time, previous_offset = NO_TIMESTAMP, NO_OFFSET
    for number, (timestamp, offset) in enumerate(index.entries()):
        if number and offset == index.base_offset:
            return  # the zeroes of an active segment's index
        at = number * index.layout.size
        if offset < previous_offset:
            yield Damage(path, at, f"offset {offset} after {previous_offset}")
        else:
            previous_offset = offset
            while header is not None and header.last_offset < offset:
                header = next(headers, None)
            if header is None or header.last_offset != offset:
                found = NO_OFFSET if header is None else header.last_offset
                yield IndexedOffsetNotFound(path, offset, found)
            else:
                if header.max_timestamp != timestamp:
                    yield TimestampMismatch(path, timestamp, header.max_timestamp)
                if previous_time >= timestamp:
                    yield TimestampOutOfOrder(path, timestamp, previous_time)
        if not options.verify_index_only:
            yield TimeIndexEntry(timestamp, offset)
        previous_time = timestamp


def _headers(log: File) -> Iterator[BatchHeader]:
    """Yield the headers of the log up to its first damage, which a dump of the log itself names."""
    try:
        for batch in read_batches(log):
            yield batch.header
    except DamagedLogError:
        return
