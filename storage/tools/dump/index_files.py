"""The entries of `.index` and `.timeindex`, each checked against the log it points into.

Rule 1: the index of an active segment ends in zeroes: an entry of the segment's base offset,
after the first, is the end.

Rule 2: the log is read once, forwards. Entries of a time index whose offsets go back are
damage in the index, and nothing is looked up for them.
"""

import os
import struct
from collections.abc import Iterator
from typing import Final

from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, read_header
from storage.errors import CorruptRecordError
from storage.filesystem import File, FileSystem
from storage.log.index.index_file import IndexFile
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

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def dump_offset_index(
    file_system: FileSystem, path: str, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    index = _open(file_system, path, _OFFSET_ENTRY)
    try:
        if not index.entry_count:
            yield EmptyIndex(path)
        elif options.index_sanity_check:
            last, _ = index.entry(index.entry_count - 1)
            yield from _sanity(index, "its last offset is below its base" if last < 0 else None)
        else:
            log = file_system.open_for_reading(_log_of(path))
            try:
                yield from _offset_entries(index, log, base_offset, options)
            finally:
                log.close()
    finally:
        index.file.close()


def dump_time_index(
    file_system: FileSystem, path: str, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    index = _open(file_system, path, _TIME_ENTRY)
    try:
        if options.index_sanity_check:
            yield from _sanity(index, _insane_times(index))
        else:
            log = file_system.open_for_reading(_log_of(path))
            try:
                yield from _time_entries(index, log, base_offset, options)
            finally:
                log.close()
    finally:
        index.file.close()


def _open(file_system: FileSystem, path: str, layout: struct.Struct) -> IndexFile:
    file = file_system.open_for_reading(path)
    length = file.size()
    return IndexFile(file, layout, length, length // layout.size)


def _log_of(path: str) -> str:
    return os.path.splitext(path)[0] + ".log"


def _sanity(index: IndexFile, reason: str | None) -> Iterator[Entry]:
    """Yield the result of the check that decides at start-up whether an index is rebuilt."""
    path, at = index.file.path, max(0, index.size_in_bytes - index.layout.size)
    if reason is None and index.length != index.size_in_bytes:
        at = index.size_in_bytes
        reason = f"{index.length} bytes are no whole number of {index.layout.size}-byte entries"
    if reason is None:
        yield SanityPassed(path)
    else:
        yield Damage(path, at, reason)


def _insane_times(index: IndexFile) -> str | None:
    if not index.entry_count:
        return None
    (first, _), (last, offset) = index.entry(0), index.entry(index.entry_count - 1)
    if last < first:
        return f"its last timestamp {last} is before its first"
    return "its last offset is below its base" if offset < 0 else None


def _entries(index: IndexFile) -> Iterator[tuple[int, int, int]]:
    """Yield each entry and the byte it stands at, up to the zeroes of an active segment's index."""
    offset_at = 0 if index.layout is _OFFSET_ENTRY else 1
    for number, (first, second) in enumerate(index.entries()):
        if number and (first, second)[offset_at] == 0:
            return
        yield first, second, number * index.layout.size


def _offset_entries(
    index: IndexFile, log: File, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    path = index.file.path
    for relative, position, at in _entries(index):
        offset = base_offset + relative
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


def _time_entries(
    index: IndexFile, log: File, base_offset: Offset, options: DumpOptions
) -> Iterator[Entry]:
    path = index.file.path
    headers = _headers(log)
    header = next(headers, None)
    previous_time, previous_offset = NO_TIMESTAMP, NO_OFFSET
    for timestamp, relative, at in _entries(index):
        offset = base_offset + relative
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
