"""The wait of a request until each of its partitions has reached an offset, or cannot any more.

    produce          until the high watermark has passed its records     `Partition.produced`
    delete records   until the low watermark has reached its offset      `Partition.deleted`

A partition that moves away, or whose disk fails, ends its wait with that error.
(DelayedProduce and DelayedDeleteRecords in Kafka.)
"""

from collections.abc import Callable

import attrs

from replication.errors import ErrorCode, KafkaError
from replication.leader.partition import Partition
from replication.replica_manager.hosted import HostedPartitions
from storage.attributes import define
from storage.types import Offset, TopicPartition


@define(eq=False)
class DelayedOutcomes:
    """A wait until every partition in `required` has reached its offset, or cannot any more."""

    hosted: HostedPartitions
    required: dict[TopicPartition, Offset]
    outcome_of: Callable[[Partition, Offset], ErrorCode | None]
    outcomes: dict[TopicPartition, ErrorCode] = attrs.field(factory=dict)

    def satisfied(self) -> bool:
        for topic_partition in list(self.required):
            self._look_at(topic_partition)
        return not self.required

    def satisfied_by(self, key: TopicPartition, /) -> bool:
        self._look_at(key)
        return not self.required

    def _look_at(self, topic_partition: TopicPartition) -> None:
        """Note the partition's outcome, which is final: a leader that lost may lead again later."""
        required = self.required.get(topic_partition)
        if required is None:
            return
        try:
            outcome = self.outcome_of(self.hosted.get(topic_partition), required)
        except KafkaError as error:
            outcome = error.code
        if outcome is not None:
            self.outcomes[topic_partition] = outcome
            del self.required[topic_partition]
