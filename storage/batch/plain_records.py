"""The records of a batch, where they are what nearly all records are.

    length | 0 | timestamp delta | offset delta | key length, key | value length, value | 0

no headers, and no number of more than two bytes but where a record or its time is large. What
is anything else, or wrong, is left to `storage.batch.records`, which reads it all again and says what
is wrong with it: here it is None.

Rule 1: `decode_plain` is one loop, without a call for each number. It is what a consumer spends
most of its time in where records are not alike. Without it records with keys, of 60 to 140 bytes,
take 1.5 times as long to decode.

Many records are alike: of one size, one offset after the other.

    length | 0 | time | offset delta | key length | key | value length | value | 0
    length | 0 | time | offset delta | key length | key | value length | value | 0
    └────────────────────────── a stride ───────────────────────────────────────┘

What is at one place in each of them is a column of the batch's bytes, a stride apart, and is
compared or taken at once, without a look at each record. Keys and values of one size make runs.

Rule 2: every byte but those of keys, values and times has to be what the first record, or counting
on, says; times are read. So what is found is what reading one by one would have found.

Without runs, records of 100 bytes and one size take 2.7 times as long to decode, with keys 3.6
times, and ten times as long for a leader to check (`storage.batch.sound_records`).
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple

from storage.batch.varint import BELOW_TWO_BYTES, ONE_BYTE, VARINTS, read_varint, read_varlong
from storage.errors import CorruptRecordError
from storage.types import Buffer

FAR: Final = 1 << 62
"""Sums of two numbers that are nearer to 0 are of 64 bits."""
LEAST: Final = 16
"""The fewest records that are worth a look whether they are alike."""
_SMALL: Final = 256
"""Larger records are not worth a copy, from which columns are taken faster."""
_GOING_ON: Final = bytes(range(0x80, 0x100))  # a number's bytes but its last
_LONGEST_TIME: Final = 9
"""Bytes of a time that is within 62 bits, whatever they are."""
# Of each width: below what such deltas are, and each of their bytes, by delta.
_DELTAS: Final = {
    1: (BELOW_TWO_BYTES, (b"".join(VARINTS[:BELOW_TWO_BYTES]),)),
    2: (
        len(VARINTS),
        tuple(
            bytes(BELOW_TWO_BYTES) + bytes(each[at] for each in VARINTS[BELOW_TWO_BYTES:])
            for at in (0, 1)
        ),
    ),
}


class Alike(NamedTuple):
    """The fields that differ from record to record."""

    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


class _Layout(NamedTuple):
    """Where things are, counted from a record's first byte; sizes of -1 are those of null."""

    size: int
    time_at: int
    offset_at: int
    key_length_at: int
    key_at: int
    key_size: int
    value_length_at: int
    value_at: int
    value_size: int

    @property
    def same(self) -> list[int]:
        """The places behind the numbers that have to be the same in each."""
        return [
            *range(self.key_length_at, self.key_at),
            *range(self.value_length_at, self.value_at),
            self.size - 1,
        ]

    @property
    def constant(self) -> list[int]:
        """The places that are the same in each."""
        return [*range(self.time_at), *self.same]


def sound_run(data: Buffer, position: int, most: int, delta: int | None) -> tuple[int, int]:
    """Return how many records from `position` on are sound and laid out alike, and their size.

    Up to `most` are looked at, and (0, 0) is returned where they are fewer than `LEAST`: then
    nothing is known about them. With `delta` their offset deltas have to count up from there.
    """
    count, size = _run_of_one_size(data, position, most)
    if count < LEAST:
        return 0, 0
    layout = _sound_layout(data, position, position + size)
    if layout is None:
        return 0, 0
    run: Buffer = data[position : position + count * size]
    if size <= _SMALL:
        run = bytes(run)
    for place in layout.same:
        column = bytes(run[place : count * size : size])
        count -= len(column.lstrip(column[:1]))
    numbers = range(layout.time_at, layout.key_length_at)
    columns = [bytes(run[place : count * size : size]) for place in numbers]
    times = columns[: layout.offset_at - layout.time_at]
    offsets = columns[len(times) :]
    if not (_of_one_width(times) and _of_one_width(offsets)):
        return 0, 0
    if delta is not None:
        below, expected = _DELTAS.get(len(offsets), (0, ()))
        count = min(count, below - delta)
        for column, counted in zip(offsets, expected, strict=False):
            if column[:count] != counted[delta : delta + count]:
                return 0, 0
    return (count, size) if count >= LEAST else (0, 0)


def _of_one_width(columns: list[bytes]) -> bool:
    """Return whether each number goes on in every column but the last, where it ends."""
    *before, last = columns
    return last.isascii() and not any(column.translate(None, _GOING_ON) for column in before)


def _sound_layout(data: Buffer, begin: int, end: int) -> _Layout | None:
    """Return the layout of a record without headers; None where it is another, or not sound."""
    try:
        layout = _layout(data, begin, end)
        no_headers = data[end - 1] == 0
    except (IndexError, CorruptRecordError):
        return None
    is_whole = layout.value_at + max(layout.value_size, 0) == layout.size - 1
    is_narrow = (
        layout.offset_at - layout.time_at <= _LONGEST_TIME
        and layout.key_length_at - layout.offset_at < 5
    )
    return layout if is_whole and no_headers and is_narrow else None


def _run_of_one_size(data: Buffer, position: int, most: int) -> tuple[int, int]:
    """Return how many records, up to `most`, have the first one's length, and their size."""
    try:
        length, begin = read_varint(data, position)
    except IndexError:
        return 0, 0
    if length < 1:
        return 0, 0
    size = begin - position + length
    count = min(most, (len(data) - position) // size)
    if count > LEAST and data[position] != data[position + (LEAST - 1) * size]:
        count = LEAST  # most often there is none, and many need not be looked at
    for at in range(position, begin):
        column = bytes(data[at : position + count * size : size])
        count -= len(column.lstrip(column[:1]))
    return count, size


def read_alike(
    data: bytes, begin: int, end: int, *, base_timestamp: int, offset_delta: int, most: int
) -> Alike | None:
    """Up to `most` records behind the one from `begin` to `end`, which has been read and is at
    `offset_delta`; None where they are not alike.
    """
    layout = _layout(data, begin, end)
    stride = layout.size
    below, expected = _DELTAS.get(layout.key_length_at - layout.offset_at, (0, ()))
    first = offset_delta + 1
    count = min(most, below - first, (len(data) - end) // stride) if offset_delta >= 0 else 0
    for place in layout.constant:
        if count < LEAST:
            return None
        column = data[end + place : end + count * stride : stride]
        count -= len(column.lstrip(data[begin + place : begin + place + 1]))
    stop = end + count * stride
    for place, counted in enumerate(expected, layout.offset_at):
        if data[end + place : stop : stride] != counted[first : first + count]:
            return None
    columns = [data[end + at : stop : stride] for at in range(layout.time_at, layout.offset_at)]
    if count < LEAST or (times := _times(columns, base_timestamp)) is None:
        return None
    return Alike(times, *_contents(memoryview(data)[end:stop], layout, count))


def _layout(data: Buffer, begin: int, end: int) -> _Layout:
    _, time_at = read_varint(data, begin)
    time_at += 1  # behind the attributes
    _, offset_at = read_varlong(data, time_at)
    _, key_length_at = read_varint(data, offset_at)
    key_size, key_at = read_varint(data, key_length_at)
    value_length_at = key_at + max(key_size, 0)
    value_size, value_at = read_varint(data, value_length_at)
    return _Layout(
        end - begin,
        time_at - begin,
        offset_at - begin,
        key_length_at - begin,
        key_at - begin,
        key_size,
        value_length_at - begin,
        value_at - begin,
        value_size,
    )


def _times(columns: list[bytes], base: int) -> Sequence[int] | None:
    """Return a time for each record; None where some have not as many bytes as there are columns."""
    *before, last = columns
    if (
        len(columns) > _LONGEST_TIME
        or max(last) > 0x7F
        or any(min(column) < 0x80 for column in before)
    ):
        return None
    each = [*zip(*columns, strict=True)]
    read = {time: base + read_varlong(bytes(time), 0)[0] for time in set(each)}
    if len(read) == 1:
        return list(read.values()) * len(each)
    return [read[time] for time in each]


def _contents(
    run: memoryview, layout: _Layout, count: int
) -> tuple[Sequence[bytes | None], Sequence[bytes | None]]:
    key_size, value_size = layout.key_size, layout.value_size
    nothing: list[bytes | None] = [None] * count
    found = _format(
        layout.key_at,
        max(key_size, 0),
        layout.value_at - layout.value_length_at,
        max(value_size, 0),
    ).iter_unpack(run)
    keys, values = zip(*found, strict=True)
    return nothing if key_size < 0 else keys, nothing if value_size < 0 else values


@lru_cache(maxsize=64)
def _format(before: int, key_size: int, between: int, value_size: int) -> Struct:
    """Return the layout that takes key and value out of a record."""
    return Struct(f"{before}x{key_size}s{between}x{value_size}sx")


class PlainColumns(NamedTuple):
    """The offsets, timestamps, keys and values of records without headers, a column each."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]


def decode_plain(  # noqa: PLR0912, PLR0915 - one loop
    data: bytes, count: int, *, base_offset: int, base_timestamp: int
) -> PlainColumns | None:
    """`count` records, which have to be all of `data`."""
    if not (-FAR < base_offset < FAR and -FAR < base_timestamp < FAR):
        return None  # their sums may be of more than 64 bits
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    signed = ONE_BYTE
    position, size, stride = 0, len(data), 0
    done, next_look, pause = 0, 1, 1
    try:
        while done < count:
            begin = position
            byte = data[position]
            if byte < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                byte, position = byte & 0x7F | second << 7, position + 2
            else:
                length, position = read_varint(data, position)
                byte = length << 1
            end = position + (byte >> 1)
            if byte & 1 or end > size:
                return None
            byte = data[position + 1]  # behind the attributes
            if byte < 0x80:
                timestamp_delta, position = signed[byte], position + 2
            else:
                timestamp_delta, position = read_varlong(data, position + 1)
                if not -FAR < timestamp_delta < FAR:
                    return None
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = signed[byte], position + 1
            elif (second := data[position + 1]) < 0x80:
                byte = byte & 0x7F | second << 7
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte == 1:
                position += 1
            else:
                if byte < 0x80:
                    length, position = signed[byte], position + 1
                else:
                    length, position = read_varint(data, position)
                if length < 0:
                    return None
                keys += repeat(None, done - len(keys))
                keys.append(data[position : position + length])
                position += length
            byte = data[position]
            if byte == 1:
                value, position = None, position + 1
            else:
                if byte < 0x80:
                    position += 1
                elif (second := data[position + 1]) < 0x80:
                    byte, position = byte & 0x7F | second << 7, position + 2
                else:
                    length, position = read_varint(data, position)
                    byte = length << 1 if length >= 0 else 1
                if byte & 1:
                    return None
                value = data[position : position + (byte >> 1)]
                position += byte >> 1
            if position + 1 != end or data[position]:
                return None
            position = end
            done += 1
            offsets.append(base_offset + offset_delta)
            timestamps.append(base_timestamp + timestamp_delta)
            values.append(value)
            if end - begin != stride:
                stride = end - begin
            elif done >= next_look and (left := count - done) >= LEAST:
                found = read_alike(
                    data,
                    begin,
                    end,
                    base_timestamp=base_timestamp,
                    offset_delta=offset_delta,
                    most=left,
                )
                if found is None:
                    # The rarer runs are, the more rarely they are looked for.
                    next_look, pause = done + pause, 2 * pause
                else:
                    first = offsets[-1] + 1
                    offsets += range(first, first + len(found.values))
                    timestamps += found.timestamps
                    keys += repeat(None, done - len(keys))
                    keys += found.keys
                    values += found.values
                    done = len(values)
                    position = begin + stride * (1 + len(found.values))
                    pause = 1
    except (IndexError, CorruptRecordError):
        return None
    if position != size:
        return None
    keys += repeat(None, done - len(keys))
    return PlainColumns(offsets, timestamps, keys, values)
