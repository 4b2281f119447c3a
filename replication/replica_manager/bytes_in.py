"""Meters of the bytes replicated to this broker, and of those that a reassignment moves (KIP-352).

(The part of BrokerTopicStats in Kafka that concerns followers.)
"""

from replication.leader.partition import Partition
from replication.metrics import Meter, MetricName, MetricsRegistry
from storage.attributes import frozen

REPLICATION, REASSIGNMENT = "ReplicationBytesInPerSec", "ReassignmentBytesInPerSec"


def metric(name: str, topic: str | None = None) -> MetricName:
    tags = () if topic is None else (("topic", topic),)
    return MetricName("kafka.server", "BrokerTopicMetrics", name, tags)


@frozen(kw_only=True)
class BytesIn:
    replication: Meter
    reassignment: Meter

    @classmethod
    def registered(cls, metrics: MetricsRegistry) -> "BytesIn":
        return cls(
            replication=metrics.meter(metric(REPLICATION)),
            reassignment=metrics.meter(metric(REASSIGNMENT)),
        )

    @staticmethod
    def unregister(metrics: MetricsRegistry) -> None:
        metrics.remove(metric(REPLICATION))
        metrics.remove(metric(REASSIGNMENT))

    def mark(self, partition: Partition, size: int) -> None:
        """Count `size` bytes of records that were fetched for this follower."""
        self.replication.mark(size)
        if partition.is_adding_local_replica:
            self.reassignment.mark(size)
