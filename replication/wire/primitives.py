"""Varints, and the errors for bytes that are not the protocol.

An unsigned varint carries seven bits a byte, least significant first; every byte but the
last has its top bit set. Kafka's are 32 bits wide, so five bytes at most.

Compact lengths and counts are varints one too large: 0 is null, 1 is empty (KIP-482).
"""

from replication.errors import ProtocolError

MAX_TAGS = 100
"""The tagged fields that one section may have; no message of Kafka's has ten."""

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The varints that most messages are full of."""


def uvarint(value: int) -> bytes:
    """Return `value` as an unsigned varint."""
    assert 0 <= value < 1 << 32, "a varint of the protocol is an unsigned 32-bit number"
    # Unrolled: every partition with records in a Fetch comes by here with three bytes.
    if value < 1 << 7:
        return ONE_BYTE[value]
    low, second = value & 0x7F | 0x80, value >> 7 & 0x7F
    if value < 1 << 14:
        return bytes((low, second))
    if value < 1 << 21:
        return bytes((low, second | 0x80, value >> 14))
    return bytes((low, second | 0x80, value >> 14 & 0x7F | 0x80)) + uvarint(value >> 21)


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at `position`, and its end. IndexError if the frame ends first."""
    value = frame[position]
    if value < 0x80:
        return value, position + 1
    byte = frame[position + 1]
    value += (byte << 7) - (1 << 7)
    if byte < 0x80:
        return value, position + 2
    byte = frame[position + 2]
    value += (byte << 14) - (1 << 14)
    if byte < 0x80:
        return value, position + 3
    return _read_long_uvarint(frame, position, value - (1 << 21))


def _read_long_uvarint(frame: memoryview, position: int, value: int) -> tuple[int, int]:
    """Return a varint of four or five bytes, of which three add up to `value`, and its end."""
    for at in (3, 4):
        byte = frame[position + at]
        value += (byte & 0x7F) << 7 * at
        if byte < 0x80 and value < 1 << 32:
            return value, position + at + 1
    raise ProtocolError(f"a varint at byte {position} that does not fit 32 bits")


def skip_tags(frame: memoryview, position: int) -> int:
    """Return the end of a tagged section of unknown fields."""
    count, position = read_uvarint(frame, position)
    if count > MAX_TAGS:
        raise too_many_tags(count)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        check_end(frame, position)
    return position


def check_end(frame: memoryview, end: int) -> None:
    """Raise ProtocolError if `end` is behind the end of the frame."""
    if end > len(frame):
        raise ProtocolError(f"something that ends at byte {end} of a frame of {len(frame)}")


def bad_length(name: str, length: int, left: int) -> ProtocolError:
    """Return the error for a length or count that is negative or that the frame cannot hold."""
    what = "null" if length == -1 else f"of length {length}"
    return ProtocolError(f"{name} is {what}, with {left} bytes left in the frame")


def bad_tag(name: str, size: int) -> ProtocolError:
    """Return the error for a tagged field that does not end where its size says."""
    return ProtocolError(f"tagged field {name} does not fill the {size} bytes announced")


def too_many_tags(count: int) -> ProtocolError:
    """Return the error for a tagged section with more fields than `MAX_TAGS`."""
    return ProtocolError(f"{count} tagged fields; the limit is {MAX_TAGS}")


def too_many_items() -> ProtocolError:
    """Return the error for a message whose arrays have too many items together."""
    return ProtocolError("its arrays have too many items")
