"""Memory that has been used before, for what is written into the page cache.

The host of a virtual machine takes memory back that its guest has freed, and a page that is used
for the first time afterwards costs a fault on the host: 2.4 ms of processor time for each MiB that
is written, instead of 0.2 ms. A machine that has been at work for a while has no such memory. With
three replicas it would be more than half of the brokers' work in the benchmark of produced records, for
either side.

So memory is touched before a round, and given back in the pace in which the round needs it.
"""

import mmap

AHEAD = 512 * 1024**2
"""The bytes that are given back before they are needed; the host leaves as much alone."""


class WarmMemory:
    """A number of bytes that this process has touched and gives back bit by bit."""

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._memory = mmap.mmap(-1, size, flags=flags)
        self._given_back = 0

    def give_back(self, needed: int) -> None:
        """Give back what is needed until `needed` bytes have been written, and some more."""
        until = min(needed + AHEAD, len(self._memory)) // mmap.PAGESIZE * mmap.PAGESIZE
        if until > self._given_back:
            count = until - self._given_back
            self._memory.madvise(mmap.MADV_DONTNEED, self._given_back, count)
            self._given_back = until

    def close(self) -> None:
        self._memory.close()
