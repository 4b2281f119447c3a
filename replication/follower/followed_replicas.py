"""The interface of the logs that a fetcher keeps equal to its leader's.

A fetcher does not know whose logs they are: a broker's replicas, the local copy of the
metadata log, and a mirror of a foreign cluster's topics each implement `FollowedReplicas`.

Rule 1: every method is synchronous. A fetcher reads a partition's state, acts on it and
writes it back without a checkpoint in between.

Rule 2: `process_partition_data` does not keep the records when it returns. They are a view
of the connection's receive buffer, and the next response overwrites them.

Rule 3: a log that cannot be read or written raises a StorageError, a partition that is no
longer here a KafkaError. Any other exception counts as a bug.
"""

from typing import Protocol

from replication.wire.fetch import PartitionData
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition


class AppendInfo(Protocol):
    """The result of an append, as far as a fetcher needs it (LogAppendInfo)."""

    @property
    def valid_bytes(self) -> int:
        """The size of the whole batches that were appended; a partial last one was left out."""

    @property
    def last_offset(self) -> Offset: ...

    @property
    def last_leader_epoch(self) -> LeaderEpoch: ...


class FollowedReplicas(Protocol):
    """The logs of the partitions that a fetcher follows."""

    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        """Return the leader epoch of the last record; None for a log without any epoch."""

    def log_start_offset(self, partition: TopicPartition) -> Offset: ...

    def log_end_offset(self, partition: TopicPartition) -> Offset: ...

    def high_watermark(self, partition: TopicPartition) -> Offset: ...

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Return the greatest epoch up to `epoch` and where it ends; -1, -1 if there is none."""

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        """Truncate the log to `offset`; `completed` if the logs are known to agree below it."""

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        """Delete all records; the next one is appended at `offset`."""

    def process_partition_data(
        self,
        partition: TopicPartition,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        data: PartitionData,
    ) -> AppendInfo | None:
        """Append the records fetched in `leader_epoch`, and take the high watermark and log start.

        Return None if the fetcher is to stay at its offset.
        """

    def complete_delayed_fetches(self) -> None:
        """Answer the consumers that wait for high watermarks which appends have moved since the last call."""
