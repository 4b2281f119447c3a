"""The segment that a group becomes, while it is written: `.cleaned` behind each of its names.

Batches are put together to large writes and indexed one by one, as appends are; what is
finished is on the disk, indexes and all, before anybody renames it.
(LogSegment as Cleaner.cleanSegments uses it.)
"""

from collections.abc import Iterable
from typing import Final

import attrs

from storage.flush import sync_path
from storage.record_batch import BatchHeader, read_header
from storage.segment import SEGMENT_SUFFIXES, Segment
from storage.transaction_index import AbortedTransaction
from storage.types import Buffer

_WRITE_BYTES: Final = 1 << 20


@attrs.define(eq=False)
class CleanedSegment:
    segment: Segment
    _parts: list[Buffer] = attrs.field(factory=list)
    _batches: list[tuple[int, BatchHeader]] = attrs.field(factory=list)
    _size: int = 0

    def add(self, batch: Buffer) -> None:
        self._batches.append((self._size, read_header(batch)))
        self._parts.append(batch)
        self._size += len(batch)
        if self._size >= _WRITE_BYTES:
            self._write()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for each in transactions:
            self.segment.transaction_index.append(each)

    def finish(self) -> None:
        """Complete, and on the disk."""
        self._write()
        self.segment.become_inactive()
        for suffix in SEGMENT_SUFFIXES:
            path = self.segment.path(suffix)
            if self.segment.file_system.exists(path):
                sync_path(self.segment.file_system, path)

    def close(self) -> None:
        self.segment.close()

    def _write(self) -> None:
        if self._parts:
            self.segment.append(b"".join(self._parts), self._batches)
        self._parts, self._batches, self._size = [], [], 0
