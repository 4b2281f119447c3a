"""`/metrics` agrees with what has happened: a cluster is scraped, and its numbers compared."""

from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import pytest
import trio
from prometheus_client import Metric
from trio.testing import MockClock

from replication.cluster.cluster import open_cluster
from replication.errors import ErrorCode
from replication.events import LogDeleted, LogTruncated, fan_out
from replication.metrics import MetricName
from replication.net.clock import TrioClock
from replication.observe.http import serve_sites
from replication.observe.metric_catalogue import CATALOGUE, MetricDescription
from replication.observe.served_metrics import (
    CONTENT_TYPE,
    PROBE_SECONDS,
    NodeEvents,
    ProcessMetrics,
    ServedMetrics,
    exposition,
    spelling,
)
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from scenarios.world.world import World
from storage.batch.records import Record, encode_batch
from storage.types import TopicPartition
from tests.replication.broker.clients import Client
from tests.replication.broker.stage import QUICK, Stage, name_of, played
from tests.replication.observe.http.http_client import asking
from tests.replication.observe.test_exposition import parsed

TP = TopicPartition("t", 0)
CUT = LogTruncated(
    partition=TP, from_offset=9, to_offset=5, high_watermark=5, cause="diverging epoch"
)


@attrs.frozen
class Scrape:
    """One scrape, read by the names that dashboards use."""

    families: dict[str, Metric]

    def series(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        # The parser takes _total for a suffix of a counter's samples.
        family = self.families[name.removesuffix("_total")]
        return [
            (each.labels, each.value)
            for each in family.samples
            if labels.items() <= each.labels.items()
        ]

    def sum(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.series(name, **labels))

    def one(self, name: str, **labels: str) -> float:
        ((_, value),) = self.series(name, **labels)
        return value


def served(story: Callable[[Stage, ServedMetrics], Awaitable[None]]) -> Callable[[], None]:
    """Make `story` a test on virtual time, with three brokers whose metrics are served."""

    async def run(world: World) -> None:
        client = world.node("client")
        metrics = ServedMetrics(process=ProcessMetrics(client.clock))
        async with open_cluster(
            brokers=3,
            data_dir="/data",
            properties=QUICK,
            host_of=name_of,
            make_seams=lambda node_id: world.node(name_of(node_id)),
            make_sink=lambda node_id: fan_out(
                world.sink(name_of(node_id)), metrics.sink(broker=node_id or None)
            ),
        ) as cluster:
            metrics.use_cluster(cluster)
            await story(Stage(world, cluster, Client(client)), metrics)

    return played(run)


async def scraped(metrics: ServedMetrics) -> Scrape:
    return Scrape(parsed(await exposition(metrics.sources())))


async def sent(stage: Stage, leader: int, records: bytes) -> int:
    """Return a leader's answer to these bytes."""
    data = PartitionProduceData(index=0, records=memoryview(records))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    response = await stage.client.ask(stage.address(leader), request)
    return int(response.responses[0].partition_responses[0].error_code)


def name(described: MetricDescription) -> set[str]:
    """Return its names on `/metrics`, as the parser spells them."""
    tags: list[tuple[tuple[str, str], ...]] = [()]
    if "attribute" in described.tags:
        tags = [(("attribute", each),) for each in ("Count", "Min", "Max", "Mean")]
    names = {spelling(MetricName(*described.key, each)).name for each in tags}
    if described.distribution:
        names |= {f"{each}_count" for each in names}
    return {each.removesuffix("_total") for each in names}


@served
async def test_metrics_agree_with_what_has_happened(stage: Stage, metrics: ServedMetrics) -> None:
    cluster = stage.cluster
    await stage.client.create_topic(stage.address(1), "t")
    await stage.until_in_sync("t", 3)
    leader = await stage.leader("t")
    await stage.client.produce(stage.address(leader), "t", *[b"value"] * 5)
    shown = await scraped(metrics)
    led = str(leader)

    # What went in, and where it lies.
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    assert shown.one(messages, broker=led, topic="t") == 5
    assert [labels.get("topic") for labels, value in shown.series(messages) if value] == [
        None,
        "t",
    ]
    log = cluster.brokers[leader].replica_manager.hosted.get(TP).log
    for gauge, value in {"logendoffset": 5, "logstartoffset": 0, "size": log.size}.items():
        by_broker = shown.series(f"kafka_log_log_{gauge}", topic="t")
        assert {labels["broker"]: each for labels, each in by_broker} == dict.fromkeys(
            ("1", "2", "3"), value
        )
    assert shown.one("kafka_log_log_numlogsegments", broker=led, topic="t") == 1
    assert shown.one("understudy_high_watermark_lag_records", topic="t") == 0
    assert shown.one("understudy_leader_epoch", topic="t") == 0
    followers = [
        labels["follower"] for labels, _ in shown.series("understudy_follower_lag_records")
    ]
    assert set(followers) == {"1", "2", "3"} - {led}

    # Everybody is there.
    assert shown.sum("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert shown.sum("kafka_server_replicamanager_leadercount") == 1
    assert shown.sum("kafka_server_replicamanager_partitioncount") == 3
    assert shown.one("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert shown.one("kafka_controller_kafkacontroller_activebrokercount") == 3
    assert shown.sum("understudy_broker_up") == 3
    assert shown.one("understudy_events_total", event="topic_created") == 1

    # How long it took: the produce has waited for its followers, which is remote.
    times = partial(shown.one, broker=led, request="Produce", quantile="0.50")
    parts = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
    of = {part: times(f"kafka_network_requestmetrics_{part}timems") for part in parts}
    assert of["remote"] > 0
    total = times("kafka_network_requestmetrics_totaltimems")
    assert total == pytest.approx(sum(of.values()))
    count = "kafka_network_requestmetrics_totaltimems_count"
    assert shown.one(count, broker=led, request="Produce") == 1
    requests = "kafka_network_requestmetrics_requests_total"
    assert shown.sum(requests, broker=led, request="Produce") == 1
    assert shown.sum(requests, request="FetchFollower") > 0

    # A follower dies: seen by its leader and by the controller, and shown by itself no more.
    victim = next(each for each in cluster.broker_ids if each != leader)
    await cluster.kill_broker(victim)
    await stage.until_in_sync("t", 2)
    shown = await scraped(metrics)
    under = "kafka_server_replicamanager_underreplicatedpartitions"
    assert {labels["broker"]: value for labels, value in shown.series(under)} == {
        str(each): float(each == leader) for each in cluster.broker_ids if each != victim
    }
    assert shown.one("kafka_cluster_partition_underreplicated", broker=led, topic="t") == 1
    assert shown.one("kafka_cluster_partition_insyncreplicascount", broker=led, topic="t") == 2
    assert shown.one("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    assert shown.one("kafka_controller_kafkacontroller_activebrokercount") == 2
    assert shown.one("understudy_broker_up", broker=str(victim)) == 0
    await stage.client.produce(stage.address(leader), "t", b"value")
    shown = await scraped(metrics)
    lag = partial(shown.one, follower=str(victim), topic="t")
    assert lag("understudy_follower_lag_records") == 1
    assert lag("understudy_follower_behind_seconds") > 0
    assert shown.one("kafka_controller_controllerstats_leaderelectionrateandtimems_count") == 0

    # It comes back.
    await cluster.start_broker(victim)
    await stage.until_in_sync("t", 3)
    shown = await scraped(metrics)
    assert shown.sum(under) == 0
    assert shown.sum("understudy_broker_up") == 3

    # The leader dies: another one is elected.
    await cluster.kill_broker(leader)
    await stage.leader("t", other_than=leader)
    shown = await scraped(metrics)
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    assert shown.one(f"{elections}_count") == 1
    assert shown.one(elections, quantile="0.50") > 0
    assert shown.one("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert shown.one("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert shown.one("kafka_controller_kafkacontroller_preferredreplicaimbalancecount") == 1


@served
async def test_every_metric_is_in_the_catalogue_and_every_one_in_the_catalogue_is_served(
    stage: Stage, metrics: ServedMetrics
) -> None:
    await stage.client.create_topic(stage.address(1), "t", cleanup_policy="compact")
    leader = await stage.leader("t")
    record = Record(offset=-1, timestamp=1, key=b"key", value=b"value")
    batch = bytes(encode_batch([record]))
    keyless = bytes(encode_batch([record._replace(key=None)]))
    assert await sent(stage, leader, batch) == ErrorCode.NONE
    assert await sent(stage, leader, batch[:-1] + b"?") == ErrorCode.CORRUPT_MESSAGE
    assert await sent(stage, leader, keyless) == ErrorCode.INVALID_RECORD
    topic_id = stage.cluster.image.topics["t"].topic_id
    await stage.client.read_all(stage.address(leader), topic_id)
    metrics.sink(broker=1)(CUT)
    shown = await scraped(metrics)
    of_topics = "kafka_server_brokertopicmetrics"
    assert shown.sum(f"{of_topics}_invalidmessagecrcrecords_total") == 1
    assert shown.sum(f"{of_topics}_failedproducerequests_total", topic="t") == 1
    catalogue = {each for described in CATALOGUE.values() for each in name(described)}
    assert shown.families.keys() == catalogue
    for described in CATALOGUE.values():
        for each in name(described):
            family = shown.families[each]
            assert family.documentation == described.meaning
            tags = set(described.tags) - {"attribute"}
            extra = {"broker", "quantile"}
            labels = [set(sample.labels) - (extra - tags) for sample in family.samples]
            assert max(labels, key=len) == tags, each
            assert all(some <= tags for some in labels), each


def test_events_of_a_node_are_counted() -> None:
    events = NodeEvents()
    events.sink(CUT)
    events.sink(attrs.evolve(CUT, from_offset=5, to_offset=4, cause="offset out of range"))
    registry = events.registry(lambda: 0.0)
    shown = {(each.name, *each.tags): value for each, value in registry.snapshot()}
    assert shown == {
        ("events_total", ("event", "log_truncated")): 2,
        ("truncations_total",): 2,
        ("truncated_records_total",): 5,
        ("divergence_offset", ("topic", "t"), ("partition", "0")): 5,
    }
    assert all(registry.read(each) == value for each, value in registry.snapshot())
    events.sink(LogDeleted(partition=TP, path="/data/t-0", cause="topic deleted"))
    assert "divergence_offset" not in {each.name for each in registry.names()}


async def test_a_loop_that_stalls_is_seen(mock_clock: MockClock) -> None:
    process = ProcessMetrics(TrioClock())
    stall = MetricName("understudy", "Process", "loop_stall_max_seconds")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.probe)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(PROBE_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert process.registry.read(stall) == pytest.approx(0)
        mock_clock.jump(PROBE_SECONDS + 3)  # somebody kept the loop for three seconds
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert process.registry.read(stall) == pytest.approx(3)
    assert process.stalls.count == 2


def test_a_bug_is_counted_and_reported() -> None:
    process, reported = ProcessMetrics(TrioClock()), list[BaseException]()
    process.counting(reported.append)(ZeroDivisionError())
    assert (process.bugs, len(reported)) == (1, 1)


async def test_metrics_are_served_over_http() -> None:
    async with trio.open_nursery() as nursery:
        metrics = ServedMetrics(process=ProcessMetrics(TrioClock()))
        urls = await serve_sites([metrics.site(0)], nursery=nursery)
        async with asking(urls["metrics"]) as answer:
            assert answer.status == 200
            assert answer.headers["content-type"] == CONTENT_TYPE
            shown = Scrape(parsed(await answer.body()))
        assert shown.one("process_resident_memory_bytes") > 1 << 20
        assert shown.one("process_open_fds") > 3
        assert shown.one("process_cpu_seconds_total") > 0
        nursery.cancel_scope.cancel()
