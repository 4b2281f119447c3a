"""The records of a batch, where they are what nearly all records are.

    length | 0 | timestamp delta | offset delta | key length, key | value length, value | 0

no headers, and no number of more than two bytes but where a record or its time is large. What
is anything else, or wrong, is left to `storage.batch.records`, which reads it all again and says what
is wrong with it: here it is None.

Rule: each function is one loop, without a call for each number. It is what a consumer spends most
of its time in, and a leader much of it, where records are not alike (`alike_records`). Without them
records with keys, of 60 to 140 bytes, take 1.5 times as long to decode, and 2.2 times to check.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

from storage.batch.alike_records import LEAST, read_alike
from storage.batch.varint import ONE_BYTE, read_varint, read_varlong
from storage.errors import CorruptRecordError
from storage.types import Buffer

FAR: Final = 1 << 62


class PlainColumns(NamedTuple):
    """What records without headers consist of."""

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


def sound_plain(  # noqa: PLR0912, PLR0915 - one loop
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
