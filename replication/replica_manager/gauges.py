"""The gauges of a broker's replicas, under Kafka's names.

    kafka.server:type=ReplicaManager              how many lead, follow, lag, are below the minimum
    kafka.server:type=DelayedOperationPurgatory   how many requests wait
    of each partition, while it is here           partition_gauges.py

Every gauge is computed when it is read, and costs nothing otherwise. All of them are removed
from the registry when the broker stops.
"""

from collections.abc import Callable
from functools import partial

import attrs

from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.metrics import Family, Meter, MetricName, MetricsRegistry
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.partition_gauges import OF_PARTITION, partition_families
from replication.replica_manager.purgatories import Purgatories
from storage.attributes import define
from storage.types import TopicPartition

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000
_MANAGER = "ReplicaManager"
ISR_METERS = ("IsrExpandsPerSec", "IsrShrinksPerSec", "FailedIsrUpdatesPerSec")


def manager_metric(name: str) -> MetricName:
    return MetricName("kafka.server", _MANAGER, name)


def purgatory_metric(name: str, operation: str) -> MetricName:
    tags = (("delayedOperation", operation),)
    return MetricName("kafka.server", "DelayedOperationPurgatory", name, tags)


def is_reassigning(partition: Partition) -> bool:
    return bool(partition.adding or partition.removing)


def has_late_transaction(partition: Partition, *, wall_ms: int, max_timeout_ms: int) -> bool:
    """Return whether its coordinator should have ended a transaction long ago (KIP-664)."""
    last = partition.log.producers.oldest_transaction_timestamp
    return last is not None and 0 < last < wall_ms - max_timeout_ms - LATE_TRANSACTION_BUFFER_MS


@define(eq=False)
class ReplicaGauges:
    """The gauges and ISR meters; registered as long as the replica manager lives."""

    registry: MetricsRegistry
    hosted: HostedPartitions
    purgatories: Purgatories
    wall_ms: Callable[[], int]
    transaction_max_timeout_ms: int
    expands: Meter = attrs.field(init=False)
    shrinks: Meter = attrs.field(init=False)
    failed_updates: Meter = attrs.field(init=False)
    _names: list[MetricName] = attrs.field(factory=list, init=False)
    _families: list[Family] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._families = partition_families(self.hosted)
        for family in self._families:
            self.registry.family(family)
        counts: dict[str, Callable[[], float]] = {
            "LeaderCount": lambda: len(self._led()),
            "PartitionCount": lambda: len(self.hosted.online),
            "OfflineReplicaCount": lambda: len(self.hosted.offline),
            "UnderReplicatedPartitions": self._sum_of("UnderReplicated"),
            "UnderMinIsrPartitionCount": self._sum_of("UnderMinIsr"),
            "AtMinIsrPartitionCount": self._sum_of("AtMinIsr"),
            "ReassigningPartitions": lambda: sum(map(is_reassigning, self._led())),
            "PartitionsWithLateTransactionsCount": self._late_transactions,
            "ProducerIdCount": self._producer_ids,
        }
        for name, read in counts.items():
            self._gauge(manager_metric(name), read)
        for operation, purgatory in self.purgatories.by_operation():
            self._gauge(purgatory_metric("PurgatorySize", operation), _watched(purgatory))
            self._gauge(purgatory_metric("NumDelayedOperations", operation), _waiting(purgatory))
        self._names += map(manager_metric, ISR_METERS)
        self.expands, self.shrinks, self.failed_updates = (
            self.registry.meter(manager_metric(name)) for name in ISR_METERS
        )

    def unregister(self) -> None:
        for name in self._names:
            self.registry.remove(name)
        for family in self._families:
            self.registry.remove_family(family)

    def isr_changed(self, *, before: frozenset[int], after: frozenset[int]) -> None:
        (self.shrinks if after < before else self.expands).mark()

    def _gauge(self, name: MetricName, read: Callable[[], float]) -> None:
        self._names.append(name)
        self.registry.gauge(name, read)

    def _led(self) -> list[Partition]:
        return [each for each in self.hosted if each.is_leader]

    def _producer_ids(self) -> int:
        """Return how many pairs of a producer and a partition that remembers it there are."""
        return sum(len(each.log.producers.producers) for each in self.hosted)

    def _late_transactions(self) -> int:
        late = partial(
            has_late_transaction,
            wall_ms=self.wall_ms(),
            max_timeout_ms=self.transaction_max_timeout_ms,
        )
        return sum(map(late, self._led()))

    def _sum_of(self, name: str) -> Callable[[], int]:
        read = OF_PARTITION[name]
        return lambda: sum(read(each) for each in self.hosted)


def _watched(purgatory: Purgatory[TopicPartition]) -> Callable[[], int]:
    return lambda: purgatory.watched


def _waiting(purgatory: Purgatory[TopicPartition]) -> Callable[[], int]:
    return lambda: purgatory.waiting
