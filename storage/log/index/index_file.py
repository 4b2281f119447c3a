"""A file of fixed-size entries that only grows at its end: what the offset and time index stand on.

While its segment is active the file is preallocated: entries, then zeroes.

    [entry 0][entry 1][entry 2][ 0 0 0 ... ]        entry_count 3, max_entries file size / entry size

Rule 1: a new file is preallocated to `max_size`. One that was there counts as full: its
entries are all of it, and there is no room until `resize` makes some.

Rule 2: nothing is held in memory but the count, and the last entry, which every append asks for.
A lookup reads a few entries to find the right block and then that one block; the kernel's page
cache does the rest.

(Kafka's AbstractIndex maps the file. A map of a file that gets truncated kills its reader with
SIGBUS.)
"""

import struct
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, Self

import attrs

from storage.attributes import define
from storage.errors import CorruptIndexError
from storage.filesystem import File, FileSystem
from storage.types import Buffer, Offset

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_BLOCK_ENTRIES: Final = 512

RawEntry = tuple[int, ...]


@define(eq=False)
class IndexFile:
    """Entries of `layout` in `file`, which name offsets relative to `base_offset`, the segment's."""

    layout: ClassVar[struct.Struct]

    file: File
    base_offset: Offset
    # In bytes, preallocated room included.
    length: int = attrs.field(init=False)
    entry_count: int = attrs.field(init=False)
    # Asked for at each append.
    max_entries: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.length = self.file.size()
        self.entry_count = self.max_entries = self.length // self.layout.size
        self._find_last()

    @classmethod
    def open(
        cls, file_system: FileSystem, path: str, *, base_offset: Offset, max_size: int
    ) -> Self:
        """Open the file at `path`, made and preallocated where it is not there yet."""
        try:
            return cls(file_system.open(path), base_offset)
        except FileNotFoundError:
            index = cls(file_system.open(path, create=True), base_offset)
            index.resize(max_size)
            return index

    def _find_last(self) -> None:
        """Take the last entry from the file, after the file's end has moved."""
        raise NotImplementedError

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the entries, without the room behind them."""
        return self.entry_count * self.layout.size

    def can_append_offset(self, offset: Offset) -> bool:
        """Return whether `offset` can be written relative to the base."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def fill(self, entries: Buffer) -> None:
        """Append whole entries that are in order, as they stand in the file, in one write."""
        self._write(entries)
        self._find_last()

    def reset(self, *, max_size: int) -> None:
        """Empty the index, with room for `max_size` bytes."""
        self._keep(0)
        self.resize(max_size)

    def resize(self, size: int) -> None:
        """Give the file `size` bytes, rounded down to whole entries."""
        length = size - size % self.layout.size
        if length == self.length:
            return
        assert length >= self.size_in_bytes, "a resize never cuts entries off"
        self.file.truncate(length)
        self.length = length
        self.max_entries = length // self.layout.size

    def trim(self) -> None:
        """Give up the preallocated room: the segment is closed or no longer active."""
        self.resize(self.size_in_bytes)

    def flush(self) -> None:
        self.file.sync()

    def close(self) -> None:
        """Release the file as it is; `trim` first, unless this is a crash."""
        self.file.close()

    # For the two kinds of index.

    def _raw_entry(self, index: int) -> RawEntry:
        assert 0 <= index < self.entry_count, "an index is asked only for entries that it has"
        return self._block(index, index + 1)[0]

    def _raw_entries(self) -> Iterator[RawEntry]:
        """Yield each entry, read a block at a time."""
        for start in range(0, self.entry_count, _BLOCK_ENTRIES):
            yield from self._block(start, min(start + _BLOCK_ENTRIES, self.entry_count))

    def _write(self, entries: Buffer) -> None:
        self.file.write(self.size_in_bytes, entries)
        self.entry_count += len(entries) // self.layout.size
        assert self.entry_count <= self.max_entries, "an index is filled only while it has room"

    def _count_while(self, holds: Callable[[RawEntry], bool]) -> int:
        """Return for how many entries from the start `holds` is true, if it never turns true again."""
        low, high = 0, self.entry_count
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if holds(self._raw_entry(middle)):
                low = middle + 1
            else:
                high = middle
        data, start, size = self._bytes(low, high), low, self.layout.size
        unpack_from = self.layout.unpack_from
        while low < high:
            middle = (low + high) // 2
            if holds(unpack_from(data, (middle - start) * size)):
                low = middle + 1
            else:
                high = middle
        return low

    def _keep(self, entry_count: int) -> None:
        """Forget the entries from `entry_count` on; the file keeps its length."""
        assert 0 <= entry_count <= self.entry_count, "truncation never adds entries"
        self.entry_count = entry_count
        self._find_last()

    def _check_length(self) -> None:
        if self.length % self.layout.size:
            raise CorruptIndexError(
                f"{self.path}: {self.length} bytes are no whole number"
                f" of {self.layout.size}-byte entries"
            )

    def _block(self, low: int, high: int) -> list[RawEntry]:
        return list(self.layout.iter_unpack(self._bytes(low, high)))

    def _bytes(self, low: int, high: int) -> bytes:
        size = self.layout.size
        data = self.file.read(low * size, (high - low) * size)
        if len(data) < (high - low) * size:
            raise CorruptIndexError(f"{self.path}: cut short while it was open")
        return data
