"""The batches and records of a `.log` file, over whatever damage there is.

    [0-4][5-9]#####[20-24][25-29]..       # no batch: searched for the next sound one
                                   .. the file ends inside of a batch

Rule 1: a batch with a wrong CRC-32C is shown, as not valid. Where no batch follows it, its
length is not to be believed either: the search begins right behind its first byte. (A broken
length that happens to lead to a later batch hides those between; the gap in offsets shows.)

Rule 2: the spare room of a log that was not closed is no damage (`storage.batch.spare_room`).

Rule 3: records are shown one by one, and no more of them than a file of that size can hold:

    16 MiB, and 256 bytes for each byte of the batches so far      decompressed
    8 for each byte of its batch                                   records

A few hundred bytes of zstd may stand for hundreds of MiB. What is more than this was made to
exhaust its reader, or holds large values that are all alike: it is named as damage, and not shown.
A leader takes no single batch that is out of this proportion (`storage.log.append`).

Rule 4: the dump goes on only where a whole batch with a matching CRC-32C stands.
"""

from collections.abc import Iterator

from storage.attributes import define
from storage.batch.batch_stream import DamagedLogError
from storage.batch.records import (
    MAX_DECOMPRESSED_SIZE,
    Record,
    control_type,
    decode_control_record,
    decode_each,
    unpack,
)
from storage.batch.spare_room import is_spare_room
from storage.errors import CorruptRecordError, ExpansionError, StorageError
from storage.filesystem import File, FileSystem
from storage.log.append import DECOMPRESSED_AT_LEAST, DECOMPRESSED_PER_BYTE, MAX_RECORDS_PER_BYTE
from storage.log.segment_file import StoredBatch, find_batch, read_batches, stands_at
from storage.tools.dump.entries import (
    BatchEntry,
    Damage,
    DumpOptions,
    Entry,
    InvalidBytes,
    NonConsecutiveOffsets,
    RecordEntry,
    SpareRoom,
)
from storage.types import NO_OFFSET, Offset


@define
class Unpacking:
    """The bytes that may still be decompressed of one file."""

    _left: int = DECOMPRESSED_AT_LEAST

    def unpack(self, batch: StoredBatch) -> bytes:
        """Return the records of `batch`; raise CorruptRecordError where they are too many bytes."""
        header = batch.header
        if header.record_count > header.size * MAX_RECORDS_PER_BYTE:
            raise CorruptRecordError(
                f"{header.record_count} records in {header.size} bytes are too many to show"
            )
        self._left += header.size * DECOMPRESSED_PER_BYTE
        most = max(1, min(self._left, MAX_DECOMPRESSED_SIZE))
        try:
            data = bytes(unpack(header, batch.data, max_size=most))
        except ExpansionError as error:
            self._left -= most  # it took as long as if it had been shown
            raise CorruptRecordError(f"too much for so few bytes to show: {error}") from error
        self._left -= len(data)
        return data


def dump_log(file_system: FileSystem, path: str, options: DumpOptions) -> Iterator[Entry]:
    """Batch by batch; with deep iteration each followed by its records."""
    file = file_system.open_for_reading(path)
    try:
        size = file.size()
        end = size if options.max_bytes is None else min(size, options.max_bytes)
        previous, unpacking = NO_OFFSET, Unpacking()
        for found in sound_stretches(file_system, file, end):
            if not isinstance(found, StoredBatch):
                yield found
                continue
            yield BatchEntry(found.position, found.header, found.is_valid)
            if options.deep_iteration:
                for entry in _records(path, found, unpacking, previous):
                    yield entry
                    if isinstance(entry, RecordEntry):
                        previous = entry.record.offset
    finally:
        file.close()


def sound_stretches(
    file_system: FileSystem, file: File, end: int
) -> Iterator[StoredBatch | Damage | InvalidBytes | SpareRoom]:
    """Yield the batches up to byte `end`, and what stands between them."""
    position, least_offset = 0, 0
    while position < end:
        damage = None
        try:
            for batch in _trusted_batches(file, position, end):
                if batch.header.base_offset < least_offset:
                    yield _going_back(file, batch, least_offset)
                if batch.is_valid:
                    least_offset = max(least_offset, batch.header.next_offset)
                position = batch.position + batch.header.size
                yield batch
        except DamagedLogError as error:
            damage = error
        # What a limit cuts is no damage.
        if damage is None and (position == end or end < file.size()):
            return
        at = position if damage is None else damage.position
        if at == position and is_spare_room(file_system, file, at):
            yield SpareRoom(file.path, at, file.size() - at)
            return
        reason = "the batch here would end after the file" if damage is None else damage.reason
        resumed_at = find_batch(file, at + 1, end, least_offset=least_offset)
        if damage is not None or resumed_at is not None:
            yield Damage(file.path, at, reason, resumed_at)
        if resumed_at is None:
            if position < end:
                yield InvalidBytes(file.path, position, end - position)
            return
        position = resumed_at


def _trusted_batches(file: File, position: int, end: int) -> Iterator[StoredBatch]:
    """Batches as long as it is sure where the next one begins."""
    for batch in read_batches(file, position, end):
        yield batch
        if not batch.is_valid and not stands_at(file, batch.position + batch.header.size):
            reason = "a batch whose CRC-32C does not match, and no batch after it"
            raise DamagedLogError(reason, path=file.path, position=batch.position)


def _going_back(file: File, batch: StoredBatch, least_offset: Offset) -> Damage:
    reason = f"a batch of offset {batch.header.base_offset} where {least_offset} comes next"
    return Damage(file.path, batch.position, reason)


def _records(
    path: str, batch: StoredBatch, unpacking: Unpacking, previous: Offset
) -> Iterator[Entry]:
    """Yield one record after another, none of which is kept."""
    try:
        for record in decode_each(batch.header, unpacking.unpack(batch)):
            yield from _record(path, batch, record, previous)
            previous = record.offset
    except StorageError as error:
        yield Damage(path, batch.position, f"the records of the batch here: {error}")


def _record(path: str, batch: StoredBatch, record: Record, previous: Offset) -> Iterator[Entry]:
    if previous not in {NO_OFFSET, record.offset - 1}:
        yield NonConsecutiveOffsets(path, previous, record.offset)
    if not batch.header.is_control:
        yield RecordEntry(batch.header, record)
    else:
        yield from _control_record(path, batch, record)


def _control_record(path: str, batch: StoredBatch, record: Record) -> Iterator[Entry]:
    try:
        marker = decode_control_record(record)
        yield RecordEntry(batch.header, record, control_type(record), marker)
    except StorageError as error:
        yield RecordEntry(batch.header, record)
        yield Damage(path, batch.position, f"the control record {record.offset} here: {error}")
