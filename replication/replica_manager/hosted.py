"""The partitions of this broker, and the error for every other one.

online                              the partition
offline: its log failed             KAFKA_STORAGE_ERROR
not here, but in the metadata       NOT_LEADER_OR_FOLLOWER: ask for newer metadata
nowhere                             UNKNOWN_TOPIC_OR_PARTITION
"""

from collections.abc import Callable, Iterator

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition, ReplicaSnapshot
from replication.metadata.rules.image import MetadataImage
from storage.attributes import define
from storage.types import TopicId, TopicPartition


@define(eq=False, repr=False)
class HostedPartitions:
    """The partitions that this broker holds, in the order in which they were added."""

    metadata: Callable[[], MetadataImage]
    online: dict[TopicPartition, Partition] = attrs.field(factory=dict)
    offline: dict[TopicPartition, TopicId] = attrs.field(factory=dict)
    find: Callable[[TopicPartition], Partition | None] = attrs.field(init=False)
    """Returns the partition; None if it is not online here."""

    def __attrs_post_init__(self) -> None:
        self.find = self.online.get

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over a copy of the partitions online, so that they may change meanwhile."""
        return iter(list(self.online.values()))

    def holds(self, partition: Partition) -> bool:
        """Return whether `partition` is still online here, and not another of its name."""
        return self.online.get(partition.topic_partition) is partition

    def get(self, topic_partition: TopicPartition) -> Partition:
        """Return the partition; raise KafkaError if it is not online (the table at the head)."""
        try:
            return self.online[topic_partition]
        except KeyError:
            raise KafkaError(self._why_not(topic_partition), str(topic_partition)) from None

    def snapshot(self, topic_partition: TopicPartition) -> ReplicaSnapshot | None:
        """Return the state of the partition; None if it is not online here."""
        partition = self.online.get(topic_partition)
        return None if partition is None else partition.snapshot()

    def describe(self) -> dict[TopicPartition, ReplicaSnapshot]:
        """Return the state of every partition online, sorted by name."""
        return {each: self.online[each].snapshot() for each in sorted(self.online)}

    def _why_not(self, topic_partition: TopicPartition) -> ErrorCode:
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.metadata().partition(topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def add(self, partition: Partition) -> None:
        self.offline.pop(partition.topic_partition, None)
        self.online[partition.topic_partition] = partition

    def take_offline(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        self._remove_online(topic_partition)
        self.offline[topic_partition] = topic_id

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        """Stop holding the partition; return it if it was online."""
        self.offline.pop(topic_partition, None)
        return self._remove_online(topic_partition)

    def _remove_online(self, topic_partition: TopicPartition) -> Partition | None:
        """Remove the partition, and unsettle it, so that sessions read it again and get an error."""
        partition = self.online.pop(topic_partition, None)
        if partition is not None:
            partition.settled.unsettle()
        return partition
