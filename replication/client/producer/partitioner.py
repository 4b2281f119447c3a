"""The partition of a record whose sender does not name one.

    key     murmur2(key) without its sign, modulo the number of partitions: the same for every
            client, so that records of one key stay in one partition
    none    one partition until a batch of it is full, then another (KIP-480, KIP-794): fewer
            and fuller batches than one record here and the next one there

The next sticky partition is drawn: the fewer batches wait for it, the likelier it is, so that
a slow broker is not handed what it cannot take.

(org.apache.kafka.common.utils.Utils.murmur2, BuiltInPartitioner.)
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import attrs

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF
_WITHOUT_SIGN: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data`, unsigned (Kafka's is the same number, signed)."""
    length = len(data)
    whole = length & ~3
    value = _SEED ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=4096)
def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of all records of `key` (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & _WITHOUT_SIGN) % partition_count


@attrs.define(eq=False)
class StickyPartitioner:
    """The partition for a topic's records without a key, changed after `batch_bytes`."""

    batch_bytes: int
    draw: Callable[[int], int]
    """Returns a random number from 0 to below the one given."""
    partition: int | None = attrs.field(default=None, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    def choose(self, waiting: Callable[[], Sequence[tuple[int, int]]]) -> int:
        """Return the partition for the next record.

        `waiting` is called for a new choice: it returns each partition that may be chosen, with
        the number of batches that wait for it.
        """
        if self.partition is None:
            self.partition, self._bytes = draw_partition(waiting(), self.draw), 0
        return self.partition

    def appended(self, size: int, *, batch_is_full: bool) -> None:
        """Count `size` bytes for the partition; between batches another one may take over.

        A batch that is not full would be sent half empty: then the partition stays, up to twice
        as many bytes (BuiltInPartitioner.updatePartitionInfo).
        """
        self._bytes += size
        if self._bytes >= (self.batch_bytes if batch_is_full else 2 * self.batch_bytes):
            self.partition = None


def draw_partition(waiting: Sequence[tuple[int, int]], draw: Callable[[int], int]) -> int:
    """Draw a partition; its probability falls linearly with the batches that wait for it."""
    most = max(batches for _, batches in waiting)
    weights = list(accumulate(most + 1 - batches for _, batches in waiting))
    drawn = draw(weights[-1])
    return next(
        partition for (partition, _), weight in zip(waiting, weights, strict=True) if drawn < weight
    )
