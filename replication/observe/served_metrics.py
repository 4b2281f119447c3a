"""Whose metrics one `/metrics` shows: of the nodes that this process runs, and its own."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from replication.events import EventSink
from replication.metrics import MetricName, MetricsRegistry
from replication.net.clock import TrioClock
from replication.observe.exposition import Labels, Source
from replication.observe.node_metrics import NodeEvents, ProcessMetrics

if TYPE_CHECKING:
    from replication.broker.broker import Broker
    from replication.cluster.cluster import Cluster
    from replication.controller.node import ControllerNode


def broker_label(broker_id: int) -> Labels:
    """What tells a broker's series from another's on the same port."""
    return (("broker", str(broker_id)),)


@attrs.define(eq=False)
class ServedMetrics:
    """Asked for its sources at each scrape, for nodes come and go."""

    brokers: "Callable[[], Iterable[Broker]]" = tuple
    controllers: "Callable[[], Iterable[ControllerNode]]" = tuple
    process: ProcessMetrics = attrs.field(factory=lambda: ProcessMetrics(TrioClock()))
    cluster: MetricsRegistry | None = None
    mirror: MetricsRegistry | None = None
    """Of a copy that is followed here: what a broker's replicas and fetchers have, no broker's."""
    _events: dict[Labels, NodeEvents] = attrs.field(factory=dict, init=False)

    def of_cluster(self, cluster: "Cluster") -> None:
        """Of whichever nodes of it run, from now on."""
        self.brokers = partial(_brokers_of, cluster)
        self.controllers = partial(_controllers_of, cluster)
        self.cluster = MetricsRegistry(self.process.clock.now)
        for broker_id in cluster.broker_ids:
            name = MetricName("understudy", "Cluster", "broker_up", broker_label(broker_id))
            self.cluster.gauge(name, partial(_is_up, cluster, broker_id))

    def sink(self, *, broker: int | None) -> EventSink:
        """Counts what a broker, or the controller, has to tell, in all its incarnations."""
        labels = () if broker is None else broker_label(broker)
        return self._events.setdefault(labels, NodeEvents()).sink

    def sources(self) -> Sequence[Source]:
        found = [Source(each.metrics, broker_label(each.broker_id)) for each in self.brokers()]
        found += [Source(each.controller.metrics) for each in self.controllers()]
        now = self.process.clock.now
        found += [Source(each.registry(now), labels) for labels, each in self._events.items()]
        found += [
            Source(each) for each in [self.process.registry, self.cluster, self.mirror] if each
        ]
        return found


def _brokers_of(cluster: "Cluster") -> "Iterable[Broker]":
    return cluster.brokers.values()


def _controllers_of(cluster: "Cluster") -> "Iterable[ControllerNode]":
    return [each for each in [cluster.controller] if each is not None]


def _is_up(cluster: "Cluster", broker_id: int) -> int:
    return int(broker_id in cluster.brokers)
