"""The records of many batches, taken apart by vectors instead of one by one.

    batch 0 [len|record][len|record][len|record]      step i reads the i-th length of every
    batch 1 [len|record][len|record]                  batch at once: a record's place follows
    batch 2 [len|record][len|record][len|record]      only from the one before it in its batch
             step 0      step 1      step 2

Once it is known where each record begins, its fields are read field by field, each for all
records at once: a varint is one gather, and one more for those that go on.

Rule 1: below `LOCK_STEP_LEAST` batches a vector costs more than it saves. There the lengths
are read one by one, and guessed: if the next thousand records are as long as this one, a
strided comparison of their length bytes shows it. What it confirms is exact, since each
place follows from the one before.

A chunk of batches of 16 KiB takes 1.4 to 2.4 times as long without steps, one of batches of a MiB
and records of one size 2.2 times as long without the guess, and 4 times in steps.

Rule 2: nothing is believed. Lengths are checked after the steps rather than in them: all are
in range and the last record ends where its batch does only if every step was sound.
A gather outside the data is an IndexError; the caller makes CorruptRecordError of it.

(Kafka: DefaultRecord.readFrom; `records.decode_batch` is the same, one record at a time.)
"""

import itertools
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from storage.attributes import frozen
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.varint import read_varint
from storage.errors import CorruptRecordError
from storage.types import Buffer

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]

LOCK_STEP_LEAST: Final = 32

# `record_batch.HEADER`, field for field.
HEADER_TYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER_TYPE.itemsize == HEADER_SIZE

# A length, the attributes, two deltas, two lengths and a count, of a byte each.
LEAST_RECORD_SIZE: Final = 7
_LEAST_HEADER_SIZE: Final = 2
# What an Arrow view has room for beside the length.
_INLINE_MOST: Final = 12
_COPIED_MOST: Final = 256
_RUN_LEAST: Final = 16
_RUN_MOST: Final = 8192


class Bodies(NamedTuple):
    """Where records begin after their length, and how long they are; batch after batch."""

    starts: Integers
    lengths: Integers


@frozen
class HeaderArrays:
    """The headers of all records in one row of arrays; `counts` says how many each record has."""

    counts: Integers
    key_starts: Integers
    key_lengths: Integers
    value_starts: Integers
    value_lengths: Integers


@frozen
class Fields:
    """The fields of each record, a vector each. A negative length is a null."""

    timestamp_deltas: Integers
    offset_deltas: Integers
    key_starts: Integers
    key_lengths: Integers
    value_starts: Integers
    value_lengths: Integers
    # None where no record has any.
    headers: HeaderArrays | None


def read_headers(data: Bytes, positions: Integers) -> npt.NDArray[Any]:
    """Return the batch headers at `positions`, as rows of `HEADER_TYPE`."""
    windows = np.lib.stride_tricks.sliding_window_view(data, HEADER_SIZE)
    rows: npt.NDArray[Any] = windows[positions].view(HEADER_TYPE)
    return rows[:, 0]


def record_bodies(data: Bytes, begins: Integers, ends: Integers, counts: Integers) -> Bodies:
    """Find the records of batches, whose bytes after the header go from `begins` to `ends`."""
    if counts.size and (counts.min() < 0 or (counts * LEAST_RECORD_SIZE > ends - begins).any()):
        raise CorruptRecordError("more records counted than there are bytes for")
    places = np.empty(int(counts.sum()), np.int64)
    firsts = np.cumsum(counts) - counts
    # The longest first, so that the batches still going are always the front of the row.
    order = np.argsort(-counts, kind="stable")
    positions, row_counts, row_firsts = begins[order], counts[order], firsts[order]
    going, step = _still_going(row_counts, 0), 0
    while going >= LOCK_STEP_LEAST:
        steps = int(row_counts[going - 1]) - step  # until the shortest of them ends
        found = _steps(data, positions[:going], steps)
        here = row_firsts[:going, None] + np.arange(step, step + steps)
        places[here] = found[:-1].T
        positions[:going] = found[-1]
        step += steps
        going = _still_going(row_counts, step)
    for row in range(going):
        first, count = int(row_firsts[row]) + step, int(row_counts[row]) - step
        end = int(ends[order[row]])
        positions[row] = _one_batch(data, int(positions[row]), end, places[first : first + count])
    lengths, starts = varints(data, places)
    _check_lengths(lengths, data.size, least=1)
    if (positions != ends[order]).any():
        raise CorruptRecordError("the records do not end where their batch does")
    return Bodies(starts, lengths)


def _steps(data: Bytes, positions: Integers, count: int) -> Integers:
    """Return the places of `count` records from each position on, a row a step, and of what
    follows.
    """
    found = np.empty((count + 1, positions.size), np.int64)
    found[0] = positions
    for here, following in itertools.pairwise(found):
        lengths, starts = varints(data, here)
        np.add(starts, lengths, out=following)
    return found


def varints(data: Bytes, positions: Integers, *, bits: int = 32) -> tuple[Integers, Integers]:
    """Return the zig-zag numbers of `bits` bits at `positions`, and the positions after them."""
    first = data[positions]
    following = positions + 1
    goes_on = first > 0x7F
    # Counting is the cheapest question to ask of a short vector.
    if not np.count_nonzero(goes_on):
        short = first.astype(np.int64)
        return (short >> 1) ^ -(short & 1), following
    second = data[np.minimum(following, data.size - 1)] * goes_on
    # Of 14 bits at most, and a narrow vector is a quick one.
    both = (first & 0x7F) | second.astype(np.int16) << 7
    numbers = ((both >> 1) ^ -(both & 1)).astype(np.int64)
    following += goes_on
    if np.count_nonzero(is_long := second > 0x7F):
        rest = np.flatnonzero(is_long)
        numbers[rest], following[rest] = _long_varints(data, positions[rest], bits)
    return numbers, following


def _long_varints(data: Bytes, positions: Integers, bits: int) -> tuple[Integers, Integers]:
    """Return what `varints` does, for numbers of more than two bytes."""
    following = positions + 1
    value = (data[positions] & 0x7F).astype(np.uint64)
    rest = np.arange(positions.size)
    for shift in range(7, bits, 7):  # pragma: no branch - one that goes on past `bits` is refused
        byte = data[following[rest]]
        if shift + 7 > bits and (byte >> bits - shift).any():
            raise CorruptRecordError(f"a varint of more than {bits} bits")
        value[rest] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        following[rest] += 1
        rest = rest[byte > 0x7F]
        if not rest.size:
            break
    signs = (value & np.uint64(1)).view(np.int64)
    return (value >> np.uint64(1)).view(np.int64) ^ -signs, following


def read_fields(data: Bytes, bodies: Bodies) -> Fields:
    """Take every record apart; CorruptRecordError where one does not fill its length."""
    ends = bodies.starts + bodies.lengths
    fields, position = read_all_but_headers(data, bodies)
    header_counts, position = varints(data, position)
    headers = None
    if header_counts.any():
        headers, position = _read_headers(data, position, ends, header_counts)
    if (position != ends).any():
        raise CorruptRecordError("a record's fields are not as long as the record")
    return attrs.evolve(fields, headers=headers)


def read_all_but_headers(data: Bytes, bodies: Bodies) -> tuple[Fields, Integers]:
    """Take every record apart up to its headers; return where those begin, too."""
    timestamp_deltas, position = varints(data, bodies.starts + 1, bits=64)
    offset_deltas, position = varints(data, position)
    key_lengths, key_starts = varints(data, position)
    _check_lengths(key_lengths, data.size)
    value_lengths, value_starts = varints(data, key_starts + np.maximum(key_lengths, 0))
    _check_lengths(value_lengths, data.size)
    fields = Fields(
        timestamp_deltas=timestamp_deltas,
        offset_deltas=offset_deltas,
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        headers=None,
    )
    return fields, value_starts + np.maximum(value_lengths, 0)


def _still_going(descending_counts: Integers, step: int) -> int:
    """Return how many batches have a record number `step`."""
    return int(np.searchsorted(-descending_counts, -step, side="left"))


def _check_lengths(lengths: Integers, most: int, *, least: int | None = None) -> None:
    if lengths.size and (lengths.max() > most or (least is not None and lengths.min() < least)):
        raise CorruptRecordError(f"a length of {lengths.min()} to {lengths.max()} in {most} bytes")


def _one_batch(data: Bytes, position: int, end: int, into: Integers) -> int:
    """Find the records of one batch, by runs of equal length; return the position after the last."""
    view, origin, end = data[position:end].data, position, end - position
    position, done, count = 0, 0, into.size
    # Bytes are read faster from a copy, unless few of them are read.
    raw: Buffer = view.tobytes() if end < _COPIED_MOST * count else view
    places: list[int] = []
    previous, wait, run_most = -1, _RUN_LEAST, _RUN_LEAST * 4
    next_guess = looked_from = 0
    number = 0
    while number < count:
        if number < next_guess:
            until = min(next_guess, count)
            position = _one_by_one(raw, position, until - number, places)
            number, looked_from, previous = until, until, -1
            continue
        length, start = read_varint(raw, position)
        if length < 1 or start + length > end:
            raise CorruptRecordError(f"a record of {length} bytes where {end - start} are left")
        if length != previous:
            places.append(position)
            previous, position = length, start + length
            number += 1
            if number - looked_from == _RUN_LEAST:  # no two of them alike
                wait = min(wait * 2, _RUN_MOST)
                next_guess = number + wait
            continue
        into[done:number] = places
        done, places = number, []
        stride = start + length - position
        most = min(count - done, run_most, (end - position) // stride)
        run = _run_length(data, origin + position, start - position, stride, most)
        into[done : done + run] = np.arange(run) * stride + position
        number = done = done + run
        position += run * stride
        # Guess more boldly after a good guess, and more seldom after a bad one.
        good = run >= _RUN_LEAST
        wait = _RUN_LEAST if good else min(wait * 2, _RUN_MOST)
        run_most = min(run_most * 4, _RUN_MOST) if run == most else _RUN_LEAST * 4
        next_guess = looked_from = done if good else done + wait
    into[done:] = places
    into += origin
    return origin + position


def _one_by_one(raw: Buffer, position: int, count: int, places: list[int]) -> int:
    """Add the places of `count` records; return the position after the last.

    Nearly every length is positive and of one or two bytes. A call of `read_varint` for each would
    have columns of records of many sizes take a third longer.
    """
    for _ in range(count):
        places.append(position)
        low = raw[position]
        if low & 1 == 0 and low < 0x80:
            position += 1 + (low >> 1)
        elif low & 1 == 0 and (high := raw[position + 1]) < 0x80:
            position += 2 + ((low & 0x7F | high << 7) >> 1)
        else:
            length, position = read_varint(raw, position)
            if length < 1:
                raise CorruptRecordError(f"a record of {length} bytes")
            position += length
    return position


def _run_length(data: Bytes, position: int, length_size: int, stride: int, most: int) -> int:
    """Return how many records from `position` on carry the very same length bytes; at least one."""
    end = position + most * stride
    same = data[position:end:stride] == data[position]
    for byte in range(1, length_size):
        same &= data[position + byte : end : stride] == data[position + byte]
    return most if same.all() else int(same.argmin())


def _read_headers(
    data: Bytes, positions: Integers, ends: Integers, counts: Integers
) -> tuple[HeaderArrays, Integers]:
    """Return the headers of every record, and where each record's fields end."""
    if counts.min() < 0 or (counts > (ends - positions) // _LEAST_HEADER_SIZE).any():
        raise CorruptRecordError("more headers counted than there are bytes for")
    total = int(counts.sum())
    found = HeaderArrays(counts, *(np.empty(total, np.int64) for _ in range(4)))
    firsts = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    row_counts, row_firsts = counts[order], firsts[order]
    row_positions = positions[order]
    step, going = 0, _still_going(row_counts, 0)
    while going >= LOCK_STEP_LEAST:
        row_positions[:going] = _headers_at(
            data, row_positions[:going], found, row_firsts[:going] + step
        )
        step += 1
        going = _still_going(row_counts, step)
    for row in range(going):
        places = slice(int(row_firsts[row]) + step, int(row_firsts[row] + row_counts[row]))
        end = int(ends[order[row]])
        row_positions[row] = _one_record(data, int(row_positions[row]), end, found, places)
    if total and found.key_lengths.min() < 0:
        raise CorruptRecordError("a header without a name")
    after = np.empty_like(positions)
    after[order] = row_positions
    return found, after


def _headers_at(
    data: Bytes, positions: Integers, found: HeaderArrays, places: Integers
) -> Integers:
    """Read one header at each of `positions`."""
    key_lengths, key_starts = varints(data, positions)
    _check_lengths(key_lengths, data.size, least=0)
    value_lengths, value_starts = varints(data, key_starts + key_lengths)
    _check_lengths(value_lengths, data.size)
    found.key_starts[places], found.key_lengths[places] = key_starts, key_lengths
    found.value_starts[places], found.value_lengths[places] = value_starts, value_lengths
    return value_starts + np.maximum(value_lengths, 0)


def _one_record(data: Bytes, position: int, end: int, found: HeaderArrays, places: slice) -> int:
    """Read the headers of one record one by one; return the position after the last."""
    raw = data[position:end].tobytes()
    origin, position = position, 0
    for place in range(places.start, places.stop):
        for starts, lengths in (
            (found.key_starts, found.key_lengths),
            (found.value_starts, found.value_lengths),
        ):
            length, start = read_varint(raw, position)
            if start + length > len(raw):
                raise CorruptRecordError(f"{length} bytes of a header where {len(raw)} are left")
            starts[place], lengths[place] = origin + start, length
            position = start + max(length, 0)
    return origin + position


def views(data: Bytes, starts: Integers, lengths: Integers) -> npt.NDArray[np.uint32]:
    """Strings of `data` as Arrow lays views down: a length, then the bytes where they are 12
    or fewer, and otherwise the first 4 of them, a buffer's number (0), and the offset in it.
    """
    found = np.zeros((len(starts), 4), np.uint32)
    found[:, 0] = np.maximum(lengths, 0)
    long = lengths > _INLINE_MOST
    if long.all():
        found[:, 1] = _words(data, starts)
        found[:, 3] = starts
    else:
        rows = np.flatnonzero(long)
        found[rows, 1] = _words(data, starts[rows])
        found[rows, 3] = starts[rows]
        _inline(found, data, starts, np.where(long, 0, lengths))
    return found


def _words(data: Bytes, positions: Integers) -> npt.NDArray[np.uint32]:
    """Return the four bytes at each position, as they stand in memory."""
    if not positions.size:
        return np.empty(0, np.uint32)
    everywhere = np.ndarray((data.size - 3,), np.uint32, data, 0, (1,))
    return everywhere[positions]


def _inline(
    found: npt.NDArray[np.uint32], data: Bytes, starts: Integers, lengths: Integers
) -> None:
    """Put the bytes of short strings into their views."""
    places = found.view(np.uint8).reshape(-1, 16)
    for index in range(max(0, int(lengths.max(initial=0)))):
        rows = np.flatnonzero(lengths > index)
        places[rows, 4 + index] = data[starts[rows] + index]
