"""What the offset index and the time index of a segment share.

    SegmentIndex      base offset, one `IndexFile`, its room and its end
      OffsetIndex     (offset, position)
      TimeIndex       (timestamp, offset)

An index keeps its last entry at hand: every append asks for it, and the file is not read for
that. Whatever moves the file's end tells the subclass to find it again.

(AbstractIndex in Kafka.)
"""

from abc import ABC, abstractmethod
from typing import Final

import attrs

from storage.log.index.index_file import IndexFile
from storage.types import Offset

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


@attrs.define(eq=False)
class SegmentIndex(ABC):
    """Entries that name offsets relative to `base_offset`, the segment's."""

    base_offset: Offset
    _file: IndexFile

    @abstractmethod
    def _find_last(self) -> None:
        """Take the last entry from the file, after the file's end has moved."""

    @property
    def path(self) -> str:
        return self._file.file.path

    @property
    def entry_count(self) -> int:
        return self._file.entry_count

    @property
    def max_entries(self) -> int:
        return self._file.max_entries

    @property
    def length(self) -> int:
        """The file's length in bytes, preallocated room included."""
        return self._file.length

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the entries, without the room behind them."""
        return self._file.size_in_bytes

    def can_append_offset(self, offset: Offset) -> bool:
        """Return whether `offset` can be written relative to the base."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def fill(self, entries: bytes | bytearray) -> None:
        """Append entries that are in order, as they stand in the file."""
        self._file.extend(entries)
        self._find_last()

    def reset(self, *, max_size: int) -> None:
        """Empty the index, with room for `max_size` bytes."""
        self._file.truncate_to_count(0)
        self._file.resize(max_size)
        self._find_last()

    def resize(self, size: int) -> None:
        """Make room for `size` bytes of entries."""
        self._file.resize(size)

    def trim(self) -> None:
        """Give up the preallocated room: the segment is closed or no longer active."""
        self._file.resize(self._file.size_in_bytes)

    def flush(self) -> None:
        self._file.file.sync()

    def close(self) -> None:
        """Release the file as it is; `trim` first, unless this is a crash."""
        self._file.file.close()
