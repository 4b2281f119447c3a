"""A replica's segment files, searched for offsets and times without opening its log.

    .log         [0-4][5-9]...                     .index       (9 -> 4096)(31 -> 8217)...
    .timeindex   (1700 -> 9)(1712 -> 31)...        a closed segment's last entry: its latest time

Rule 1: nothing is written, and an index is a hint. A position that it names is used if a batch's
header is there; otherwise the segment is read from its beginning.

Rule 2: a log that is being written to may end in the middle of a batch, or in spare room
(`storage.batch.spare_room`). Anything else behind the batches is damage.
"""

import os
from collections.abc import Iterator
from functools import cached_property

import attrs

from storage.batch.batch_stream import DamagedLogError
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.spare_room import LOG_FILE, is_spare_room
from storage.errors import CorruptRecordError
from storage.filesystem import FileSystem
from storage.log.index import offset_index, time_index
from storage.log.segment_file import find_batch
from storage.types import Offset

_WINDOW = 256 * 1024


@attrs.define(eq=False)
class SegmentPlace:
    """One `.log` file and the indexes beside it."""

    files: FileSystem
    directory: str
    base_offset: Offset
    size: int

    @property
    def path(self) -> str:
        return self._beside(".log")

    def _beside(self, ending: str) -> str:
        return os.path.join(self.directory, f"{self.base_offset:020d}{ending}")

    @cached_property
    def index(self) -> list[tuple[Offset, int]]:
        """The entries of the offset index, as far as they rise and lie inside the file."""
        found: list[tuple[Offset, int]] = []
        last = (-1, -1)
        for relative, position in offset_index.LAYOUT.iter_unpack(self._index_bytes(".index", 8)):
            if relative <= last[0] or position <= last[1] or position >= self.size:
                break
            last = relative, position
            found.append((self.base_offset + relative, position))
        return found

    @cached_property
    def time_index(self) -> list[tuple[int, Offset]]:
        """The entries of the time index: no record up to the offset is younger than the timestamp."""
        found: list[tuple[int, Offset]] = []
        for timestamp, relative in time_index.LAYOUT.iter_unpack(
            self._index_bytes(".timeindex", 12)
        ):
            if timestamp <= (found[-1][0] if found else 0):
                break  # the spare room behind the last entry
            found.append((timestamp, self.base_offset + relative))
        return found

    def _index_bytes(self, ending: str, entry_size: int) -> bytes:
        path = self._beside(ending)
        if not self.files.exists(path):
            return b""
        file = self.files.open_for_reading(path)
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
        return data[: len(data) // entry_size * entry_size]

    def position_of(self, offset: Offset) -> int:
        """Return the position from which to read on in order to reach `offset`."""
        below = [position for at, position in self.index if at <= offset]
        return below[-1] if below and self._stands_at(below[-1], most=offset) else 0

    def _stands_at(self, position: int, *, most: Offset) -> bool:
        """Return whether a batch that begins at or below offset `most` is at this position."""
        header = self.header_at(position)
        return header is not None and self.base_offset <= header.base_offset <= most

    def header_at(self, position: int) -> BatchHeader | None:
        file = self.files.open_for_reading(self.path)
        try:
            return read_header(file.read(position, HEADER_SIZE))
        except CorruptRecordError:
            return None
        finally:
            file.close()

    def headers(
        self, position: int = 0, *, skip: bool = False
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield each whole batch from `position` on; raise DamagedLogError, or with `skip` pass damage."""
        file = self.files.open_for_reading(self.path)
        try:
            size = file.size()
            window, window_at = b"", 0
            while position + HEADER_SIZE <= size:
                if not window_at <= position <= window_at + len(window) - HEADER_SIZE:
                    window, window_at = file.read(position, _WINDOW), position
                    if len(window) < HEADER_SIZE:
                        return
                try:
                    header = read_header(window, position - window_at)
                except CorruptRecordError as error:
                    if is_spare_room(self.files, file, position):
                        return
                    if not skip:
                        raise DamagedLogError(
                            str(error), path=self.path, position=position
                        ) from error
                    found = find_batch(file, position + 1, size, least_offset=self.base_offset)
                    if found is None:
                        return
                    position = found
                    continue
                if position + header.size > size:
                    return
                yield position, header
                position += header.size
        finally:
            file.close()

    def splits(self, target: int, begin: int, end: int) -> list[int]:
        """Return positions of batches between `begin` and `end`, about `target` bytes apart."""
        found, last = [], begin
        for offset, position in self.index:
            if position - last >= target and end - position >= target // 2:
                if not self._stands_at(position, most=offset):
                    break
                found.append(position)
                last = position
        return found


def segments_of(files: FileSystem, directory: str) -> list[SegmentPlace]:
    """Return the segments of a partition, in order."""
    names = map(LOG_FILE.fullmatch, files.list_directory(directory))
    found = []
    for base_offset in sorted(int(name[1]) for name in names if name):
        place = SegmentPlace(files, directory, base_offset, 0)
        try:
            file = files.open_for_reading(place.path)
        except FileNotFoundError:
            continue  # retention has deleted it meanwhile
        place.size = file.size()
        file.close()
        found.append(place)
    return found
