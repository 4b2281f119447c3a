"""A broker's copy of the metadata log, which follows the active controller's.

    controller   __cluster_metadata-0   [0 ............ high watermark]
                      │ Fetch, as an observer: it does not move the high watermark
    this broker  __cluster_metadata-0   [0 ...... applied ... log end]
                                                        └─> MetadataImage

The log is replicated by the fetcher that replicates data, into a log like any other, so a
restart resumes from the local copy. Only what lies below the high watermark is applied, and after
a restart the leader names it before anything is: Apache Kafka's leader sends observers records that
a majority may not have yet, and a new leader may truncate those.

Records are applied in order, a batch at once: no image contains half of a decision. Many records
are applied away from the loop, before the next fetch. Where even committed records must be truncated,
because an older disk of a single controller was restored, the image is built again from the rest.

Each node keeps its log short by itself, with snapshots (`snapshots.py`). A broker whose copy ends
before the controller's log begins receives a snapshot of the missing records (`endpoint.py`).
"""

from collections.abc import Callable

from replication.config import BrokerConfig
from replication.errors import ErrorCode, KafkaError, MetadataError, PeerUnavailableError
from replication.events import EventSink, MetadataApplied, RareReporter
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    InitialFetchState,
)
from replication.metadata.cache import MetadataCache
from replication.metadata.endpoint import ObserverEndpoint
from replication.metadata.log import MetadataLog
from replication.metadata.rules.records import METADATA_PARTITION, METADATA_TOPIC_ID
from replication.metadata.snapshots import SnapshotWriter
from replication.metrics import MetricsRegistry
from replication.net.controller_channel import Controllers
from replication.net.seams import Seams
from replication.wire.fetch import PartitionData
from storage.attributes import define
from storage.errors import KafkaStorageError
from storage.log.append import LogAppendInfo
from storage.types import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
)

FETCHER_NAME = "MetadataFetcherThread"
LEADER_ID = 0
"""The id under which a fetcher knows its leader; which node that is decides `MetadataEndpoint`."""
BACKOFF_MS = 100  # a broker without its controller looks for it more often than for a leader


@define(eq=False, repr=False, kw_only=True)
class MetadataFollower:
    """A replica of the metadata log, as a fetcher sees it (`FollowedReplicas`)."""

    log: MetadataLog
    cache: MetadataCache
    sink: EventSink
    on_failure: Callable[[Exception], None]
    """Called when the copy cannot be kept: the disk fails, or only a newer release knows a record."""

    def recover(self) -> None:
        """Build the image from the local copy at the start."""
        self.log.recover_copy()
        self._publish()

    def _publish(self) -> None:
        self.cache.kraft_version = self.log.voters.kraft_version
        self.cache.publish(self.log.committed_image)

    def show(self) -> None:
        """Publish the committed image, unless it is published already, or incomplete.

        What was published stays until a copy that was begun anew is complete again: with an image
        of half the topics this broker would delete the others.
        """
        image, shown = self.log.committed_image, self.cache.image
        if image is shown or not self.log.is_whole:
            return
        self._publish()
        if image.offset > shown.offset:
            self.sink(
                MetadataApplied(
                    offset=image.offset + 1,
                    leader_epoch=image.leader_epoch,
                    records=image.offset - shown.offset,
                )
            )

    def receive_snapshot(self, end: OffsetAndEpoch) -> SnapshotWriter:
        return self.log.receive_snapshot(end)

    async def install(self, received: SnapshotWriter) -> None:
        """Replace the copy by a snapshot of the controller, as `MetadataLog.install` does."""
        await self.log.install(received)
        self.show()

    async def take_snapshots(self) -> None:
        """Take a snapshot whenever one is due, until cancelled or the disk fails."""
        try:
            await self.log.take_snapshots()
        except KafkaStorageError as error:
            self.on_failure(error)

    async def apply_appended(self) -> None:
        """Apply the records that were too many to be applied when they were appended.

        Raise PeerUnavailableError where that fails; the broker ends then.
        """
        try:
            await self.log.apply_committed()
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise PeerUnavailableError(f"the metadata could not be applied: {error}") from error
        self.show()

    def fail(self, error: Exception) -> None:
        """End the broker: the snapshot of the controller cannot be kept."""
        self.on_failure(error)

    # The methods of `FollowedReplicas`.

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return self._hosted(partition).latest_epoch

    def log_start_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log.log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log_end_offset

    def high_watermark(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).high_watermark

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self._hosted(partition).log.end_offset_for_epoch(epoch)

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        del completed  # the rest is a prefix of the controller's log either way
        try:
            self._hosted(partition).truncate_to(offset)
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise
        self.show()

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
            info = log.append_fetched(records, high_watermark=data.high_watermark)
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise
        self.show()
        return info

    def complete_delayed_fetches(self) -> None:
        """Do nothing: the metadata log is not fetched from brokers."""

    def _hosted(self, partition: TopicPartition) -> MetadataLog:
        if partition != METADATA_PARTITION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        return self.log


def metadata_fetcher(
    follower: MetadataFollower,
    *,
    config: BrokerConfig,
    controllers: Controllers,
    seams: Seams,
    metrics: MetricsRegistry,
    on_bug: Callable[[BaseException], None],
) -> ReplicaFetcher:
    """Return the fetcher that keeps `follower` equal to the active controller's log."""
    max_wait_ms = config.understudy_metadata_fetch_wait_max_ms
    leader = BrokerEndPoint(LEADER_ID, controllers.address.host, controllers.address.port)
    fetcher = ReplicaFetcher(
        name=FETCHER_NAME,
        leader=ObserverEndpoint(
            follower=follower,
            controllers=controllers,
            not_served=RareReporter(follower.sink, seams.clock.now_ms),
            broker=leader,
            replica_id=config.node_id,
            client_id=f"broker-{config.node_id}-metadata",
            transport=seams.transport,
            clock=seams.clock,
            connect_timeout_ms=config.controller_quorum_request_timeout_ms,
            request_timeout_ms=max_wait_ms + config.controller_quorum_request_timeout_ms,
            snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        ),
        replicas=follower,
        config=FetcherConfig(
            replica_id=config.node_id,
            max_wait_ms=max_wait_ms,
            max_bytes=config.controller_quorum_fetch_max_bytes,
            partition_max_bytes=config.controller_quorum_fetch_max_bytes,
            backoff_ms=BACKOFF_MS,
        ),
        clock=seams.clock,
        failed=set(),
        stats=FetcherStats(metrics, FETCHER_NAME, leader),
        on_bug=on_bug,
    )
    # The leader's epoch is read from its log: a fetch has none.
    beginning = InitialFetchState(
        topic_id=METADATA_TOPIC_ID,
        leader=leader,
        current_leader_epoch=NO_LEADER_EPOCH,
        init_offset=follower.log.log_end_offset,
    )
    fetcher.partitions.add({METADATA_PARTITION: beginning})
    return fetcher
