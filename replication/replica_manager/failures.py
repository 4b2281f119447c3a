"""The consequences of a failed log: its partition goes offline, and its log directory too.

(ReplicaManager.handleLogDirFailure in Kafka.)
"""

import attrs

from replication.events import EventSink, PartitionFailed
from replication.leader.partition import Partition
from replication.replica_manager.followed import FetcherManager
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.purgatories import Purgatories
from storage.attributes import define
from storage.errors import KafkaStorageError, StorageError
from storage.types import TopicId, TopicPartition


@define(eq=False, kw_only=True)
class LogFailures:
    """Takes partitions offline."""

    hosted: HostedPartitions
    purgatories: Purgatories
    sink: EventSink
    fetchers: FetcherManager | None = attrs.field(init=False, default=None)
    """Assigned once they exist: they work on logs that may fail."""

    def on_partition_failure(self, partition: Partition, error: StorageError) -> None:
        self.on_failure(partition.topic_partition, partition.topic_id, error)

    def on_failure(
        self, topic_partition: TopicPartition, topic_id: TopicId, error: StorageError
    ) -> None:
        """Take this partition offline, and every other one in a log directory that has failed."""
        self.hosted.take_offline(topic_partition, topic_id)
        self.sink(PartitionFailed(partition=topic_partition, cause=str(error)))
        if self.fetchers is not None:
            self.fetchers.remove_fetcher_for_partitions([topic_partition])
            self.fetchers.add_failed_partition(topic_partition)
        self.purgatories.check(topic_partition)
        self.take_failed_offline()

    def take_failed_offline(self) -> None:
        """Take every partition offline whose log has failed.

        A log directory fails as a whole, possibly in a thread, and its logs know it at once.
        """
        for partition in self.hosted:
            failure = partition.log.failure
            if failure is not None and partition.topic_partition in self.hosted.online:
                self.on_partition_failure(partition, KafkaStorageError(str(failure)))
