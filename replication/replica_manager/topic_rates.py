"""How often each topic is asked for at its leader (BrokerTopicStats in Kafka).

    kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec[,topic=t]

Each partition that a request reads counts once, however long the request then waits. What a
session has settled is not read and not counted: that would cost an idle round its partitions.
A topic of which this broker leads nothing any more is not shown, and begins at nothing again.
"""

import attrs

from replication.metrics import Meter, MetricName, MetricsRegistry
from replication.replica_manager.hosted import HostedPartitions

NAME = "TotalFetchRequestsPerSec"


def topic_metric(topic: str | None = None) -> MetricName:
    tags = () if topic is None else (("topic", topic),)
    return MetricName("kafka.server", "BrokerTopicMetrics", NAME, tags)


@attrs.define(eq=False)
class TopicRates:
    registry: MetricsRegistry
    hosted: HostedPartitions
    all_topics: Meter = attrs.field(init=False)
    _counts: dict[str, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.all_topics = self.registry.meter(topic_metric())
        self.registry.family(self)

    def unregister(self) -> None:
        self.registry.remove(topic_metric())
        self.registry.remove_family(self)

    def fetched(self, topic: str) -> None:
        self.all_topics.mark()
        self._counts[topic] = self._counts.get(topic, 0) + 1

    # The family.

    def names(self) -> list[MetricName]:
        led = {each.topic_partition.topic for each in self.hosted if each.is_leader}
        self._counts = {topic: count for topic, count in self._counts.items() if topic in led}
        return [topic_metric(topic) for topic in self._counts]

    def read(self, name: MetricName) -> float | None:
        if name not in self.names():
            return None
        return self._counts[dict(name.tags)["topic"]]
