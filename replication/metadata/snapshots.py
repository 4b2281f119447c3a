"""The snapshot of a node's metadata log: one file beside the segments, and a shorter log.

    1  the image as of some synced offset is written, and replaces the snapshot before it
    2  the log start moves to where the snapshot ends
    3  segments that lie wholly below it are deleted

Rule 1: the steps keep this order. A crash after 1 leaves records that the snapshot contains too,
and they are passed over; at every moment the disk has the records or the snapshot.

Rule 2: a snapshot contains only synced records: on a controller those below its high watermark, on a
broker all that the controller has sent.

Rule 3: writing it is slow and done away from the loop, from an image that never changes; the log
start moves on the loop, which owns the log.
"""

import attrs
import trio

from replication.errors import MetadataError
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.snapshot import decode_snapshot, encode_snapshot, snapshot_id
from storage.checkpoint import read_file, replace_file
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.types import Buffer, Offset, OffsetAndEpoch

SNAPSHOT_FILE = "metadata.checkpoint"
SNAPSHOT_BYTES = 1 << 30  # the largest snapshot that is read: an image of ten million partitions
REPLAY_BYTES = 1 << 20
DEFAULT_SNAPSHOT_BYTES = 20 << 20  # metadata.log.max.record.bytes.between.snapshots


@attrs.frozen
class Snapshot:
    """An image, and the bytes that are on disk for it."""

    image: MetadataImage
    data: bytes

    @property
    def id(self) -> OffsetAndEpoch:
        return snapshot_id(self.image)

    @property
    def end_offset(self) -> Offset:
        return self.image.offset + 1


@attrs.frozen
class SnapshotFile:
    """The one snapshot of a log directory."""

    file_system: FileSystem
    path: str

    @classmethod
    def beside(cls, file_system: FileSystem, log_directory: str) -> "SnapshotFile":
        return cls(file_system, f"{log_directory}/{SNAPSHOT_FILE}")

    def read(self) -> Snapshot | None:
        """Return the snapshot; None without one. Raise MetadataError if it cannot be read."""
        try:
            data = read_file(self.file_system, self.path, most=SNAPSHOT_BYTES)
        except CheckpointError as error:
            raise MetadataError(str(error)) from error
        return None if data is None else Snapshot(decode_snapshot(data), data)

    def write(self, image: MetadataImage) -> Snapshot:
        snapshot = Snapshot(image, encode_snapshot(image))
        self.replace(snapshot)
        return snapshot

    def replace(self, snapshot: Snapshot) -> None:
        replace_file(self.file_system, self.path, snapshot.data)

    def remove(self) -> None:
        if self.file_system.exists(self.path):
            self.file_system.remove(self.path)


@attrs.define
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
    """Return the first megabyte of the log that `image` does not contain yet."""
    found = log.read(
        image.offset + 1, REPLAY_BYTES, max_offset_exclusive=log.log_end_offset, min_one=True
    )
    assert found.records is not None, "below the log end there are records"
    return found.records.read()


def cut_below(log: Log, end_offset: Offset) -> None:
    """Delete the log below a snapshot (steps 2 and 3).

    The active segment is closed first, so that it can go next time.
    """
    assert end_offset <= log.high_watermark, "a snapshot contains only synced records"
    if log.segments.active.size:
        log.roll()
    log.increment_log_start_offset(end_offset)
    log.delete_segments_below_log_start()
