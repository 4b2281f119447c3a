"""Registries in Prometheus's text format, which its own parser reads, written in slices."""

import math
from collections.abc import Iterator
from functools import partial

import attrs
import pytest
import trio
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.metrics import KEPT, Family, Histogram, MetricName, MetricsRegistry, quantiles
from replication.observe.metric_catalogue import CATALOGUE
from replication.observe.served_metrics import (
    QUANTILES,
    SLICE,
    Exposition,
    MetricsSource,
    exposition,
    spelling,
)
from storage.types import TopicPartition

B1 = (("broker", "1"),)
GAUGE = MetricName("kafka.server", "ReplicaManager", "LeaderCount")


def parsed(text: str | bytes) -> dict[str, Metric]:
    text = text if isinstance(text, str) else text.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families) == text.count("# TYPE"), "the lines of one metric stand together"
    return families


# What jmx_exporter's kafka-2_0_0.yml makes of these object names.
@pytest.mark.parametrize(
    ("name", "spelled", "kind"),
    [
        (GAUGE, "kafka_server_replicamanager_leadercount", "gauge"),
        (
            MetricName("kafka.server", "BrokerTopicMetrics", "MessagesInPerSec"),
            "kafka_server_brokertopicmetrics_messagesin_total",
            "counter",
        ),
        (
            MetricName("kafka.coordinator.group", "GroupMetadataManager", "NumGroups"),
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "gauge",
        ),
        (
            MetricName("kafka.log", "LogCleaner", "max-clean-time-secs"),
            "kafka_log_logcleaner_max_clean_time_secs",
            "gauge",
        ),
        (
            MetricName(
                "kafka.network", "RequestMetrics", "RequestBytes", (("attribute", "Count"),)
            ),
            "kafka_network_requestmetrics_requestbytes_count",
            "counter",
        ),
        (
            MetricName("kafka.network", "RequestMetrics", "RequestBytes", (("attribute", "Max"),)),
            "kafka_network_requestmetrics_requestbytes_max",
            "gauge",
        ),
        # Ours.
        (
            MetricName("understudy", "Partition", "leader_epoch"),
            "understudy_leader_epoch",
            "gauge",
        ),
        (MetricName("understudy", "Node", "events_total"), "understudy_events_total", "counter"),
    ],
)
def test_names_are_spelled_as_dashboards_expect(name: MetricName, spelled: str, kind: str) -> None:
    assert (spelling(name).name, spelling(name).type) == (spelled, kind)


async def test_numbers_of_several_brokers_stand_under_one_name() -> None:
    registries = [MetricsRegistry(lambda: 0.0) for _ in range(2)]
    for number, registry in enumerate(registries, start=1):
        registry.gauge(GAUGE, partial(float, number * 1.5))
    sources = [
        MetricsSource(registry, (("broker", str(number)),))
        for number, registry in enumerate(registries, start=1)
    ]
    family = parsed(await exposition(sources))["kafka_server_replicamanager_leadercount"]
    assert (family.type, family.documentation) == ("gauge", CATALOGUE[GAUGE_KEY].meaning)
    assert [(each.labels, each.value) for each in family.samples] == [
        ({"broker": "1"}, 1.5),
        ({"broker": "2"}, 3),
    ]


GAUGE_KEY = (GAUGE.group, GAUGE.type, GAUGE.name)
AWKWARD = 'a "quoted" \\ back\nslash'


def test_awkward_labels_and_numbers_come_through() -> None:
    made = Exposition()
    values = [math.inf, -math.inf, 2.0**60, -1, 0.1]
    for index, value in enumerate(values):
        name = MetricName("kafka.log", "Log", "Size", (("topic", AWKWARD), ("n", str(index))))
        made.number(name, value, ())
    made.number(MetricName("kafka.log", "Log", "Odd"), math.nan, ())
    families = parsed("".join(made.chunks()))
    samples = families["kafka_log_log_size"].samples
    assert [each.value for each in samples] == values
    assert {each.labels["topic"] for each in samples} == {AWKWARD}
    assert math.isnan(families["kafka_log_log_odd"].samples[0].value)
    assert families["kafka_log_log_odd"].documentation == "kafka.log:type=Log,name=Odd"


def test_a_distribution_is_its_quantiles_and_its_count() -> None:
    made, times = Exposition(), Histogram()
    for value in range(2 * KEPT):
        times.update(float(value))
    name = MetricName("kafka.network", "RequestMetrics", "TotalTimeMs", (("request", "Fetch"),))
    made.distribution(name, times, B1)
    families = parsed("".join(made.chunks()))
    shown = families["kafka_network_requestmetrics_totaltimems"]
    assert shown.type == "gauge"
    found = {each.labels["quantile"]: each.value for each in shown.samples}
    assert found.keys() == QUANTILES.keys()
    assert found["0.50"] == pytest.approx(1.5 * KEPT, abs=1)
    assert all(each.labels["request"] == "Fetch" for each in shown.samples)
    # The parser takes a counter for one that ends in _total, which this one does not outside.
    counted = families["kafka_network_requestmetrics_totaltimems_count"]
    assert (counted.type, counted.samples[0].value) == ("counter", 2 * KEPT)
    assert "\nkafka_network_requestmetrics_totaltimems_count{" in "".join(made.chunks())


def test_quantiles_lie_between_the_two_nearest() -> None:
    assert quantiles([], [0.5]) == [0.0]
    assert quantiles([3.0], [0.01, 0.99]) == [3.0, 3.0]
    assert quantiles([4.0, 1.0, 3.0, 2.0], [0.1, 0.3, 0.5, 0.9]) == [1.0, 1.5, 2.5, 4.0]


# The loop goes on.


@attrs.define
class Counted:
    """A family whose reads are counted."""

    family: Family
    reads: int = 0

    def names(self) -> list[MetricName]:
        return self.family.names()

    def read(self, name: MetricName) -> float | None:
        return self.family.read(name)

    def snapshot(self) -> Iterator[tuple[MetricName, float]]:
        for each in self.family.snapshot():
            self.reads += 1
            yield each


async def test_a_scrape_of_a_thousand_partitions_lets_others_run_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, partitions = MetricsRegistry(lambda: 0.0), 1_000
    elsewhere = MetricsRegistry(lambda: 0.0)
    stats = FetcherStats(elsewhere, "ReplicaFetcherThread-0-1", BrokerEndPoint(1, "b1", 9092))
    for number in range(partitions):
        stats.set_lag(TopicPartition("t", number), number)
    counted = Counted(stats)
    registry.family(counted)
    lines = 0
    chunks = Exposition.chunks

    def counted_chunks(made: Exposition) -> Iterator[str]:
        nonlocal lines
        for chunk in chunks(made):
            lines += chunk.count("\n")
            yield chunk

    monkeypatch.setattr(Exposition, "chunks", counted_chunks)
    most_read = most_written = 0

    async def others() -> None:
        nonlocal most_read, most_written
        while True:
            before = counted.reads, lines
            await trio.lowlevel.checkpoint()
            most_read = max(most_read, counted.reads - before[0])
            most_written = max(most_written, lines - before[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        text = await exposition([MetricsSource(registry, B1)])
        nursery.cancel_scope.cancel()
    lags = parsed(text)["kafka_server_fetcherlagmetrics_consumerlag"].samples
    assert sorted(each.value for each in lags) == list(range(partitions))
    assert counted.reads == partitions
    assert 0 < most_read <= 2 * SLICE, "in one turn of the others, whichever comes first in it"
    assert 0 < most_written <= 2 * (SLICE + 2)


async def test_a_metric_removed_during_a_scrape_does_no_harm() -> None:
    registry = MetricsRegistry(lambda: 0.0)
    stats = FetcherStats(registry, "fetcher", BrokerEndPoint(1, "b1", 9092))
    for number in range(10 * SLICE):
        stats.set_lag(TopicPartition("t", number), number)

    async def leave() -> None:
        for number in range(10 * SLICE):
            stats.forget_lag(TopicPartition("t", number))
            await trio.lowlevel.checkpoint()
        stats.unregister()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
        parsed(await exposition([MetricsSource(registry)]))
    assert registry.names() == []
