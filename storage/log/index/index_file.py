"""A file of fixed-size entries that only grows at its end: what both indexes stand on.

While its segment is active the file is preallocated: entries, then zeroes.

    [entry 0][entry 1][entry 2][ 0 0 0 ... ]        entry_count 3, max_entries file size / entry size

Rule 1: a new file is preallocated to `max_size`. One that was there counts as full: its
entries are all of it, and there is no room until `resize` makes some.

Rule 2: nothing is held in memory but the count. A lookup reads a few entries to find the
right block and then that one block; the kernel's page cache does the rest.

(Kafka's AbstractIndex maps the file. A map of a file that gets truncated kills its reader with
SIGBUS.)
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, Self

import attrs

from storage.errors import CorruptIndexError
from storage.filesystem import File, FileSystem
from storage.types import Buffer

_BLOCK_ENTRIES: Final = 512


@attrs.define(eq=False)
class IndexFile:
    """Entries of `layout` in `file`."""

    file: File
    layout: struct.Struct
    length: int
    entry_count: int
    # Asked for at each append.
    max_entries: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.max_entries = self.length // self.layout.size

    @classmethod
    def open(
        cls, file_system: FileSystem, path: str, *, layout: struct.Struct, max_size: int
    ) -> Self:
        """Open the file at `path`, made and preallocated where it is not there yet."""
        try:
            file = file_system.open(path)
        except FileNotFoundError:
            file = file_system.open(path, create=True)
        else:
            length = file.size()
            return cls(file, layout, length, length // layout.size)
        length = _round_down(max_size, layout.size)
        file.truncate(length)
        return cls(file, layout, length, 0)

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the entries, whatever the file's length."""
        return self.entry_count * self.layout.size

    def check_length(self) -> None:
        if self.length % self.layout.size:
            raise CorruptIndexError(
                f"{self.file.path}: {self.length} bytes are no whole number"
                f" of {self.layout.size}-byte entries"
            )

    def entry(self, index: int) -> tuple[int, ...]:
        assert 0 <= index < self.entry_count, "an index is asked only for entries that it has"
        data = self.file.read(index * self.layout.size, self.layout.size)
        if len(data) < self.layout.size:
            raise CorruptIndexError(f"{self.file.path}: cut short while it was open")
        return self.layout.unpack(data)

    def entries(self) -> Iterator[tuple[int, ...]]:
        """Yield each entry, read a block at a time."""
        for start in range(0, self.entry_count, _BLOCK_ENTRIES):
            yield from self._block(start, min(start + _BLOCK_ENTRIES, self.entry_count))

    def append(self, *values: int) -> None:
        assert self.entry_count < self.max_entries, "an index is appended to only while it has room"
        self.file.write(self.size_in_bytes, self.layout.pack(*values))
        self.entry_count += 1

    def extend(self, data: Buffer) -> None:
        """Append whole entries in one write."""
        self.file.write(self.size_in_bytes, data)
        self.entry_count += len(data) // self.layout.size
        assert self.entry_count <= self.max_entries, "an index is filled only while it has room"

    def count_while(self, holds: Callable[[tuple[int, ...]], bool]) -> int:
        """Return for how many entries from the start `holds` is true, if it never turns true again."""
        low, high = 0, self.entry_count
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if holds(self.entry(middle)):
                low = middle + 1
            else:
                high = middle
        block = self._block(low, high)
        first, last = 0, len(block)
        while first < last:
            middle = (first + last) // 2
            if holds(block[middle]):
                first = middle + 1
            else:
                last = middle
        return low + first

    def truncate_to_count(self, entry_count: int) -> None:
        """Forget the entries from `entry_count` on; the file keeps its length."""
        assert 0 <= entry_count <= self.entry_count, "truncation never adds entries"
        self.entry_count = entry_count

    def resize(self, size: int) -> None:
        """Give the file `size` bytes, rounded down to whole entries."""
        length = _round_down(size, self.layout.size)
        if length == self.length:
            return
        assert length >= self.size_in_bytes, "a resize never cuts entries off"
        self.file.truncate(length)
        self.length = length
        self.max_entries = length // self.layout.size

    def _block(self, low: int, high: int) -> list[tuple[int, ...]]:
        size = self.layout.size
        data = self.file.read(low * size, (high - low) * size)
        if len(data) < (high - low) * size:
            raise CorruptIndexError(f"{self.file.path}: cut short while it was open")
        return list(self.layout.iter_unpack(data))


def _round_down(size: int, factor: int) -> int:
    return size - size % factor
