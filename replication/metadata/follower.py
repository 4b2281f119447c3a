"""A broker's copy of the metadata log, which follows the controller's.

    controller   __understudy_metadata-0   [0 ............ high watermark]
                      │ Fetch, as an observer: it does not move the high watermark
    this broker  __understudy_metadata-0   [0 ...... applied ... log end]
                                                        └─> MetadataImage

The log is replicated by the fetcher that replicates data, into a log like any other, so a
restart resumes from the local copy. Everything that the controller serves lies below its high
watermark, which is its synced end; so everything here does too, and all of it is applied.

Records are applied in order, a batch at once: no image contains half of a decision. Many records
are applied away from the loop, before the next fetch. Where the local copy must be truncated all
the same, because an older disk of the controller was restored, the image is built again from the
rest.

Each node keeps its log short by itself, with snapshots (`snapshots.py`). A broker whose copy ends
before the controller's log begins receives a snapshot of the missing records (`endpoint.py`).
"""

import contextlib
from collections.abc import Callable
from functools import partial

import attrs
import trio

from replication.errors import ErrorCode, KafkaError, MetadataError, PeerUnavailableError
from replication.events import EventSink, MetadataApplied
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    InitialFetchState,
)
from replication.metadata.cache import MetadataCache
from replication.metadata.endpoint import MetadataEndpoint
from replication.metadata.rules.image import MetadataImage, apply_batches
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.metadata.snapshots import (
    Snapshot,
    SnapshotDue,
    SnapshotFile,
    batches_after,
    cut_below,
)
from replication.metrics import MetricsRegistry
from replication.net.seams import Offload, Seams
from replication.steps import STEP
from replication.wire.fetch import PartitionData
from storage.errors import KafkaStorageError, ShortageError
from storage.log.append import LogAppendInfo
from storage.log.log import Log
from storage.types import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
)

FETCHER_NAME = "MetadataFetcherThread"
BACKOFF_MS = 100  # a broker without its controller looks for it more often than for a leader


@attrs.define(eq=False, repr=False, kw_only=True)
class MetadataFollower:
    """The broker's copy of the metadata log, as a fetcher sees it (`FollowedReplicas`)."""

    log: Log
    cache: MetadataCache
    sink: EventSink
    on_failure: Callable[[Exception], None]
    """Called when the copy cannot be kept: the disk fails, or only a newer release knows a record."""
    offload: Offload
    snapshot_due: SnapshotDue = attrs.field(factory=SnapshotDue)
    snapshot: Snapshot | None = attrs.field(default=None, init=False)
    """The snapshot of everything below the log start offset."""
    _snapshot_file: SnapshotFile = attrs.field(init=False)
    _image: MetadataImage = attrs.field(factory=MetadataImage, init=False)
    _is_whole: bool = attrs.field(default=True, init=False)
    _cuts: int = attrs.field(default=0, init=False)
    _controllers_end: Offset = attrs.field(default=0, init=False)
    """The high watermark of the controller's log, as of the last fetch."""
    _one_snapshot_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._snapshot_file = SnapshotFile.beside(self.log.local.file_system, self.log.directory)

    def recover(self) -> None:
        """Build the image from the local copy at the start."""
        with contextlib.suppress(MetadataError):  # a broken snapshot is ignored: it is sent again
            self.snapshot = self._snapshot_file.read()
        log = self.log
        if log.log_start_offset > self._begins_at:
            self._start_anew()  # the records between are lost
        elif log.log_end_offset < self._begins_at:
            log.truncate_fully_and_start_at(self._begins_at)
        log.update_high_watermark(log.log_end_offset)  # the controller sends only synced records
        log.increment_log_start_offset(self._begins_at)
        self._is_whole = True  # no newer image has been published yet
        self._replay()

    @property
    def _begins_at(self) -> Offset:
        """The first offset that the log itself must hold."""
        return 0 if self.snapshot is None else self.snapshot.end_offset

    def _replay(self) -> None:
        image = MetadataImage() if self.snapshot is None else self.snapshot.image
        while image.offset + 1 < self.log.log_end_offset:
            image = apply_batches(image, batches_after(self.log, image))
        self._take_up(image)

    def _take_up(self, image: MetadataImage) -> None:
        self._image = image
        if self._is_whole:
            self.cache.publish(image)

    def _start_anew(self) -> None:
        """Drop the copy. The published image stays until the copy is complete again: with an
        image of half the topics this broker would delete the others.
        """
        self._cuts += 1
        self._is_whole = False
        self.snapshot = None
        try:
            self._snapshot_file.remove()
        except OSError as error:
            raise self.log.fail(error) from error
        self.log.truncate_fully_and_start_at(0)
        self._image = MetadataImage()

    # Snapshots.

    async def install(self, snapshot: Snapshot) -> None:
        """Replace the copy by a snapshot of the controller; raise KafkaStorageError if that fails."""
        async with self._one_snapshot_at_a_time:
            # A crash after this leaves a log without its snapshot, which the next start drops.
            self._cuts += 1
            self.log.truncate_fully_and_start_at(snapshot.end_offset)
            try:
                await self.offload(lambda: self._snapshot_file.replace(snapshot))
            except OSError as error:
                raise self.log.fail(error) from error
            self.snapshot = snapshot
            self._is_whole = True
            self._take_up(snapshot.image)

    async def take_snapshots(self) -> None:
        """Take a snapshot whenever one is due, until cancelled."""
        while True:
            await self.snapshot_due.wait()
            try:
                await self.take_snapshot()
            except ShortageError:
                continue  # until as much has been written again
            except OSError as error:
                self.on_failure(self.log.fail(error))
            except KafkaStorageError as error:
                self.on_failure(error)

    async def take_snapshot(self) -> None:
        self.snapshot_due.begun()
        async with self._one_snapshot_at_a_time:
            image, cuts = self._image, self._cuts
            if not self._is_whole or image.offset < self._begins_at:
                return
            snapshot = await self.offload(lambda: self._snapshot_file.write(image))
            # A broker that was killed meanwhile has no disk any more.
            await trio.lowlevel.checkpoint_if_cancelled()
            if cuts != self._cuts:
                self._start_anew()  # it may contain records that were truncated
                return
            self.snapshot = snapshot
            cut_below(self.log, snapshot.end_offset)

    # The methods of `FollowedReplicas`.

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        latest = self._hosted(partition).latest_epoch
        if latest is None and self.snapshot is not None:
            return self.snapshot.id.leader_epoch
        return latest

    def log_start_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log_end_offset

    def high_watermark(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).high_watermark

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self._hosted(partition).end_offset_for_epoch(epoch)

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        del completed  # the rest is a prefix of the controller's log either way
        log = self._hosted(partition)
        if offset < self._begins_at:
            self._start_anew()
        elif log.truncate_to(offset):
            self._cuts += 1
            self._replay()

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        """Do nothing: `MetadataEndpoint` installs the controller's snapshot.

        Without the records below `offset`, those after it cannot be applied.
        """

    def process_partition_data(
        self,
        partition: TopicPartition,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        data: PartitionData,
    ) -> LogAppendInfo | None:
        del leader_epoch  # none: there is one controller, and its log is followed in no epoch
        log = self._hosted(partition)
        assert fetch_offset == log.log_end_offset, "a fetch continues the log it was made for"
        records = memoryview(b"") if data.records is None else data.records
        assert isinstance(records, memoryview), "an answer has its records in memory"
        try:
            info = log.append_as_follower(records)
            log.update_high_watermark(min(data.high_watermark, log.log_end_offset))
            self._controllers_end = data.high_watermark
            if info.valid_bytes:
                self.snapshot_due.appended(info.valid_bytes)
                if log.log_end_offset - self._image.offset <= STEP:
                    self._applied(apply_batches(self._image, records[: info.valid_bytes]))
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise
        return info

    async def apply_appended(self) -> None:
        """Apply the records that were too many to be applied when they were appended.

        Raise PeerUnavailableError where that fails; the broker ends then.
        """
        try:
            while self._image.offset + 1 < self.log.log_end_offset:
                image, cuts = self._image, self._cuts
                batches = batches_after(self.log, image)
                image = await self.offload(partial(apply_batches, image, batches))
                await trio.lowlevel.checkpoint_if_cancelled()  # the broker may have been stopped
                if cuts == self._cuts:
                    self._applied(image)
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise PeerUnavailableError(f"the metadata could not be applied: {error}") from error

    def _applied(self, image: MetadataImage) -> None:
        applied = image.offset - self._image.offset
        self._is_whole = self._is_whole or image.offset + 1 >= self._controllers_end
        self._take_up(image)
        self.sink(
            MetadataApplied(
                offset=image.offset + 1, leader_epoch=image.leader_epoch, records=applied
            )
        )

    def fail(self, error: Exception) -> None:
        """End the broker: the snapshot of the controller cannot be kept."""
        self.on_failure(error)

    def complete_delayed_fetches(self) -> None:
        """Do nothing: the metadata log is not fetched from brokers."""

    def _hosted(self, partition: TopicPartition) -> Log:
        if partition != METADATA_PARTITION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        return self.log


def metadata_fetcher(
    follower: MetadataFollower,
    *,
    node_id: int,
    controller: BrokerEndPoint,
    max_wait_ms: int,
    seams: Seams,
    metrics: MetricsRegistry,
    on_bug: Callable[[BaseException], None],
) -> ReplicaFetcher:
    """Return the fetcher that keeps `follower` equal to the controller's log."""
    fetcher = ReplicaFetcher(
        name=FETCHER_NAME,
        leader=MetadataEndpoint(
            follower=follower,
            broker=controller,
            replica_id=node_id,
            client_id=f"broker-{node_id}-metadata",
            transport=seams.transport,
            clock=seams.clock,
        ),
        replicas=follower,
        config=FetcherConfig(replica_id=node_id, max_wait_ms=max_wait_ms, backoff_ms=BACKOFF_MS),
        clock=seams.clock,
        failed=set(),
        stats=FetcherStats(metrics, FETCHER_NAME, controller),
        on_bug=on_bug,
    )
    # There is one controller, and its epoch is read from its log: a fetch has none.
    beginning = InitialFetchState(
        topic_id=METADATA_TOPIC_ID,
        leader=controller,
        current_leader_epoch=NO_LEADER_EPOCH,
        init_offset=follower.log.log_end_offset,
    )
    fetcher.partitions.add({METADATA_PARTITION: beginning})
    return fetcher
