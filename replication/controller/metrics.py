"""The controller's metrics of the cluster, under Kafka's names.

    kafka.controller:type=KafkaController   brokers and partitions, counted when they are read
    kafka.controller:type=ControllerStats   elections, counted when they happen
    kafka.server:type=raft-metrics          this controller's place in the quorum (KafkaRaftMetrics)

Rule 1: an election has happened when the record that names a leader is synced. It took from
the decision until then; a partition that is created with its first leader had none.

Rule 2: an election is unclean if its leader counts as recovering after it: it may lack committed
records (KIP-704; ControllerMetricsChanges).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import attrs

from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import LeaderRecoveryState
from replication.metrics import Histogram, Meter, MetricName, MetricsRegistry
from replication.raft.node import RaftNode
from replication.raft.rules.quorum import Quorum
from replication.raft.rules.states import (
    Candidate,
    Follower,
    Leading,
    Prospective,
    Resigned,
    Unattached,
)
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import (
    NO_LEADER_CHANGE,
    MetadataRecord,
    PartitionChangeRecord,
)
from storage.attributes import define, frozen
from storage.types import NO_OFFSET, Offset


def controller_metric(name: str) -> MetricName:
    return MetricName("kafka.controller", "KafkaController", name)


UNCLEAN = MetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec")
ELECTIONS = MetricName("kafka.controller", "ControllerStats", "LeaderElectionRateAndTimeMs")


@frozen
class _Elections:
    """The elections of one append, which count once the log is synced up to `end`."""

    end: Offset
    decided: float
    count: int
    unclean: int


@define(eq=False)
class ControllerMetrics:
    """Registered as long as the controller lives."""

    registry: MetricsRegistry
    image: Callable[[], MetadataImage]
    is_active: Callable[[], bool]
    now: Callable[[], float]
    elections: Histogram = attrs.field(factory=Histogram, init=False)
    unclean: Meter = attrs.field(init=False)
    _unsynced: deque[_Elections] = attrs.field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.unclean = self.registry.meter(UNCLEAN)
        self.registry.distribution(ELECTIONS, self.elections)
        counts: dict[str, Callable[[MetadataImage], int]] = {
            "ActiveControllerCount": lambda _: int(self.is_active()),
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
        elected = [each for each in changes if each.leader not in (NO_LEADER_CHANGE, NO_LEADER)]
        if elected:
            recovering = LeaderRecoveryState.RECOVERING
            unclean = sum(each.leader_recovery_state == recovering for each in elected)
            self._unsynced.append(_Elections(end, self.now(), len(elected), unclean))

    def synced(self, end: Offset) -> None:
        while self._unsynced and self._unsynced[0].end <= end:
            done = self._unsynced.popleft()
            self.unclean.mark(done.unclean)
            for _ in range(done.count):
                self.elections.update((self.now() - done.decided) * 1000)


def raft_metric(name: str, **tags: str) -> MetricName:
    return MetricName("kafka.server", "raft-metrics", name, tuple(tags.items()))


def register_raft_metrics(registry: MetricsRegistry, node: RaftNode) -> None:
    """Register the metrics of a node of the quorum; ids and offsets that are not known are -1."""
    gauges: dict[str, Callable[[Quorum], int | None]] = {
        "current-leader": lambda quorum: quorum.leader_id,
        "current-epoch": lambda quorum: quorum.leader_epoch,
        "current-vote": _vote,
        "high-watermark": lambda quorum: quorum.high_watermark,
        "log-end-offset": lambda _: node.log.log_end_offset,
        "log-end-epoch": lambda _: node.log.latest_epoch,
        "number-of-voters": lambda quorum: len(quorum.voters.nodes),
    }

    def read(gauge: Callable[[Quorum], int | None]) -> int:
        value = gauge(node.quorum)
        return NO_OFFSET if value is None else value

    for name, gauge in gauges.items():
        registry.gauge(raft_metric(name), partial(read, gauge))
    for kind, state in STATES.items():
        name_of_state = raft_metric("current-state", state=state)
        registry.gauge(name_of_state, partial(_is_in, node, kind))


STATES: Mapping[type, str] = {
    Unattached: "unattached",
    Prospective: "prospective",
    Candidate: "candidate",
    Follower: "follower",
    Leading: "leader",
    Resigned: "resigned",
}


def _is_in(node: RaftNode, kind: type) -> int:
    return int(isinstance(node.quorum.state, kind))


def _vote(quorum: Quorum) -> int | None:
    voted = quorum.state.election_state.voted
    return None if voted is None else voted.id


def _brokers(image: MetadataImage, *, fenced: bool) -> int:
    return sum(each.fenced is fenced for each in image.brokers.values())


def _offline_partitions(image: MetadataImage) -> int:
    return sum(each.leader == NO_LEADER for _, _, each in image.partitions())


def _not_led_by_the_first(image: MetadataImage) -> int:
    return sum(each.leader != each.replicas[0] for _, _, each in image.partitions())
