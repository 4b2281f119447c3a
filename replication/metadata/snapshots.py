"""The snapshots of a node's metadata log: a file beside the segments, and a shorter log (KIP-630).

    1  the image as of some committed offset is written under another name (`.part`), synced, renamed
    2  the log start moves to where the snapshot ends
    3  segments that lie wholly below it, and older snapshots, are deleted

Rule 1: the steps keep this order. A crash after 1 leaves records that the snapshot contains too,
and they are passed over; at every moment the disk has the records or the snapshot.

Rule 2: a snapshot contains only committed records, those below the high watermark.

Rule 3: writing it and reading it is slow and done away from the loop, from an image that never
changes; the log start moves on the loop, which owns the log.

Rule 4: a start uses the newest snapshot. What is not whole has another name, so one that cannot be
read was damaged later, and the log below it is gone: that is an error, and no older one is looked
for, as in Kafka. (Kafka: FileRawSnapshotWriter, KafkaRaftLog.recoverSnapshots.)
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from errno import EIO
from typing import Final

import attrs
import trio

from replication.errors import MetadataError
from replication.metadata.rules.checkpoint import (
    CheckpointReader,
    SnapshotVoters,
    checkpoint_id,
    checkpoint_name,
)
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.snapshot import decode_snapshot, encode_snapshot, snapshot_id
from storage.attributes import define, frozen
from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.errors import CorruptRecordError, raise_shortage
from storage.filesystem import File, FileSystem
from storage.log.file_region import FileRegion, Pins
from storage.log.log import Log
from storage.types import Buffer, Offset, OffsetAndEpoch

REPLAY_BYTES = 1 << 20
DEFAULT_SNAPSHOT_BYTES = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
PART: Final = ".part"
NO_VOTERS_STATED: Final = SnapshotVoters()


@frozen
class Snapshot:
    """A snapshot on disk, and what it holds."""

    file_system: FileSystem = attrs.field(repr=False, eq=False)
    path: str
    size: int
    image: MetadataImage = attrs.field(repr=False)
    voters: SnapshotVoters = attrs.field(factory=SnapshotVoters)

    @property
    def id(self) -> OffsetAndEpoch:
        return snapshot_id(self.image)

    @property
    def end_offset(self) -> Offset:
        return self.image.offset + 1

    def region(self, position: int, max_bytes: int) -> FileRegion:
        """Return the bytes of the file from `position` on; the file stays open until it is released.

        Raise OSError where the file has become shorter: what is sent of it would be cut off.
        """
        file = self.file_system.open_for_reading(self.path)
        pins = Pins(file)
        try:
            found = file.size()
            if found < self.size:
                raise OSError(EIO, f"{found} bytes are left of {self.size}", self.path)
            return pins.pin(position, min(max_bytes, self.size - position))
        finally:
            pins.close()


@define
class SnapshotWriter:
    """The file of the snapshot that ends at `end`, under another name until it is whole."""

    file_system: FileSystem
    directory: str
    end: OffsetAndEpoch
    instead_of: OffsetAndEpoch | None = None
    """The end of the log that it is to replace, where it comes from the leader."""
    size: int = attrs.field(default=0, init=False)
    _file: File = attrs.field(init=False)
    _frozen: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._file = self.file_system.open(f"{self.path}{PART}", create=True)
        self._file.truncate(0)  # a crash may have left a longer one

    @property
    def path(self) -> str:
        return f"{self.directory}/{checkpoint_name(self.end)}"

    def append(self, data: Buffer) -> None:
        self._file.write(self.size, data)
        self.size += len(data)

    def freeze(self) -> None:
        """Sync the file, and give it its name."""
        self._file.sync()
        self._file.close()
        self.file_system.rename(f"{self.path}{PART}", self.path)
        self.file_system.sync_directory(self.directory)
        self._frozen = True

    def read(self) -> Snapshot:
        """Return what has been written; raise MetadataError where it is not a whole snapshot."""
        return _read(self.file_system, self._file, self.path, self.end)

    def discard(self) -> None:
        """Close and remove the file, unless it has its name; or else the next start removes it."""
        if not self._frozen:
            with suppress(OSError):
                self._file.close()
                self.file_system.remove(f"{self.path}{PART}")


@frozen
class Snapshots:
    """The snapshots in the directory of a metadata log, of which one counts."""

    file_system: FileSystem
    directory: str

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot; None without one. Raise MetadataError if it cannot be read."""
        ids = self._ids()
        return self._at(ids[-1]) if ids else None

    def oldest(self) -> Snapshot | None:
        """Return the oldest snapshot, as `newest` does the newest: the log goes on where it ends."""
        ids = self._ids()
        return self._at(ids[0]) if ids else None

    def _at(self, end: OffsetAndEpoch) -> Snapshot:
        path = f"{self.directory}/{checkpoint_name(end)}"
        file = self.file_system.open_for_reading(path)
        try:
            return _read(self.file_system, file, path, end)
        finally:
            file.close()

    def write(
        self,
        image: MetadataImage,
        *,
        wall_ms: int,
        last_timestamp_ms: int,
        voters: SnapshotVoters = NO_VOTERS_STATED,
    ) -> Snapshot:
        """Write a snapshot; raise ShortageError if the caller should try again."""
        batches = encode_snapshot(
            image, wall_ms=wall_ms, last_timestamp_ms=last_timestamp_ms, voters=voters
        )
        try:
            written = self.write_batches(snapshot_id(image), batches)
        except OSError as error:
            raise_shortage(error)
            raise
        return Snapshot(self.file_system, written.path, written.size, image, voters)

    def write_batches(self, end: OffsetAndEpoch, batches: Iterable[Buffer]) -> SnapshotWriter:
        """Write the snapshot that ends at `end`, whatever is in it; return its file."""
        writer = self.writer(end)
        try:
            for batch in batches:
                writer.append(batch)
            writer.freeze()
        finally:
            writer.discard()
        return writer

    def writer(
        self, end: OffsetAndEpoch, *, instead_of: OffsetAndEpoch | None = None
    ) -> SnapshotWriter:
        """Return the file of the snapshot that ends at `end`, which is empty."""
        return SnapshotWriter(self.file_system, self.directory, end, instead_of)

    def remove_below(self, end: OffsetAndEpoch | None) -> None:
        """Remove the snapshots that are older than `end`, all of them for None.

        A snapshot that is being received meanwhile is not whole, and stays.
        """
        for each in self._ids():
            if end is None or each < end:
                self.file_system.remove(f"{self.directory}/{checkpoint_name(each)}")

    def remove_unfinished(self) -> None:
        """Remove what a killed process had not finished (KafkaMetadataLog.recoverSnapshots)."""
        for name in self.file_system.list_directory(self.directory):
            if name.endswith(PART) and checkpoint_id(name.removesuffix(PART)) is not None:
                self.file_system.remove(f"{self.directory}/{name}")

    def _ids(self) -> list[OffsetAndEpoch]:
        if not self.file_system.is_directory(self.directory):
            return []
        names = self.file_system.list_directory(self.directory)
        return sorted(end for name in names if (end := checkpoint_id(name)) is not None)


def _read(file_system: FileSystem, file: File, path: str, end: OffsetAndEpoch) -> Snapshot:
    reader = CheckpointReader(batches_in(file))
    try:
        image = decode_snapshot(reader, end)
    except MetadataError as error:
        raise MetadataError(f"the snapshot {path} cannot be read: {error}") from error
    return Snapshot(file_system, path, file.size(), image, reader.voters)


def batches_in(file: File) -> Iterator[bytes]:
    """Yield the batches of a `.checkpoint` file; raise MetadataError where the bytes are none."""
    position, size = 0, file.size()
    while position < size:
        try:
            header = read_header(file.read(position, HEADER_SIZE))
        except CorruptRecordError as error:
            raise MetadataError(f"byte {position}: {error}") from error
        if header.size > size - position:
            raise MetadataError(
                f"it is not whole: a batch of {header.size} bytes at byte {position}, where"
                f" {size - position} are left"
            )
        yield file.read(position, header.size)
        position += header.size


@define
class SnapshotDue:
    """The time for the next snapshot: after `every_bytes` of records since the last one."""

    every_bytes: int = DEFAULT_SNAPSHOT_BYTES
    _bytes: int = attrs.field(default=0, init=False)
    _due: trio.Event = attrs.field(factory=trio.Event, init=False)

    def appended(self, size: int) -> None:
        self._bytes += size
        if self._bytes >= self.every_bytes:
            self._due.set()

    async def wait(self) -> None:
        await self._due.wait()

    def begun(self) -> None:
        """Start to count again: a snapshot is being taken."""
        self._bytes = 0
        self._due = trio.Event()


def batches_after(log: Log, image: MetadataImage) -> Buffer:
    """Return the first megabyte of the committed log that `image` does not contain yet."""
    return batches_at(log, image.offset + 1, end=log.high_watermark)


def batches_at(log: Log, offset: Offset, *, end: Offset) -> Buffer:
    """Return a megabyte of the log from `offset` on, up to `end`, which is past it.

    KafkaStorageError where the disk does not give it; the log has failed then.
    """
    found = log.read(offset, REPLAY_BYTES, max_offset_exclusive=end, min_one=True)
    assert found.records is not None, "below its end a log has records"
    with log.local.retryable():
        return found.records.read()


def timestamp_at(log: Log, offset: Offset) -> int:
    """Return the latest timestamp of the batch in the log that holds `offset`."""
    found = log.read(offset, HEADER_SIZE, max_offset_exclusive=log.log_end_offset, min_one=True)
    assert found.records is not None, "below the log end there are records"
    header = bytearray(HEADER_SIZE)
    with log.local.retryable():
        found.records.read_into(memoryview(header))
    return read_header(header).max_timestamp


def cut_below(log: Log, end_offset: Offset) -> None:
    """Delete the log below a snapshot (steps 2 and 3).

    The active segment is closed first, so that it can go next time.
    """
    assert end_offset <= log.high_watermark, "a snapshot contains only committed records"
    if log.segments.active.size:
        log.roll()
    log.increment_log_start_offset(end_offset)
    log.delete_segments_below_log_start()
