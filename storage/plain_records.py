"""The records of a batch, where they are what nearly all records are.

    length | 0 | timestamp delta | offset delta | key length, key | value length, value | 0

no headers, and no number of more than two bytes but where a record or its time is large. What
is anything else, or wrong, is left to `storage.records`, which reads it all again and says what
is wrong with it: here it is None.

Rule: one loop, without a call for each number. It is what a consumer spends most of its time in.
"""

from typing import Final, TypeAlias

from storage.record_batch import MAX_SEQUENCE, NO_SEQUENCE
from storage.varint import read_varint, read_varlong

# Offset, timestamp, key, value, no headers, sequence: what a Record is.
PlainRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[()], int]
_FAR: Final = 1 << 62


def decode_plain(  # noqa: PLR0912, PLR0915 - one loop
    data: bytes, count: int, *, base_offset: int, base_timestamp: int, base_sequence: int
) -> list[PlainRecord] | None:
    """`count` records, which have to be all of `data`."""
    if not (-_FAR < base_offset < _FAR and -_FAR < base_timestamp < _FAR):
        return None  # their sums may be of more than 64 bits
    records: list[PlainRecord] = []
    position, size = 0, len(data)
    try:
        for _ in range(count):
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
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = read_varlong(data, position + 1)
                if not -_FAR < timestamp_delta < _FAR:
                    return None
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte == 1:
                key, position = None, position + 1
            else:
                if byte < 0x80:
                    length, position = (byte >> 1) ^ -(byte & 1), position + 1
                else:
                    length, position = read_varint(data, position)
                if length < 0:
                    return None
                key = data[position : position + length]
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
            records.append(
                (
                    base_offset + offset_delta,
                    base_timestamp + timestamp_delta,
                    key,
                    value,
                    (),
                    NO_SEQUENCE
                    if base_sequence == NO_SEQUENCE
                    else base_sequence + offset_delta & MAX_SEQUENCE,
                )
            )
    except IndexError:
        return None
    return records if position == size else None
