"""This broker's replicas, as its fetchers work on them.

A follower's log is a copy of the leader's: records are appended as they arrive, and the high
watermark and the log start are the leader's, as far as the local log reaches.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import attrs
import trio

from replication.follower.rules.fetch_state import InitialFetchState, PartitionFetchState
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.leader.rules.quota import ReplicationQuota
from replication.net.seams import NodeClock
from replication.replica_manager.bytes_in import BytesIn
from replication.replica_manager.hosted import HostedPartitions
from replication.wire.fetch import PartitionData
from storage.attributes import define
from storage.errors import KafkaStorageError
from storage.log.append import LogAppendInfo
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition


class FetcherManager(Protocol):
    """The part of the `ReplicaFetcherManager` that a replica manager needs."""

    nursery: trio.Nursery | None
    """Assigned once the replica manager runs; nothing is followed before."""

    def add_fetcher_for_partitions(
        self, initial_states: Mapping[TopicPartition, InitialFetchState], /
    ) -> None: ...

    def remove_fetcher_for_partitions(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, PartitionFetchState]: ...

    def add_failed_partition(self, partition: TopicPartition, /) -> None: ...

    def log_start_moved(self, partition: TopicPartition, /) -> None: ...

    def followed_by(self, partition: TopicPartition, /) -> int: ...

    async def resize(self, num_fetchers: int, /) -> None: ...

    async def shutdown_idle_fetchers(self) -> None: ...

    async def close_all(self) -> None: ...


@define(eq=False, kw_only=True)
class LocalReplicas:
    """Implements `FollowedReplicas` for the partitions of a broker."""

    hosted: HostedPartitions
    clock: NodeClock
    fetches: Purgatory[TopicPartition]
    quota: ReplicationQuota
    bytes_in: BytesIn
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]
    _high_watermarks_moved: dict[TopicPartition, None] = attrs.field(factory=dict, init=False)

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return self.hosted.get(partition).log.latest_epoch

    def log_start_offset(self, partition: TopicPartition) -> Offset:
        return self.hosted.get(partition).log.log_start_offset

    def log_end_offset(self, partition: TopicPartition) -> Offset:
        return self.hosted.get(partition).log.log_end_offset

    def high_watermark(self, partition: TopicPartition) -> Offset:
        return self.hosted.get(partition).log.high_watermark

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        return self.hosted.get(partition).log.end_offset_for_epoch(epoch)

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        """Truncate the log to `offset`."""
        del completed  # it matters only to a second copy of the log, and there is none
        hosted = self.hosted.get(partition)
        try:
            hosted.log.truncate_to(offset)
        except KafkaStorageError as error:
            self.on_storage_failure(hosted, error)
            raise

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        hosted = self.hosted.get(partition)
        try:
            hosted.log.truncate_fully_and_start_at(offset)
        except KafkaStorageError as error:
            self.on_storage_failure(hosted, error)
            raise

    def process_partition_data(
        self,
        partition: TopicPartition,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        data: PartitionData,
    ) -> LogAppendInfo | None:
        hosted = self.hosted.get(partition)
        assert hosted.leadership is None, f"{partition} is led here and fetched from elsewhere"
        records, high_watermark = data.records, hosted.log.high_watermark
        assert isinstance(records, memoryview | None), "a decoded answer has its records in memory"
        try:
            info = hosted.append_as_follower(
                memoryview(b"") if records is None else records,
                fetch_offset=fetch_offset,
                leader_epoch=leader_epoch,
                high_watermark=data.high_watermark,
                log_start_offset=data.log_start_offset,
                wall_ms=self.clock.wall_ms(),
            )
        except KafkaStorageError as error:
            self.on_storage_failure(hosted, error)
            raise
        if hosted.log.high_watermark != high_watermark:
            self._high_watermarks_moved[partition] = None
        if records is not None:
            if self.quota.throttles:
                self.quota.record({partition: len(records)}, now_ms=self.clock.now_ms())
            self.bytes_in.mark(hosted, len(records))
        return info

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Return whether a partition out of sync is left out of a fetch for now (KIP-73)."""
        return self.quota.holds_back(partition, now_ms=self.clock.now_ms())

    def complete_delayed_fetches(self) -> None:
        if self._high_watermarks_moved:
            moved, self._high_watermarks_moved = self._high_watermarks_moved, {}
            for partition in moved:
                self.fetches.check(partition)
