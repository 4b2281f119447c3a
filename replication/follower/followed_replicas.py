"""What a fetcher asks of the logs it keeps alike to a leader's.

The engine does not know whose logs they are: a broker's replicas, the local copy of the
metadata log, or a mirror of somebody else's topics each implement `FollowedReplicas`.

Rule 1: every method is synchronous. A fetcher reads a partition's state, acts on it and
writes it back without a checkpoint in between, so nobody can come between.

Rule 2: `process_partition_data` is done with the records when it returns. They are a view
of the connection's receive buffer, and the next answer overwrites them.

Rule 3: a log that cannot be read or written raises a StorageError, a partition that is not
here any more a KafkaError. Anything else is taken for a mistake of ours.
"""

from collections.abc import Iterable
from typing import Protocol

from replication.wire.fetch import PartitionData
from storage.types import LeaderEpoch, Offset, OffsetAndEpoch, TopicPartition


class AppendInfo(Protocol):
    """What the fetcher must know of an append (LogAppendInfo)."""

    @property
    def valid_bytes(self) -> int:
        """Whole batches appended; a trailing partial one was left out."""

    @property
    def last_offset(self) -> Offset: ...

    @property
    def last_leader_epoch(self) -> LeaderEpoch: ...


class FollowedReplicas(Protocol):
    def latest_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        """That of the last record; None in a log without any."""

    def log_start_offset(self, partition: TopicPartition) -> Offset: ...

    def log_end_offset(self, partition: TopicPartition) -> Offset: ...

    def high_watermark(self, partition: TopicPartition) -> Offset: ...

    def end_offset_for_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The greatest epoch up to `epoch` in this log and where it ends; -1, -1 for none."""

    def truncate_to(self, partition: TopicPartition, offset: Offset, *, completed: bool) -> None:
        """Cut the log's end; `completed` once the logs are known to agree below it."""

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: Offset) -> None:
        """Drop everything; the next record to append is at `offset`."""

    def process_partition_data(
        self,
        partition: TopicPartition,
        fetch_offset: Offset,
        leader_epoch: LeaderEpoch,
        data: PartitionData,
    ) -> AppendInfo | None:
        """Append what was fetched in `leader_epoch`, and move the high watermark and the log start.

        Return None where nothing is to be told.
        """

    def complete_delayed_fetches(self, partitions: Iterable[TopicPartition]) -> None:
        """High watermarks have moved here: answer the consumers who wait for that."""
