"""Which transactions were aborted, and between which offsets: a segment's `.txnindex`.

    version i16 = 0 | producer_id i64 | first offset i64 | last offset i64 | last stable offset i64

    log      [p7: 10-12][p8: 13-13][p7: 14-14][abort p7: 15][commit p8: 16]
    entry    (p7, first 10, last 15, last stable 13)     p8 was still open then

An entry stands in the segment that holds its marker, at `last offset`; the transaction may have
begun segments before. A reader of what is committed is given the aborted transactions that
overlap its records, and skips theirs (KIP-98).

Rule 1: there is a file only where something was aborted, and entries only go up.

Rule 2: entries are derived from the batches. Replaying the batches finds the entry there, or adds
it; what a crash may have torn is emptied first.

Rule 3: no later entry overlaps a read that ends at or below the `last stable offset` of one: all
that was open there began at or behind it. A search stops at such an entry.

(TransactionIndex, AbortedTxn in Kafka.)
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from storage.attributes import define
from storage.errors import CorruptIndexError
from storage.filesystem import File, FileSystem
from storage.types import NO_OFFSET, Offset

ENTRY_SIZE: Final = 34
_VERSION: Final = 0
_LAYOUT: Final = struct.Struct(">hqqqq")
_BLOCK_BYTES: Final = 512 * ENTRY_SIZE


class AbortedTransaction(NamedTuple):
    """Its first record, the marker that ended it, and up to where the log was stable then."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    def overlaps(self, start_offset: Offset, upper_bound: Offset) -> bool:
        return self.last_offset >= start_offset and self.first_offset < upper_bound


@define(eq=False)
class TransactionIndex:
    """The `.txnindex` at `path`, which need not be there."""

    file_system: FileSystem
    path: str
    _file: File | None
    _length: int
    _last_offset: Offset

    @classmethod
    def open(cls, file_system: FileSystem, path: str) -> "TransactionIndex":
        file = file_system.open(path) if file_system.exists(path) else None
        index = cls(file_system, path, file, file.size() if file else 0, NO_OFFSET)
        if file is not None and index.entry_count:
            # Whether it is sound is another question: one that is not can still be emptied.
            last = file.read((index.entry_count - 1) * ENTRY_SIZE, ENTRY_SIZE)
            index._last_offset = _LAYOUT.unpack(last)[3]
        return index

    @property
    def exists(self) -> bool:
        return self._file is not None

    @property
    def entry_count(self) -> int:
        return self._length // ENTRY_SIZE

    @property
    def last_offset(self) -> Offset:
        """The last offset of the last entry; -1 where there is none."""
        return self._last_offset

    def append(self, entry: AbortedTransaction) -> None:
        """Append an entry; the first one makes the file."""
        assert entry.last_offset > self._last_offset, "transactions end in the order of the log"
        if self._file is None:
            self._file = self.file_system.open(self.path, create=True)
        self._file.write(self._length, _LAYOUT.pack(_VERSION, *entry))
        self._length += ENTRY_SIZE
        self._last_offset = entry.last_offset

    def entries(self) -> Iterator[AbortedTransaction]:
        if self._file is None:
            return
        end = self.entry_count * ENTRY_SIZE
        for start in range(0, end, _BLOCK_BYTES):
            wanted = min(_BLOCK_BYTES, end - start)
            data = self._file.read(start, wanted)
            if len(data) < wanted:
                raise CorruptIndexError(f"{self.path}: cut short while it was open")
            for version, *fields in _LAYOUT.iter_unpack(data):
                if version != _VERSION:
                    raise CorruptIndexError(f"{self.path}: an entry of version {version}")
                yield AbortedTransaction(*fields)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions that ended at `offset` or later."""
        if self._last_offset < offset:
            return
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        self._cut(len(kept) * ENTRY_SIZE, kept[-1].last_offset if kept else NO_OFFSET)

    def reset(self) -> None:
        """Empty the index, to be filled again."""
        self._cut(0, NO_OFFSET)

    def _cut(self, length: int, last_offset: Offset) -> None:
        if self._file is not None:
            self._file.truncate(length)
        self._length, self._last_offset = length, last_offset

    def sanity_check(self, base_offset: Offset) -> None:
        """Raise CorruptIndexError where the file cannot be of a segment that begins there."""
        if self._length % ENTRY_SIZE:
            raise CorruptIndexError(
                f"{self.path}: {self._length} bytes are no whole number of {ENTRY_SIZE}-byte entries"
            )
        last = base_offset - 1
        for entry in self.entries():
            if not entry.first_offset <= entry.last_offset or entry.last_offset <= last:
                raise CorruptIndexError(f"{self.path}: {entry} after offset {last}")
            last = entry.last_offset

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def aborted_between(
    indexes: Iterable[TransactionIndex], start_offset: Offset, upper_bound: Offset
) -> list[AbortedTransaction]:
    """Return the transactions that overlap [start_offset, upper_bound). `indexes` are those of the
    segment of `start_offset` and of all behind it.
    """
    found = []
    for index in indexes:
        for entry in index.entries():
            if entry.overlaps(start_offset, upper_bound):
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found
    return found
