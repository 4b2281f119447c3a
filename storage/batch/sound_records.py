"""Whether the records of a batch are sound, without taking keys and values out of them.

    length | attributes | timestamp delta | offset delta | key | value | header count | headers

    alike, without headers   many at a time, column by column (`plain_records`)
    without headers          one by one, in one loop without a call for each number: with keys, of
                             60 to 140 bytes, they take 2.2 times as long without it
    others                   number by number

Rule 1: what no reader could take apart is not sound: lengths that do not add up, a number of too
many bytes, a negative count of headers, a header without a name. Any negative length of a key or
a value is null, as Kafka reads it.

Rule 2: the offset deltas of compressed records count up from 0. Kafka's readers believe those
deltas, and the batch's header says where the next batch begins.

Rule 3: nothing is kept of any record, whatever their number.

(DefaultRecord.readFrom, LogValidator.validateMessagesAndAssignOffsetsCompressed.)
"""

from typing import Final

from storage.batch.allowance import Allowance
from storage.batch.plain_records import FAR, LEAST, sound_run
from storage.batch.record_batch import BatchHeader
from storage.batch.varint import read_varint, read_varlong
from storage.errors import CorruptRecordError
from storage.types import Buffer

LEAST_LONG: Final = -(2**63)
MOST_LONG: Final = 2**63 - 1
# How many records that are alike are looked at together. Meanwhile no other thread runs.
_MOST_AT_ONCE: Final = 1 << 14
_STEPS_PER_LOOK: Final = 16
_ALIKE_PER_STEP: Final = 16
_STEPS_PER_RECORD: Final = 5


def check_records(
    header: BatchHeader, data: Buffer, *, counted: bool, allowance: Allowance | None = None
) -> None:
    """Raise CorruptRecordError unless `data` is as many sound records as `header` counts.

    `counted`: the offset deltas count up from 0. Raise LongCheckError where it takes more than
    `allowance`.
    """
    position, passed, patience = 0, 0, LEAST
    # Then no time of an ordinary record is of more than 64 bits.
    is_near = -FAR < header.base_timestamp < FAR
    while (left := header.record_count - passed) > 0:
        count = size = 0
        delta = passed if counted else None
        if is_near and left >= LEAST:
            count, size = sound_run(data, position, min(left, _MOST_AT_ONCE), delta)
        alike = count >= LEAST
        if not alike:  # and ever fewer looks at whether they are now
            count = min(left, patience)
        if allowance is not None:
            steps = count // _ALIKE_PER_STEP if alike else count * _STEPS_PER_RECORD
            allowance.spend(_STEPS_PER_LOOK + steps)
        if alike:
            position, patience, passed = position + count * size, LEAST, passed + count
            continue
        patience *= 2
        until = passed + count
        while passed < until:
            delta = passed if counted else None
            if is_near:
                plain, position = _sound_plain(data, position, until - passed, delta)
                passed += plain
            if passed < until:
                delta = passed if counted else None
                position = _check_one(header, data, position, delta, allowance)
                passed += 1
    if position != len(data):
        raise CorruptRecordError(f"{len(data) - position} bytes after the last record")


def _sound_plain(  # noqa: PLR0912, PLR0915 - one loop
    data: Buffer, position: int, most: int, delta: int | None
) -> tuple[int, int]:
    """Return how many records from `position` on, up to `most`, are plain and sound, and where
    the next one begins. With `delta` their offset deltas have to count up from there.
    """
    counted, passed, size = delta is not None, 0, len(data)
    expected = 2 * (delta or 0)  # as it is written
    try:
        while passed < most:
            byte, at = data[position], position + 1
            if byte >= 0x80:
                if (second := data[at]) >= 0x80:
                    break
                byte, at = byte & 0x7F | second << 7, at + 1
            end = at + (byte >> 1)
            if byte & 1 or end > size:
                break
            at += 2  # behind the attributes, and the first byte of the time
            if data[at - 1] >= 0x80:
                at += 1
                if data[at - 1] >= 0x80:
                    break
            byte, at = data[at], at + 1
            if byte >= 0x80:
                if (second := data[at]) >= 0x80:
                    break
                byte, at = byte & 0x7F | second << 7, at + 1
            if counted and byte != expected:
                break
            byte, at = data[at], at + 1
            if byte >= 0x80:
                if (second := data[at]) >= 0x80:
                    break
                byte, at = byte & 0x7F | second << 7, at + 1
            if not byte & 1:
                at += byte >> 1
            byte, at = data[at], at + 1
            if byte >= 0x80:
                if (second := data[at]) >= 0x80:
                    break
                byte, at = byte & 0x7F | second << 7, at + 1
            if not byte & 1:
                at += byte >> 1
            if at + 1 != end or data[at]:
                break
            position, passed, expected = end, passed + 1, expected + 2
    except IndexError:
        pass
    return passed, position


def _check_one(
    header: BatchHeader, data: Buffer, position: int, delta: int | None, allowance: Allowance | None
) -> int:
    """Return the position after the record at `position`, whose offset delta is `delta`."""
    try:
        length, position = read_varint(data, position)
        end = position + length
        if length < 1 or end > len(data):
            raise CorruptRecordError(
                f"a record of {length} bytes where {len(data) - position} are left"
            )
        since, position = read_varlong(data, position + 1)  # behind the attributes
        if not LEAST_LONG <= header.base_timestamp + since <= MOST_LONG:
            raise CorruptRecordError(f"{since} ms after {header.base_timestamp}: over 64 bits")
        found, position = read_varint(data, position)
        if delta is not None and found != delta:
            raise CorruptRecordError(f"offset delta {found} of record {delta} of a batch")
        length, position = read_varint(data, position)
        if length > 0:
            position += length
        length, position = read_varint(data, position)
        if length > 0:
            position += length
        if data[position]:
            position = _skip_headers(data, position, end, allowance)
        else:
            position += 1
    except IndexError as error:
        raise CorruptRecordError(f"records that end too early: {error}") from error
    if position != end:
        raise CorruptRecordError("a record whose parts do not add up to its length")
    return position


def _skip_headers(data: Buffer, position: int, end: int, allowance: Allowance | None) -> int:
    """Return the position after a record's headers, each with a name."""
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptRecordError(f"{count} headers where {end - position} bytes are left")
    if allowance is not None:
        allowance.spend(count)
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecordError("a header without a name")
        length, position = read_varint(data, position + length)
        position += max(length, 0)
        if position > end:
            raise CorruptRecordError("headers that are longer than their record")
    return position
