"""How much is replicated to this broker, and how much of that only moves replicas (KIP-352).

(BrokerTopicStats in Kafka, as far as followers are concerned.)
"""

import attrs

from replication.metrics import Meter, MetricName, MetricsRegistry
from replication.partition import Partition


def metric(name: str) -> MetricName:
    return MetricName("kafka.server", "BrokerTopicMetrics", name)


@attrs.frozen(kw_only=True)
class BytesIn:
    replication: Meter
    reassignment: Meter

    @classmethod
    def registered(cls, metrics: MetricsRegistry) -> "BytesIn":
        return cls(
            replication=metrics.meter(metric("ReplicationBytesInPerSec")),
            reassignment=metrics.meter(metric("ReassignmentBytesInPerSec")),
        )

    def mark(self, partition: Partition, size: int) -> None:
        """So many bytes of records have come for this follower."""
        self.replication.mark(size)
        if partition.is_adding_local_replica:
            self.reassignment.mark(size)
