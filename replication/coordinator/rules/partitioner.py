"""Which partition of `__consumer_offsets` a group lives in (GroupMetadataManager.partitionFor)."""

from typing import Final

_WORD: Final = 1 << 32
_LEAST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over the UTF-16 code units, in 32 bits with a sign."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) % _WORD
    return value - _WORD if value >= -_LEAST else value


def partition_for(group_id: str, partitions: int) -> int:
    """Utils.abs(hash) % partitions; the one number without a positive twin counts as 0."""
    value = java_hash(group_id)
    return (0 if value == _LEAST else abs(value)) % partitions
