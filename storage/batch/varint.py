"""Zig-zag base-128 numbers: small ones of either sign are short (Kafka's ByteUtils).

0 -> 00   -1 -> 01   1 -> 02   63 -> 7e   -64 -> 7f   64 -> 80 01
"""

from typing import Final

from storage.errors import CorruptRecordError
from storage.types import Buffer

BELOW_TWO_BYTES: Final = 64
"""A smaller number is one byte."""
# Those of 0 to 8191, all of one or two bytes: nearly every number in a batch.
VARINTS: Final = (
    *(bytes((2 * n,)) for n in range(BELOW_TWO_BYTES)),
    *(bytes((2 * n & 0x7F | 0x80, n >> 6)) for n in range(BELOW_TWO_BYTES, 8192)),
)
ONE_BYTE: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def varint(value: int) -> bytes:
    """`value` in zig-zag base 128."""
    if 0 <= value < len(VARINTS):
        return VARINTS[value]
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the 32-bit number at `position`, and the position after it. Raise IndexError past the
    end.
    """
    byte = data[position]
    if byte < 0x80:
        return ONE_BYTE[byte], position + 1
    high = data[position + 1]
    if high < 0x80:
        value = byte & 0x7F | high << 7
        return (value >> 1) ^ -(value & 1), position + 2
    return _read_wide(data, position, bits=32)


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return the 64-bit number at `position`, and the position after it. Raise IndexError past the
    end.
    """
    byte = data[position]
    if byte < 0x80:
        return ONE_BYTE[byte], position + 1
    return _read_wide(data, position, bits=64)


def _read_wide(data: Buffer, position: int, *, bits: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), position
    raise CorruptRecordError(f"a varint of more than {bits} bits")
