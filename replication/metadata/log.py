"""The controller's log: its decisions, in the order in which they were made.

    0 ............ high watermark ......... log end offset
      synced, served      appended, not yet synced

Rule 1: the high watermark is the synced end. Nothing above it is served or answered,
so that no broker ever learns of a decision that a crash of the controller could undo.

Rule 2: appends go on while a sync is under way; the next sync takes them all (group
commit). An appender waits until the high watermark has passed its records.

Rule 3: every start of a controller is a new leader epoch, begun by a record that is synced
before anything else is done. So the leader epochs show which records a lying disk has lost: a
broker that holds the lost tail learns where the two logs diverge, and truncates it (KIP-595).

Rule 4: the log begins where its snapshot ends (`snapshots.py`). A start reads the snapshot, and
recovers and reads the log, which is never much longer than the records between two snapshots.
"""

import contextlib
from collections.abc import Sequence

import attrs
import trio

from replication.errors import MetadataError, PeerUnavailableError
from replication.metadata.rules.image import MetadataImage, apply_batches
from replication.metadata.rules.records import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    MetadataRecord,
    batch_of,
)
from replication.metadata.snapshots import (
    DEFAULT_SNAPSHOT_BYTES,
    Snapshot,
    SnapshotDue,
    SnapshotFile,
    batches_after,
    cut_below,
)
from replication.net.seams import Seams
from storage.checkpoint import MetaProperties, read_meta_properties, write_meta_properties
from storage.config import LogConfig
from storage.errors import InconsistentMetadataError, ShortageError
from storage.filesystem import FileSystem, Lock, make_lasting_directory
from storage.log.local_log import LogHooks
from storage.log.log import Log
from storage.manager.log_directory import LOCK
from storage.types import LeaderEpoch, Offset

# A decision is one batch, however many partitions it is about.
_LOG_CONFIG = LogConfig(max_message_bytes=1 << 30, retention_ms=-1, retention_bytes=-1)


@attrs.frozen(eq=False)
class Prepared:
    """A batch of records, and the image after it."""

    batch: memoryview
    wall_ms: int
    image: MetadataImage


@attrs.define(eq=False)
class MetadataLog:
    """The log, and the image of everything in it."""

    log: Log
    seams: Seams
    directory: str
    image: MetadataImage
    leader_epoch: LeaderEpoch
    snapshot: Snapshot | None
    """The snapshot of everything below the log start offset."""
    _snapshot_file: SnapshotFile
    _snapshot_due: SnapshotDue
    _doomed: list[str]
    _lock: Lock
    _synced: MetadataImage = attrs.field(init=False)
    _appended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _advanced: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    @classmethod
    async def open(
        cls,
        seams: Seams,
        directory: str,
        *,
        node_id: int,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
        index_bytes: int = _LOG_CONFIG.segment_index_bytes,
    ) -> "MetadataLog":
        """Lock, recover and read the log; raise LogDirectoryError where another node owns it."""
        due = SnapshotDue(snapshot_bytes)
        config = attrs.evolve(_LOG_CONFIG, segment_index_bytes=index_bytes)
        return await seams.offload(lambda: cls._open(seams, directory, node_id, due, config))

    @classmethod
    def _open(
        cls, seams: Seams, directory: str, node_id: int, due: SnapshotDue, config: LogConfig
    ) -> "MetadataLog":
        file_system = seams.file_system
        make_lasting_directory(file_system, directory)
        lock = file_system.lock(f"{directory}/{LOCK}")
        try:
            _check_owner(file_system, directory, node_id)
            snapshot_file = SnapshotFile.beside(file_system, f"{directory}/{METADATA_PARTITION}")
            snapshot = snapshot_file.read()
            doomed: list[str] = []
            log = Log.open(
                file_system,
                f"{directory}/{METADATA_PARTITION}",
                METADATA_PARTITION,
                config=config,
                topic_id=METADATA_TOPIC_ID,
                log_start_offset=0 if snapshot is None else snapshot.end_offset,
                hooks=LogHooks(doomed=lambda paths, _delay_ms: doomed.extend(paths)),
            )
            # Records that a killed process left in the page cache are read like the rest: sync them.
            log.flush()
            log.update_high_watermark(log.log_end_offset)
            image = _read(log, snapshot, due)
        except BaseException:
            lock.release()
            raise
        return cls(
            log,
            seams,
            directory,
            image,
            leader_epoch=image.leader_epoch + 1,
            snapshot=snapshot,
            snapshot_file=snapshot_file,
            snapshot_due=due,
            doomed=doomed,
            lock=lock,
        )

    def __attrs_post_init__(self) -> None:
        self._synced = self.image

    @property
    def synced_image(self) -> MetadataImage:
        """The image of everything below the high watermark."""
        return self._synced

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    def append(self, records: Sequence[MetadataRecord]) -> MetadataImage:
        """Append one batch and apply it to the image; it counts when it is synced."""
        return self.append_prepared(self.prepare(records))

    def prepare(self, records: Sequence[MetadataRecord]) -> Prepared:
        """Return the next batch and the image after it; for many records, away from the loop."""
        wall_ms = self.seams.clock.wall_ms()
        after = self.image.apply_all(
            records, offset=self.image.offset + len(records), leader_epoch=self.leader_epoch
        )
        return Prepared(memoryview(batch_of(records, wall_ms=wall_ms)), wall_ms, after)

    def append_prepared(self, prepared: Prepared) -> MetadataImage:
        try:
            info = self.log.append_as_leader(
                prepared.batch,
                leader_epoch=self.leader_epoch,
                wall_ms=prepared.wall_ms,
                from_client=False,
            )
        finally:
            self._appended.set()  # also where it failed: the next sync raises the failure
        assert info.first_offset == self.image.offset + 1, "the image is at the end of its log"
        assert info.last_offset == prepared.image.offset, "nothing was appended meanwhile"
        self._snapshot_due.appended(info.valid_bytes)
        self.image = prepared.image
        return self.image

    async def sync(self) -> None:
        """Sync the log and move the high watermark to its end; raise KafkaStorageError otherwise."""
        if self.log.failure is not None:
            raise self.log.fail(self.log.failure)
        plan, image = self.log.flush_plan(), self.image
        try:
            await self.seams.offload(plan.sync)
        except ShortageError:
            raise
        except OSError as error:
            raise self.log.fail(error) from error
        committed = self.log.local.commit_flush(plan)
        assert committed, "the controller's log is never truncated under it"
        self.log.update_high_watermark(plan.up_to)
        self._synced = image
        self._advanced.set()
        self._advanced = trio.Event()

    async def wait_for_appends(self) -> None:
        """Wait until something is not synced."""
        while self.log_end_offset == self.high_watermark and not self.log.failed:
            self._appended = trio.Event()
            await self._appended.wait()
        await trio.lowlevel.checkpoint()

    async def wait_until_synced(self, offset: Offset) -> None:
        """Wait until everything below `offset` is synced; raise as `wait_for_advance` does."""
        while self.high_watermark < offset:
            await self.wait_for_advance()
        await trio.lowlevel.checkpoint()

    async def wait_for_advance(self) -> None:
        """Wait until the high watermark moves; raise PeerUnavailableError once the log is closed."""
        if not self._closed:
            await self._advanced.wait()
        if self._closed:
            raise PeerUnavailableError("this controller has stopped")

    async def take_snapshots(self) -> None:
        """Take a snapshot whenever one is due, until cancelled; raise KafkaStorageError if the disk
        fails.
        """
        while True:
            await self._snapshot_due.wait()
            await self.take_snapshot()

    async def take_snapshot(self) -> None:
        """Write a snapshot of the synced records, and delete the log below it."""
        image = self._synced
        self._snapshot_due.begun()
        if image.offset < self.log.log_start_offset:
            await trio.lowlevel.checkpoint()
            return
        try:
            snapshot = await self.seams.offload(lambda: self._snapshot_file.write(image))
            # A controller that was killed meanwhile has no disk any more.
            await trio.lowlevel.checkpoint_if_cancelled()
            self.snapshot = snapshot
            cut_below(self.log, snapshot.end_offset)
            await self.seams.offload(self._unlink_doomed)
        except ShortageError:
            return  # until as much has been written again
        except OSError as error:
            raise self.log.fail(error) from error

    def _unlink_doomed(self) -> None:
        while self._doomed:
            self.seams.file_system.remove(self._doomed.pop())

    async def sign_directory(self, properties: MetaProperties) -> None:
        """Write the owner of this directory into it; the next start compares."""
        directory, file_system = self.directory, self.seams.file_system
        await self.seams.offload(lambda: write_meta_properties(file_system, directory, properties))

    def close(self) -> None:
        """Close the files. Nothing is written: everything that was answered is synced."""
        self._closed = True
        self._advanced.set()
        with contextlib.suppress(OSError):
            self.log.close_uncleanly()
        self._lock.release()


def _check_owner(file_system: FileSystem, directory: str, node_id: int) -> None:
    properties = read_meta_properties(file_system, directory)
    if properties is not None and properties.node_id != node_id:
        raise InconsistentMetadataError(
            f"{directory} belongs to node {properties.node_id}, not to node {node_id}"
        )


def _read(log: Log, snapshot: Snapshot | None, due: SnapshotDue) -> MetadataImage:
    image = MetadataImage() if snapshot is None else snapshot.image
    if log.log_start_offset > image.offset + 1:
        raise MetadataError(
            f"{log.directory} begins at {log.log_start_offset}, and its snapshot ends at"
            f" {image.offset + 1}: the records between are lost"
        )
    while image.offset + 1 < log.log_end_offset:
        records = batches_after(log, image)
        due.appended(len(records))
        image = apply_batches(image, records)
    return image
