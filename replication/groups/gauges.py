"""How many groups and offsets this broker looks after, under Kafka's names (GroupMetadataManager)."""

from collections.abc import Callable
from functools import partial

from replication.groups.coordinator import GroupCoordinator
from replication.groups.rules import GroupState
from replication.metrics import MetricName, MetricsRegistry


def register(registry: MetricsRegistry, coordinator: GroupCoordinator) -> None:
    """Register the gauges, for as long as the broker lives."""
    gauges: dict[str, Callable[[], float]] = {
        "NumGroups": partial(_groups, coordinator, None),
        "NumOffsets": partial(_offsets, coordinator),
    }
    gauges |= {
        f"NumGroups{state.value}": partial(_groups, coordinator, state) for state in GroupState
    }
    for name, read in gauges.items():
        registry.gauge(MetricName("kafka.coordinator.group", "GroupMetadataManager", name), read)


def _groups(coordinator: GroupCoordinator, state: GroupState | None) -> int:
    return sum(
        state in (None, hosted.group.state)
        for shard in coordinator.shards.values()
        for hosted in shard.groups.values()
    )


def _offsets(coordinator: GroupCoordinator) -> int:
    return sum(
        len(hosted.offsets)
        for shard in coordinator.shards.values()
        for hosted in shard.groups.values()
    )
