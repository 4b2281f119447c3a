"""A node's snapshot of its metadata log: one file beside the segments, and a shorter log.

    1  the image as of some synced offset is written, and replaces the snapshot before it
    2  the log start moves to where the snapshot ends
    3  segments that lie wholly below it are deleted

Rule 1: in that order. A crash after 1 leaves records that the snapshot holds too, and they
are passed over; there is never a moment at which the disk lacks either.

Rule 2: only what is synced is in a snapshot: on a controller what lies below its high
watermark, on a broker whatever the controller has sent.

Rule 3: writing it is slow work and done away from the loop, on an image that never changes;
moving the log start is done on the loop, whose log it is.
"""

import attrs
import trio

from replication.errors import MetadataError
from replication.metadata.rules import MetadataImage, decode_snapshot, encode_snapshot, snapshot_id
from storage.checkpoint import read_file, replace_file
from storage.errors import CheckpointError
from storage.filesystem import FileSystem
from storage.log.log import Log
from storage.types import Offset, OffsetAndEpoch

SNAPSHOT_FILE = "metadata.checkpoint"
SNAPSHOT_BYTES = 1 << 30  # the most that is read of one: an image of ten million partitions
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
        """Return the snapshot, None where there is none; MetadataError where it cannot be read."""
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
    """When the next one is worth it: after so many bytes of records since the last."""

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
        """Count what is appended from now on for the next snapshot: one is being taken."""
        self._bytes = 0
        self._due = trio.Event()


def cut_below(log: Log, end_offset: Offset) -> None:
    """Delete the log below a snapshot (steps 2 and 3).

    The active segment is closed first, so that it can go next time.
    """
    assert end_offset <= log.high_watermark, "a snapshot holds what is synced, and no more"
    if log.segments.active.size:
        log.roll()
    log.increment_log_start_offset(end_offset)
    log.delete_segments_below_log_start()
