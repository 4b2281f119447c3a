"""How a broker learns of the cluster: it follows the controller's metadata log.

    controller   __understudy_metadata-0   [0 ............ high watermark]
                      │ Fetch, as an observer: it counts for nobody's high watermark
    this broker  __understudy_metadata-0   [0 ...... applied ... log end]
                                                        └─> MetadataImage

The log is replicated by the fetcher that replicates data, into a log like any other, so a
restart resumes from the local copy. Everything the controller serves lies below its high
watermark, which is its synced end; so everything here does too, and all of it is applied.

Records are applied in order, a batch at once: what the controller wrote in one batch is
never seen half done. Should the local copy have to be cut all the same, because its owner
restored an older controller's disk, the image is built anew from what is left.
"""

from collections.abc import Callable, Iterable

import attrs

from replication.cluster.metadata_cache import MetadataCache
from replication.errors import ErrorCode, KafkaError, MetadataError
from replication.events import EventSink, MetadataApplied
from replication.fetch_state import BrokerEndPoint, FailedPartitions, InitialFetchState
from replication.fetcher import FetcherConfig, ReplicaFetcher
from replication.fetcher_stats import FetcherStats
from replication.leader_endpoint import RemoteLeaderEndpoint
from replication.metadata import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    MetadataImage,
    apply_batches,
)
from replication.metrics import MetricsRegistry
from replication.net.seams import Seams
from replication.wire.fetch import PartitionData
from storage.append import LogAppendInfo
from storage.errors import KafkaStorageError
from storage.log import Log
from storage.types import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
)

FETCHER_NAME = "MetadataFetcherThread"
BACKOFF_MS = 100  # a broker without its controller looks for it more often than for a leader
_REPLAY_BYTES = 1 << 20


@attrs.define(eq=False, repr=False, kw_only=True)
class MetadataFollower:
    """The broker's copy of the metadata log, as a fetcher sees it (`FollowedReplicas`)."""

    log: Log
    cache: MetadataCache
    sink: EventSink
    on_failure: Callable[[Exception], None]
    """The copy cannot be kept: a disk that fails, or a record that only a newer release knows."""

    def replay(self) -> None:
        """Build the image from the local copy; at start, and after the copy was cut."""
        image = MetadataImage()
        position = self.log.log_start_offset
        while position < self.log.log_end_offset:
            data = self.log.read(
                position, _REPLAY_BYTES, max_offset_exclusive=self.log.log_end_offset, min_one=True
            )
            assert data.records is not None, "below the log end there are records"
            image = apply_batches(image, data.records.read())
            position = image.offset + 1
        self.cache.publish(image)

    # What the fetcher asks.

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return self._hosted(partition).latest_epoch

    def log_start_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).log_end_offset

    def high_watermark(self, partition: TopicPartition) -> Offset:
        return self._hosted(partition).high_watermark

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self._hosted(partition).end_offset_for_epoch(epoch)

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        del completed  # what is left is a prefix of the controller's log either way
        if self._hosted(partition).truncate_to(offset):
            self.replay()

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        self._hosted(partition).truncate_fully_and_start_at(offset)
        self.replay()

    def process_partition_data(
        self, partition: TopicPartition, fetch_offset: Offset, data: PartitionData
    ) -> LogAppendInfo | None:
        log = self._hosted(partition)
        assert fetch_offset == log.log_end_offset, "a fetch continues the log it was made for"
        records = memoryview(b"") if data.records is None else data.records
        assert isinstance(records, memoryview), "an answer has its records in memory"
        try:
            info = log.append_as_follower(records)
            log.update_high_watermark(min(data.high_watermark, log.log_end_offset))
            if info.valid_bytes:
                self._apply(records[: info.valid_bytes])
        except (KafkaStorageError, MetadataError) as error:
            self.on_failure(error)
            raise
        return info

    def _apply(self, records: memoryview) -> None:
        image = apply_batches(self.cache.image, records)
        applied = image.offset - self.cache.image.offset
        self.cache.publish(image)
        self.sink(
            MetadataApplied(
                offset=image.offset + 1, leader_epoch=image.leader_epoch, records=applied
            )
        )

    def complete_delayed_fetches(self, partitions: Iterable[TopicPartition]) -> None:
        """Nobody fetches the metadata log from a broker."""

    def _hosted(self, partition: TopicPartition) -> Log:
        if partition != METADATA_PARTITION:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
        return self.log


def metadata_fetcher(
    follower: MetadataFollower,
    *,
    node_id: int,
    controller: BrokerEndPoint,
    seams: Seams,
    metrics: MetricsRegistry,
    on_bug: Callable[[BaseException], None],
) -> ReplicaFetcher:
    """The task that keeps `follower` alike to the controller's log."""
    fetcher = ReplicaFetcher(
        name=FETCHER_NAME,
        leader=RemoteLeaderEndpoint(
            broker=controller,
            replica_id=node_id,
            client_id=f"broker-{node_id}-metadata",
            transport=seams.transport,
            clock=seams.clock,
        ),
        replicas=follower,
        config=FetcherConfig(replica_id=node_id, backoff_ms=BACKOFF_MS),
        clock=seams.clock,
        failed=FailedPartitions(),
        stats=FetcherStats(metrics, FETCHER_NAME, controller),
        on_bug=on_bug,
    )
    # The controller's epoch is learned from its log, not told to it: there is one of it.
    beginning = InitialFetchState(
        topic_id=METADATA_TOPIC_ID,
        leader=controller,
        current_leader_epoch=NO_LEADER_EPOCH,
        init_offset=follower.log.log_end_offset,
    )
    fetcher.add_partitions({METADATA_PARTITION: beginning})
    return fetcher
