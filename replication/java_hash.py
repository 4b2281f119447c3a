"""Java's hash of strings, by which Kafka spreads names evenly over a fixed number of places.

A group's hash selects the partition of `__consumer_offsets` that keeps the group, and the hash of a
partition selects the fetcher that follows it. (String.hashCode, Utils.abs.)
"""

from typing import Final

_WORD: Final = 1 << 32
_LEAST: Final = -(1 << 31)


def java_string_hash(text: str) -> int:
    """Return `String.hashCode`: over the UTF-16 code units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) % _WORD
    return _signed(value)


def java_pair_hash(text: str, number: int) -> int:
    """Return the hash that Java gives to a string and a number in this order."""
    return _signed(31 * java_string_hash(text) + number)


def place_of(java_hash: int, places: int) -> int:
    """Return `Utils.abs(hash) % places`; the least integer, which has no positive twin, counts as 0."""
    return (0 if java_hash == _LEAST else abs(java_hash)) % places


def _signed(value: int) -> int:
    value %= _WORD
    return value - _WORD if value >= -_LEAST else value
