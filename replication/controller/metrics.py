"""The controller's metrics of the cluster, under Kafka's names.

    kafka.controller:type=KafkaController   brokers and partitions, counted when they are read
    kafka.controller:type=ControllerStats   elections, counted when they happen

Rule 1: an election has happened when the record that names a leader is synced. It took from
the decision until then; a partition that is created with its first leader had none.

Rule 2: an election is unclean if its leader counts as recovering after it: it may lack committed
records (KIP-704; ControllerMetricsChanges).
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import attrs

from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import (
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
)
from replication.metrics import Histogram, Meter, MetricName, MetricsRegistry
from replication.wire.metadata import NO_LEADER
from storage.types import Offset


def controller_metric(name: str) -> MetricName:
    return MetricName("kafka.controller", "KafkaController", name)


UNCLEAN = MetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec")
ELECTIONS = MetricName("kafka.controller", "ControllerStats", "LeaderElectionRateAndTimeMs")


@attrs.frozen
class _Elections:
    """The elections of one append, which count once the log is synced up to `end`."""

    end: Offset
    decided: float
    count: int
    unclean: int


@attrs.define(eq=False)
class ControllerMetrics:
    """Registered as long as the controller lives."""

    registry: MetricsRegistry
    image: Callable[[], MetadataImage]
    now: Callable[[], float]
    elections: Histogram = attrs.field(factory=Histogram, init=False)
    unclean: Meter = attrs.field(init=False)
    _unsynced: deque[_Elections] = attrs.field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.unclean = self.registry.meter(UNCLEAN)
        self.registry.distribution(ELECTIONS, self.elections)
        counts: dict[str, Callable[[MetadataImage], int]] = {
            "ActiveControllerCount": lambda _: 1,
            "ActiveBrokerCount": lambda image: _brokers(image, fenced=False),
            "FencedBrokerCount": lambda image: _brokers(image, fenced=True),
            "GlobalTopicCount": lambda image: len(image.topics),
            "GlobalPartitionCount": lambda image: sum(1 for _ in image.partitions()),
            "OfflinePartitionsCount": _offline_partitions,
            "PreferredReplicaImbalanceCount": _not_led_by_the_first,
        }
        for name, count in counts.items():
            self.registry.gauge(controller_metric(name), partial(self._count, count))

    def _count(self, count: Callable[[MetadataImage], int]) -> int:
        return count(self.image())

    def appended(self, records: Iterable[MetadataRecord], *, end: Offset) -> None:
        changes = [each for each in records if isinstance(each, PartitionChangeRecord)]
        elected = [each for each in changes if each.leader not in (None, NO_LEADER)]
        if elected:
            recovering = LeaderRecoveryState.RECOVERING
            unclean = sum(each.leader_recovery_state is recovering for each in elected)
            self._unsynced.append(_Elections(end, self.now(), len(elected), unclean))

    def synced(self, end: Offset) -> None:
        while self._unsynced and self._unsynced[0].end <= end:
            done = self._unsynced.popleft()
            self.unclean.mark(done.unclean)
            for _ in range(done.count):
                self.elections.update((self.now() - done.decided) * 1000)


def _brokers(image: MetadataImage, *, fenced: bool) -> int:
    return sum(each.fenced is fenced for each in image.brokers.values())


def _offline_partitions(image: MetadataImage) -> int:
    return sum(each.leader == NO_LEADER for _, _, each in image.partitions())


def _not_led_by_the_first(image: MetadataImage) -> int:
    return sum(each.leader != each.replicas[0] for _, _, each in image.partitions())
