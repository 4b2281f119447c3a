"""Key -> the offset of its last record, in memory of a fixed size.

    a slot    offset + 1, i64 (0: free) | MD5 of the key, 16 bytes       24 bytes
    lookup    the hash says where to begin; go on until the key or a free slot

Keys themselves are not kept: of 2^64 of them two might share a hash. Filled to nine tenths
(`log.cleaner.io.buffer.load.factor`) and no further, so that a miss ends soon: the default
of 128 MiB holds five million keys. The kernel commits the memory page by page as it fills.
(SkimpyOffsetMap in Kafka.)
"""

import mmap
import struct
from typing import Final

from storage.types import NO_OFFSET, Offset

try:
    # CPython's own. With OpenSSL's, which makes a context for each call, compaction of records of
    # 100 bytes takes a seventh longer.
    from _md5 import md5  # type: ignore[import-not-found,unused-ignore]  # not in every build
except ImportError:  # pragma: no cover
    from hashlib import md5  # type: ignore[assignment,unused-ignore]  # the same function

SLOT_SIZE: Final = 24
CELLS_PER_SLOT: Final = 3
LOAD_FACTOR: Final = 0.9

_halves = struct.Struct("=qq").unpack


class OffsetMap:
    def __init__(self, memory: int, *, load_factor: float = LOAD_FACTOR) -> None:
        self.slots = memory // SLOT_SIZE
        self.most = int(self.slots * load_factor)
        if self.most < 1:
            raise ValueError(f"{memory} bytes are too few for an offset map")
        self.size = 0
        # The last offset that has been looked at, with or without a key.
        self.latest_offset: Offset = NO_OFFSET
        # Three for each slot: the offset, and the two halves of the hash.
        self.cells = memoryview(mmap.mmap(-1, self.slots * SLOT_SIZE)).cast("q")

    @property
    def is_full(self) -> bool:
        return self.size >= self.most

    @property
    def utilization(self) -> float:
        return self.size / self.slots

    def put(self, key: bytes, offset: Offset) -> None:
        """`key` was last seen at `offset`."""
        assert self.size < self.slots, "a full map would be searched for ever"
        high, low = _halves(md5(key).digest())  # noqa: S324 - Kafka's choice; nothing secret
        cells = self.cells
        cell = low % self.slots * CELLS_PER_SLOT
        while cells[cell]:
            if cells[cell + 1] == high and cells[cell + 2] == low:
                break
            cell += CELLS_PER_SLOT
            if cell == len(cells):
                cell = 0
        else:
            cells[cell + 1] = high
            cells[cell + 2] = low
            self.size += 1
        cells[cell] = offset + 1

    def get(self, key: bytes) -> Offset:
        """-1 for a key that is not in it."""
        high, low = _halves(md5(key).digest())  # noqa: S324 - Kafka's choice; nothing secret
        cells = self.cells
        cell = low % self.slots * CELLS_PER_SLOT
        while found := cells[cell]:
            if cells[cell + 1] == high and cells[cell + 2] == low:
                return int(found - 1)
            cell += CELLS_PER_SLOT
            if cell == len(cells):
                cell = 0
        return NO_OFFSET

    def saw(self, offset: Offset) -> None:
        """Everything up to `offset` has been looked at."""
        self.latest_offset = max(self.latest_offset, offset)
