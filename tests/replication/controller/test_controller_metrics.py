"""Elections are counted when they are synced; unclean ones are counted apart."""

import pytest

from replication.controller.metrics import ELECTIONS, UNCLEAN, ControllerMetrics, controller_metric
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.records import LeaderRecoveryState
from replication.metrics import MetricsRegistry
from replication.wire.metadata import NO_LEADER
from replication.wire.metadata_records import PartitionChangeRecord

TOPIC_ID = bytes(16)


class Hands:
    """A clock whose hands the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_election_has_happened_when_it_is_synced() -> None:
    hands = Hands()
    registry = MetricsRegistry(hands)
    metrics = ControllerMetrics(registry, MetadataImage, lambda: True, hands)
    clean = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=2)
    unclean = PartitionChangeRecord(
        topic_id=TOPIC_ID,
        partition_id=1,
        leader=3,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )
    none = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=2, leader=NO_LEADER)
    isr_alone = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=3, isr=[1, 2])
    metrics.appended([clean, none, isr_alone], end=13)
    metrics.appended([isr_alone], end=14)
    hands.now = 1.0
    metrics.appended([unclean], end=15)
    metrics.synced(12)
    assert (metrics.elections.count, registry.read(UNCLEAN)) == (0, 0)
    hands.now = 1.25
    metrics.synced(14)
    assert (list(metrics.elections.latest()), registry.read(UNCLEAN)) == ([1250], 0)
    metrics.synced(15)
    assert (list(metrics.elections.latest()), registry.read(UNCLEAN)) == ([1250, 250], 1)
    assert dict(registry.distributions()) == {ELECTIONS: metrics.elections}


@pytest.mark.parametrize(
    ("name", "count"), [("ActiveControllerCount", 1), ("OfflinePartitionsCount", 0)]
)
def test_of_an_empty_cluster(name: str, count: int) -> None:
    registry = MetricsRegistry(Hands())
    ControllerMetrics(registry, MetadataImage, lambda: True, Hands())
    assert registry.read(controller_metric(name)) == count
