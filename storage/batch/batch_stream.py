"""The batches of a partition's directory at rest, in order, in bounded memory.

    00000000000000000000.log [0-4][5-11]   00000000000000000012.log [12-12][13-29]
                             └──────────── one stream: 0-4, 5-11, 12-12, 13-29 ──────┘

Rule 1: every byte is read once, a chunk at a time, however large a batch claims to be.
`head` says what comes next; `take` and `skip` move over it.

Rule 2: what is not a batch is damage with a place: which file, at which byte. Bytes after
the last whole batch are damage too, as a log at rest has been recovered. Only the spare room of
a log that was not closed is its end (`storage.batch.spare_room`).
"""

import os
import re
from typing import Final

import attrs

from storage.attributes import define
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header
from storage.batch.spare_room import CHUNK_SIZE, LOG_FILE, is_spare_room
from storage.checkpoint import LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint
from storage.errors import CheckpointError, CorruptRecordError, StorageError
from storage.filesystem import File, FileSystem
from storage.types import Offset, TopicPartition

_PARTITION_DIRECTORY: Final = re.compile(r"(.+)-([0-9]{1,10})")


class DamagedLogError(StorageError):
    """Bytes of `path` from `position` on that are no batch."""

    def __init__(self, reason: str, *, path: str | None, position: int) -> None:
        super().__init__(f"{path}, byte {position}: {reason}")
        self.reason = reason
        self.path = path
        self.position = position


def partitions_in(file_system: FileSystem, log_directory: str) -> dict[TopicPartition, str]:
    """Return the replicas in a log directory, each with its path, without those being deleted."""
    found = {}
    for name in file_system.list_directory(log_directory):
        path = os.path.join(log_directory, name)
        parsed = _PARTITION_DIRECTORY.fullmatch(name)
        if parsed and file_system.is_directory(path):
            found[TopicPartition(parsed[1], int(parsed[2]))] = path
    return found


def log_start_offsets(file_system: FileSystem, log_directory: str) -> dict[TopicPartition, Offset]:
    """Return the checkpointed log starts; none where the checkpoint cannot be read, as in Kafka."""
    path = os.path.join(log_directory, LOG_START_OFFSET_CHECKPOINT)
    try:
        return OffsetCheckpoint(file_system, path).read()
    except CheckpointError:
        return {}


def out_of_order(header: BatchHeader, next_offset: Offset) -> str | None:
    """Return why the batch cannot stand where `next_offset` comes next; None where it can."""
    if next_offset <= header.base_offset <= header.last_offset:
        return None
    return (
        f"a batch of offsets {header.base_offset} to {header.last_offset}"
        f" where {next_offset} comes next"
    )


@define(eq=False)
class BatchStream:
    """A cursor over the batches in `directory`, at `next_offset`."""

    file_system: FileSystem
    directory: str
    chunk_size: int = CHUNK_SIZE
    # Base offsets of the segments, and which of them is open.
    segments: list[Offset] = attrs.field(init=False)
    next_offset: Offset = attrs.field(init=False, default=0)
    _segment: int = attrs.field(init=False, default=-1)
    _file: File | None = attrs.field(init=False, default=None)
    _file_size: int = attrs.field(init=False, default=0)
    _read_position: int = attrs.field(init=False, default=0)
    _chunk: bytes = attrs.field(init=False, default=b"")
    _at: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        names = map(LOG_FILE.fullmatch, self.file_system.list_directory(self.directory))
        self.segments = sorted(int(found[1]) for found in names if found)
        if self.segments:
            self.next_offset = self.segments[0]

    @property
    def path(self) -> str | None:
        """The file that the cursor is in; None before the first."""
        return None if self._file is None else self._file.path

    @property
    def file_name(self) -> str | None:
        return None if self.path is None else os.path.basename(self.path)

    @property
    def position(self) -> int:
        """Where in that file the cursor is."""
        return self._read_position - len(self._chunk) + self._at

    @property
    def available(self) -> int:
        """How many bytes the next `take` may ask for: at least one before a file's end."""
        if self._at == len(self._chunk):
            self._fill()
        return len(self._chunk) - self._at

    def seek(self, offset: Offset) -> None:
        """Move on to the batch that holds `offset`, or the first one after it."""
        assert self._file is None, "seek comes before anything is read"
        while self._segment + 2 < len(self.segments) and self.segments[self._segment + 2] <= offset:
            self._segment += 1
        while (header := self.head()) is not None and header.last_offset < offset:
            self.skip(header.size)
            self.passed(header)

    def head(self) -> BatchHeader | None:
        """Return the header of the next batch, without moving on; None at the end of the log."""
        while self._left() == 0:
            if self._segment + 1 >= len(self.segments):
                return None
            self._open(self._segment + 1)
        try:
            header = self._header()
        except DamagedLogError:
            if not self._ends_in_spare_room():
                raise
            return None
        if header.size > self._left():
            raise self._damage(f"a batch of {header.size} bytes where {self._left()} are left")
        if reason := out_of_order(header, self.next_offset):
            raise self._damage(reason)
        return header

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, of those `available`, and move over them."""
        assert size <= len(self._chunk) - self._at, "take asks for what is available"
        self._at += size
        return self._chunk[self._at - size : self._at]

    def skip(self, size: int) -> None:
        """Move over the next `size` bytes; those not read yet never are."""
        beyond = self._at + size - len(self._chunk)
        if beyond > 0:
            self._read_position += beyond
            self._chunk, self._at = b"", 0
        else:
            self._at += size

    def passed(self, header: BatchHeader) -> None:
        """Note that all of the batch of `header` has been taken or skipped."""
        self.next_offset = header.next_offset

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _header(self) -> BatchHeader:
        if self._left() < HEADER_SIZE:
            raise self._damage(f"{self._left()} bytes after the last batch")
        while len(self._chunk) - self._at < HEADER_SIZE:
            self._fill()
        try:
            return read_header(self._chunk, self._at)
        except CorruptRecordError as error:
            raise self._damage(str(error)) from error

    def _ends_in_spare_room(self) -> bool:
        assert self._file is not None, "damage is in a file"
        if not is_spare_room(self.file_system, self._file, self.position):
            return False
        self._file_size = self._read_position = self.position
        self._chunk, self._at = b"", 0
        return True

    def _left(self) -> int:
        return self._file_size - self.position

    def _open(self, segment: int) -> None:
        self.close()
        base_offset = self.segments[segment]
        path = os.path.join(self.directory, f"{base_offset:020d}.log")
        self._file = self.file_system.open_for_reading(path)
        self._file_size = self._file.size()
        self._segment = segment
        self._read_position, self._chunk, self._at = 0, b"", 0
        self.next_offset = max(self.next_offset, base_offset)

    def _fill(self) -> None:
        if self._file is None:
            return
        data = self._file.read(
            self._read_position, min(self.chunk_size, self._file_size - self._read_position)
        )
        if not data and self._read_position < self._file_size:
            raise OSError(f"{self.path} became shorter while it was read")
        self._read_position += len(data)
        self._chunk = self._chunk[self._at :] + data
        self._at = 0

    def _damage(self, reason: str) -> DamagedLogError:
        return DamagedLogError(reason, path=self.path, position=self.position)
