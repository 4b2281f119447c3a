"""One node's replica of the metadata log, and the image of everything in it.

    0 ............ high watermark ......... log end offset
      committed_image           image, at the node that leads

The log grows in two ways: the leader appends its decisions (`append`), and a follower is filled by
its fetcher (`append_fetched`). The rest is the same for both, so that a node can change its role:
the snapshot, the start, the image of the committed records, and their truncation.

Rule 1: the high watermark is where the committed records end: those that no crash can undo, because
a majority of the voters has synced them. Only they reach the committed image, a snapshot or an
answer. Where they end is decided elsewhere (`replication/raft`); a broker learns it from its fetches.

Rule 2: appends go on while a flush is under way; the next flush takes them all (group commit). An
appender waits until the high watermark has passed its records.

Rule 3: what a node has appended as the leader counts only while it leads. Once it no longer does,
its image is the committed one again, and a task that waits for the rest learns that it is undecided.

Rule 4: the log begins where its snapshot ends (`snapshots.py`). A start reads the snapshot, and
recovers and reads the log, which is never much longer than the records between two snapshots.

Rule 5: a batch is one decision, and applied at once: no image contains half of a decision.

The file is long because both ways to grow share one state, and a node changes between them.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import attrs
import trio

from replication.errors import ErrorCode, KafkaError, MetadataError, PeerUnavailableError
from replication.metadata.rules.checkpoint import SnapshotVoters
from replication.metadata.rules.image import MetadataImage, apply_batches
from replication.metadata.rules.records import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    as_written,
    batch_of,
    refuse_unknown,
)
from replication.metadata.snapshots import (
    DEFAULT_SNAPSHOT_BYTES,
    REPLAY_BYTES,
    Snapshot,
    SnapshotDue,
    Snapshots,
    SnapshotWriter,
    batches_after,
    batches_at,
    cut_below,
    timestamp_at,
)
from replication.net.seams import Seams
from replication.raft.rules.voters import VoterSetHistory
from replication.steps import STEP
from replication.wire.control_records import (
    ControlRecord,
    KRaftVersionRecord,
    control_batch_of,
    decode_message,
)
from replication.wire.metadata_records import MetadataRecord
from storage.attributes import define, frozen
from storage.batch.record_batch import walk
from storage.batch.records import decode_batch
from storage.checkpoint import MetaProperties, read_meta_properties
from storage.config import LogConfig
from storage.errors import InconsistentMetadataError, ShortageError
from storage.filesystem import FileSystem, Lock, make_lasting_directory
from storage.log.append import LogAppendInfo
from storage.log.local_log import LogHooks
from storage.log.log import Log
from storage.log.segment import LOG_SUFFIX
from storage.manager.log_directory import FORMER_METADATA_TOPIC, LOCK, former_metadata
from storage.types import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
)

# A decision is one batch, however many partitions it is about.
_LOG_CONFIG = LogConfig(max_message_bytes=1 << 30, retention_ms=-1, retention_bytes=-1)

Admit: TypeAlias = Callable[[MetaProperties | None, Snapshot | None], None]
"""A function that raises where a node must not start in the directory of this owner, with this newest
snapshot. It may format a directory that belongs to nobody.
"""


def admit_any(_: MetaProperties | None, __: Snapshot | None) -> None:
    """Admit the node to any directory."""


@frozen(eq=False)
class Prepared:
    """A batch of records, and the image after it."""

    batch: memoryview
    wall_ms: int
    image: MetadataImage


@define(eq=False, repr=False)
class MetadataLog:
    """The log, its snapshot, and the images."""

    log: Log
    seams: Seams
    snapshot_due: SnapshotDue = attrs.field(factory=SnapshotDue)
    snapshot: Snapshot | None = attrs.field(default=None, init=False)
    """The snapshot of everything below the log start offset."""
    image: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    """The image of everything in the log at the leader; elsewhere of the committed records."""
    committed_image: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    """The image of everything below the high watermark that has been applied."""
    is_whole: bool = attrs.field(default=True, init=False)
    """Whether the committed image was complete once; not while a copy is filled anew."""
    leading_epoch: LeaderEpoch | None = attrs.field(default=None, init=False)
    """The leader epoch of what this node appends; None while it does not lead."""
    voters: VoterSetHistory = attrs.field(factory=VoterSetHistory, init=False)
    """The voters by the control records of the log, committed or not; a broker does not ask."""
    _undecided: deque[MetadataImage] = attrs.field(factory=deque, init=False)
    """The images after each of the leader's batches that are not committed."""
    _leaders_high_watermark: Offset = attrs.field(default=0, init=False)
    _cuts: int = attrs.field(default=0, init=False)
    """How often committed records have been taken back."""
    _one_snapshot_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _unsynced: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set where something that this node has appended as the leader is to be synced."""
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _committed: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set where the high watermark moves, or the leadership or the log ends; `_moved` also where the
    log end moves.
    """
    _closed: bool = attrs.field(default=False, init=False)
    _doomed: list[str] = attrs.field(factory=list)
    """The deleted segments that are to be unlinked, where no log manager does it."""

    directory: str = ""
    """The directory that belongs to this log alone; empty for a copy among the logs of a broker."""
    _lock: Lock | None = None

    @classmethod
    async def open(
        cls,
        seams: Seams,
        directory: str,
        *,
        node_id: int,
        admit: Admit = admit_any,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
        index_bytes: int = _LOG_CONFIG.segment_index_bytes,
    ) -> "MetadataLog":
        """Open the log of a controller, which has a directory of its own.

        Lock and recover it. Raise LogDirectoryError where another node owns it, MetadataError where
        its snapshot cannot be read, and what `admit` raises; then the lock is all that has been
        written. Only the snapshot is known to be committed.
        """
        due = SnapshotDue(snapshot_bytes)
        config = attrs.evolve(_LOG_CONFIG, segment_index_bytes=index_bytes)

        def opened() -> "MetadataLog":
            return cls._open(seams, directory, due, config, node_id=node_id, admit=admit)

        return await seams.offload(opened)

    @classmethod
    def _open(
        cls,
        seams: Seams,
        directory: str,
        due: SnapshotDue,
        config: LogConfig,
        *,
        node_id: int,
        admit: Admit,
    ) -> "MetadataLog":
        file_system = seams.file_system
        make_lasting_directory(file_system, directory)
        lock = file_system.lock(f"{directory}/{LOCK}")
        try:
            log_directory = f"{directory}/{METADATA_PARTITION}"
            snapshots = Snapshots(file_system, log_directory)
            owner, snapshot = _owner_in(file_system, directory, node_id), snapshots.newest()
            admit(owner, snapshot)
            snapshot = snapshot or snapshots.newest()
            doomed: list[str] = []
            log = Log.open(
                file_system,
                log_directory,
                METADATA_PARTITION,
                config=config,
                topic_id=METADATA_TOPIC_ID,
                hooks=LogHooks(doomed=lambda paths, _delay_ms: doomed.extend(paths)),
            )
            # Records that a killed process left in the page cache are read like the rest: sync them.
            _write_again(file_system, log)
            log.flush()
            opened = cls(log, seams, due, doomed, directory, lock)
            opened.recover(snapshot)
            opened.read_control_records()
            due.appended(log.size)
        except BaseException:
            lock.release()
            raise
        return opened

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self.log.local.file_system, self.log.directory)

    # The start.

    def read_control_records(self) -> None:
        """Read who votes, in the snapshot and in the log, committed or not.

        Raise MetadataError for a record that this release cannot read, of whatever kind.
        """
        self._restart_voters()
        offset = self.log.log_start_offset
        while offset < self.log_end_offset:
            records = memoryview(batches_at(self.log, offset, end=self.log_end_offset))
            refuse_unknown(records)
            offset = self._note_voters(records)

    def _restart_voters(self) -> None:
        """Know the voters of the snapshot alone."""
        self.voters = self.voters.cleared()
        if self.snapshot is not None and self.snapshot.voters.kraft_version > 0:
            stated, last = self.snapshot.voters, self.snapshot.end_offset - 1
            level = KRaftVersionRecord(version=0, kraft_version=stated.kraft_version)
            self.voters = self.voters.after(level, last)
            if stated.voters is not None:
                self.voters = self.voters.after(stated.voters, last)

    def _note_voters(self, batches: memoryview) -> Offset:
        """Take the voters from the control batches in `batches`; return where these end."""
        end = self.begins_at
        for position, header in walk(batches):
            end = header.last_offset + 1
            if header.is_control and end > self.begins_at:
                for record in decode_batch(batches[position : position + header.size]):
                    self.voters = self.voters.after(decode_message(record), record.offset)
        return end

    def recover(self, snapshot: Snapshot | None) -> None:
        """Begin with the newest snapshot: it is committed, and of the log behind it nothing is known.

        Raise MetadataError where records are missing between it and the log.
        """
        self._begin_with(snapshot)
        if self._ends_before_the_snapshot:
            self.log.truncate_fully_and_start_at(self.begins_at)
        self.log.update_high_watermark(self.begins_at)
        self.log.increment_log_start_offset(self.begins_at)
        self._set_image(MetadataImage() if self.snapshot is None else self.snapshot.image)

    def recover_copy(self) -> None:
        """Read the snapshot of a broker; of the log behind it the leader says what is committed.

        Where the snapshot is of no use, the copy starts anew: the leader sends everything again.
        """
        try:
            self.recover(self._snapshots.newest())
        except MetadataError:
            self.start_anew()
            self.is_whole = True  # no newer image has been shown yet

    def commit_everything(self) -> None:
        """Count all that the log holds as committed, and apply it."""
        self.log.update_high_watermark(self.log.log_end_offset)
        self._replay()

    def _begin_with(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self._snapshots.remove_unfinished()
        if self.snapshot is not None:
            self._snapshots.remove_below(self.snapshot.id)
        if self.log.log_start_offset > self.begins_at:
            raise MetadataError(
                f"{self.log.directory} begins at {self.log.log_start_offset}, and its snapshot ends"
                f" at {self.begins_at}: the records between are lost"
            )

    @property
    def _ends_before_the_snapshot(self) -> bool:
        """Whether the log was to be replaced by the snapshot when the node died."""
        if self.snapshot is None:
            return False
        latest = self.log.latest_epoch
        is_older = latest is not None and latest < self.snapshot.id.leader_epoch
        return is_older or self.log.log_end_offset < self.begins_at

    @property
    def begins_at(self) -> Offset:
        """The first offset that the log itself must hold."""
        return 0 if self.snapshot is None else self.snapshot.end_offset

    def _replay(self) -> None:
        self._set_image(MetadataImage() if self.snapshot is None else self.snapshot.image)
        while self.unapplied > 0:
            self._set_image(self._next_image())

    def _set_image(self, image: MetadataImage) -> None:
        self.committed_image = self.image = image

    @property
    def high_watermark(self) -> Offset:
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    @property
    def _last(self) -> OffsetAndEpoch:
        """The end of the log, and the leader epoch of its last record."""
        epoch = self.latest_epoch
        return OffsetAndEpoch(self.log_end_offset, NO_LEADER_EPOCH if epoch is None else epoch)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The leader epoch of the last record, which may lie in the snapshot."""
        latest = self.log.latest_epoch
        if latest is None and self.snapshot is not None:
            return self.snapshot.id.leader_epoch
        return latest

    # At the leader.

    def lead(self, leader_epoch: LeaderEpoch, beginning: Sequence[ControlRecord]) -> None:
        """Begin a leader epoch with a control batch, behind which this node may append.

        It is synced with the first decision, or when somebody waits for it.
        """
        self._append_control(beginning, leader_epoch)
        self.leading_epoch = leader_epoch

    def append_control(self, records: Sequence[ControlRecord], leader_epoch: LeaderEpoch) -> None:
        """Append a batch of control records, which change the image's offset and epoch only."""
        self._append_control(records, leader_epoch)
        self._unsynced.set()

    def _append_control(self, records: Sequence[ControlRecord], leader_epoch: LeaderEpoch) -> None:
        wall_ms = self.seams.clock.wall_ms()
        batch = memoryview(control_batch_of(records, wall_ms=wall_ms))
        info = self.log.append_as_leader(
            batch, leader_epoch=leader_epoch, wall_ms=wall_ms, from_client=False
        )
        assert info.first_offset is not None, "a batch is appended"
        self.snapshot_due.appended(info.valid_bytes)
        for offset, record in enumerate(records, info.first_offset):
            self.voters = self.voters.after(record, offset)
        if self.image.offset + 1 == info.first_offset:
            self.image = self.image.apply_all(
                (), offset=info.last_offset, leader_epoch=leader_epoch
            )
            self._undecided.append(self.image)
        self._wake_voters()

    def step_down(self) -> None:
        """Append no more, and forget the image of what is not committed."""
        self.leading_epoch = None
        self.image = self.committed_image
        self._undecided.clear()
        self._wake()

    def append(self, records: Sequence[MetadataRecord]) -> MetadataImage:
        """Append one batch and apply it to the image; it counts when it is committed."""
        return self.append_prepared(self.prepare(records))

    def prepare(self, records: Sequence[MetadataRecord]) -> Prepared:
        """Return the next batch and the image after it; for many records, away from the loop."""
        assert self.leading_epoch is not None, "only the leader decides"
        wall_ms = self.seams.clock.wall_ms()
        level = self.image.metadata_version
        after = self.image.apply_all(
            as_written(records, level=level),
            offset=self.image.offset + len(records),
            leader_epoch=self.leading_epoch,
        )
        return Prepared(memoryview(batch_of(records, wall_ms=wall_ms, level=level)), wall_ms, after)

    def append_prepared(self, prepared: Prepared) -> MetadataImage:
        try:
            info = self.log.append_as_leader(
                prepared.batch,
                leader_epoch=prepared.image.leader_epoch,
                wall_ms=prepared.wall_ms,
                from_client=False,
            )
        finally:
            self._unsynced.set()  # also where it failed: the next flush raises the failure
            self._wake_voters()
        assert info.first_offset == self.image.offset + 1, "the image is at the end of its log"
        assert info.last_offset == prepared.image.offset, "nothing was appended meanwhile"
        self.snapshot_due.appended(info.valid_bytes)
        self.image = prepared.image
        self._undecided.append(prepared.image)
        return self.image

    async def flush(self) -> None:
        """Sync the log; raise KafkaStorageError where that fails, ShortageError where it may later.

        A truncation meanwhile leaves it to the next flush.
        """
        if self.log.failure is not None:
            raise self.log.fail(self.log.failure)
        plan = self.log.flush_plan()
        try:
            await self.seams.offload(plan.sync)
        except ShortageError:
            raise
        except OSError as error:
            raise self.log.fail(error) from error
        await trio.lowlevel.checkpoint_if_cancelled()  # the node may have been killed
        self.log.local.commit_flush(plan)

    @property
    def flushed_end_offset(self) -> Offset:
        """The end of what is synced."""
        return min(self.log.recovery_point, self.log_end_offset)

    def commit(self, high_watermark: Offset) -> None:
        """Take the offset below which everything is committed; it does not go back."""
        if high_watermark > self.high_watermark:
            self.log.update_high_watermark(high_watermark)
            while self._undecided and self._undecided[0].offset < high_watermark:
                self.committed_image = self._undecided.popleft()
            self._wake()

    def _wake(self) -> None:
        self._wake_voters()
        self._committed.set()
        self._committed = trio.Event()

    def _wake_voters(self) -> None:
        """Wake those that a longer log concerns before it is committed."""
        self._moved.set()
        self._moved = trio.Event()

    async def wait_for_appends(self) -> None:
        """Wait until something that this node has appended as the leader is to be synced."""
        await self._unsynced.wait()
        while self.flushed_end_offset == self.log_end_offset and not self.log.failed:
            self._unsynced = trio.Event()
            await self._unsynced.wait()

    async def wait_until_committed(self, offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Wait until everything below `offset` is committed, in the epoch in which it was appended.

        Raise KafkaError NOT_CONTROLLER once this node no longer leads in that epoch: what it has
        appended may be lost, or committed by another leader. Raise PeerUnavailableError once the
        log is closed.
        """
        while True:
            if self._closed:
                raise PeerUnavailableError("this controller has stopped")
            if self.leading_epoch != leader_epoch:
                raise KafkaError(
                    ErrorCode.NOT_CONTROLLER, "this controller has lost its leadership"
                )
            if self.high_watermark >= offset:
                break
            if self.flushed_end_offset < offset:
                self._unsynced.set()
            await self._committed.wait()
        await trio.lowlevel.checkpoint()

    async def wait_for_movement(self, *, until_committed: bool = False) -> None:
        """Wait until the high watermark moves, or unless `until_committed` the end of the log, or the
        node steps down; raise PeerUnavailableError once the log is closed.
        """
        if not self._closed:
            await (self._committed if until_committed else self._moved).wait()
        if self._closed:
            raise PeerUnavailableError("this controller has stopped")

    # At a follower.

    def append_fetched(self, records: memoryview, *, high_watermark: Offset) -> LogAppendInfo:
        """Append what the leader has sent; a few records are applied at once.

        The others wait for `apply_committed`. Raise MetadataError, before anything is written, for a
        record that this release cannot read: what is acknowledged can be led with.
        """
        refuse_unknown(records)
        info = self.log.append_as_follower(records)
        self._note_voters(records[: info.valid_bytes])
        self._leaders_high_watermark = max(self._leaders_high_watermark, high_watermark)
        self.snapshot_due.appended(info.valid_bytes)
        self.commit(min(high_watermark, self.log_end_offset))
        if 0 < self.unapplied <= STEP:
            self._applied(self._next_image())
        return info

    @property
    def unapplied(self) -> int:
        """The number of committed records that are not applied."""
        return self.high_watermark - (self.committed_image.offset + 1)

    async def apply_committed(self) -> None:
        """Apply the committed records, many of them away from the loop; raise MetadataError for one
        that this release does not know.
        """
        while self.unapplied > 0:
            if self.unapplied <= STEP:
                self._applied(self._next_image())
                continue
            cuts = self._cuts
            image = await self.seams.offload(self._next_image)
            await trio.lowlevel.checkpoint_if_cancelled()  # the node may have been stopped
            if cuts == self._cuts:
                self._applied(image)

    def _next_image(self) -> MetadataImage:
        image = self.committed_image
        return apply_batches(image, batches_after(self.log, image))

    def _applied(self, image: MetadataImage) -> None:
        self._set_image(image)
        self.is_whole = self.is_whole or image.offset + 1 >= self._leaders_high_watermark

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to `offset`, and take back what was applied beyond it."""
        undoes = offset < self.high_watermark
        self.voters = self.voters.truncated(offset)
        if offset < self.begins_at:
            self.start_anew()
        elif self.log.truncate_to(offset) and undoes:
            self._cuts += 1
            self._replay()

    def start_anew(self) -> None:
        """Drop everything; the image is not whole until the copy is complete again."""
        self._cuts += 1
        self.is_whole = False
        self._leaders_high_watermark = 0
        self.snapshot = None
        try:
            self._snapshots.remove_below(None)
        except OSError as error:
            raise self.log.fail(error) from error
        self.log.truncate_fully_and_start_at(0)
        self._restart_voters()
        self._set_image(MetadataImage())

    def receive_snapshot(self, end: OffsetAndEpoch) -> SnapshotWriter:
        """Return the file for a snapshot of the leader, which `install` takes up once it is whole."""
        try:
            return self._snapshots.writer(end, instead_of=self._last)
        except OSError as error:
            raise self.log.fail(error) from error

    async def install(self, received: SnapshotWriter) -> None:
        """Replace the log by a snapshot of the leader.

        The snapshot is on the disk before the log goes: what this node has acknowledged stays.
        A log that has moved on since the leader named the snapshot stays as it is.
        Raise MetadataError where it is damaged, and KafkaStorageError where the disk fails.
        """
        async with self._one_snapshot_at_a_time:
            self._cuts += 1
            try:
                snapshot = await self.seams.offload(received.read)
                if self._last == received.instead_of:
                    await self.seams.offload(received.freeze)
                if self._last != received.instead_of:
                    return
                self.log.truncate_fully_and_start_at(snapshot.end_offset)
                self._snapshots.remove_below(snapshot.id)
            except OSError as error:
                raise self.log.fail(error) from error
            self.snapshot = snapshot
            self.is_whole = True
            self._restart_voters()
            self._set_image(snapshot.image)

    # Snapshots.

    async def take_snapshots(self) -> None:
        """Take a snapshot whenever one is due, until cancelled; raise KafkaStorageError if the disk
        fails.
        """
        while True:
            await self.snapshot_due.wait()
            await self.take_snapshot()

    async def take_snapshot(self) -> None:
        """Write a snapshot of the committed records, and delete the log below it."""
        self.snapshot_due.begun()
        async with self._one_snapshot_at_a_time:
            image, cuts = self.committed_image, self._cuts
            if image.open_transaction is not None or not self.is_whole:
                return  # half of it would be lost
            if image.offset < self.log.log_start_offset:
                return
            try:
                write = partial(
                    self._snapshots.write,
                    image,
                    wall_ms=self.seams.clock.wall_ms(),
                    last_timestamp_ms=timestamp_at(self.log, image.offset),
                    voters=self._voters_at(image.offset),
                )
                snapshot = await self.seams.offload(write)
                # A node that was killed meanwhile has no disk any more.
                await trio.lowlevel.checkpoint_if_cancelled()
                if cuts != self._cuts:
                    self.start_anew()  # it may contain records that were truncated
                    return
                self.snapshot = snapshot
                self.voters = self.voters.trimmed(image.offset)
                cut_below(self.log, snapshot.end_offset)
                await self.seams.offload(partial(self._unlink_below, snapshot.id))
            except ShortageError:
                return  # until as much has been written again
            except OSError as error:
                raise self.log.fail(error) from error

    def _voters_at(self, offset: Offset) -> SnapshotVoters:
        voters = self.voters.voters_at(offset)
        return SnapshotVoters(
            kraft_version=self.voters.kraft_version_at(offset),
            voters=None if voters is None else voters.to_record(),
        )

    def close(self) -> None:
        """Close the files. Nothing is written: everything that was answered is synced."""
        self._closed = True
        self._wake()
        with contextlib.suppress(OSError):
            self.log.close_uncleanly()
        if self._lock is not None:
            self._lock.release()

    def _unlink_below(self, end: OffsetAndEpoch) -> None:
        self._snapshots.remove_below(end)
        while self._doomed:
            self.seams.file_system.remove(self._doomed.pop())


def _write_again(file_system: FileSystem, log: Log) -> None:
    """Write the log over itself, so that the next sync reaches all of it: where a sync has failed,
    the kernel takes pages for written that the disk does not have.
    """
    try:
        for segment in log.segments:
            file = file_system.open(segment.path(LOG_SUFFIX))
            for position in range(0, segment.size, REPLAY_BYTES):
                file.write(
                    position, file.read(position, min(REPLAY_BYTES, segment.size - position))
                )
            file.close()
    except OSError as error:
        raise log.fail(error) from error


def _owner_in(file_system: FileSystem, directory: str, node_id: int) -> MetaProperties | None:
    """Return the owner that a directory names; raise where it is another node, or an older release
    wrote the log.
    """
    former = f"{directory}/{TopicPartition(FORMER_METADATA_TOPIC, 0)}"
    if file_system.exists(former):
        raise former_metadata(former)
    properties = read_meta_properties(file_system, directory)
    if properties is not None and properties.node_id != node_id:
        raise InconsistentMetadataError(
            f"{directory} belongs to node {properties.node_id}, not to node {node_id}"
        )
    return properties
