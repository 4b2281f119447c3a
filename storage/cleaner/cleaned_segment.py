"""The segment that a group becomes, while it is written: `.cleaned` behind each of its names.

Batches are put together to large writes and indexed one by one, as appends are; what is
finished is on the disk, indexes and all, before anybody renames it. It is as old as the last of
its sources: retention goes by that where records carry no time.
(LogSegment as Cleaner.cleanSegments uses it.)
"""

from collections.abc import Iterable
from typing import Final

import attrs

from storage.batch.record_batch import BatchHeader, read_header
from storage.log.flush import sync_path
from storage.log.index.transaction_index import AbortedTransaction
from storage.log.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment
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

    def finish(self, *, modified_ms: int) -> None:
        """Complete, and on the disk, as if it had been written at `modified_ms`."""
        self._write()
        # One of which nothing stayed has indexes too, as Kafka expects of it.
        self.segment.become_inactive(closing=True)
        file_system = self.segment.file_system
        file_system.set_modified_ms(self.segment.path(LOG_SUFFIX), modified_ms)
        for suffix in SEGMENT_SUFFIXES:
            path = self.segment.path(suffix)
            if file_system.exists(path):
                sync_path(file_system, path)

    def close(self) -> None:
        self.segment.close()

    def _write(self) -> None:
        if self._parts:
            self.segment.append(b"".join(self._parts), self._batches)
        self._parts, self._batches, self._size = [], [], 0
