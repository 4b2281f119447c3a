"""Records of live brokers, without Spark: what is planned and fetched, over real sockets."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")

from pipeline.source.errors import (
    DataLossError,
    OptionError,
    UnknownTopicError,
)
from pipeline.source.limited_stream import LimitedStream
from pipeline.source.options import parse_read_options
from pipeline.source.reader import RecordsReader
from replication.broker.broker import Broker
from replication.client.admin import NewTopic
from replication.cluster.cluster import Cluster
from storage.types import TopicPartition
from tests.clients.sample import cluster_for_clients, in_thread
from tests.pipeline.logs import FIRST_MS, read, read_tasks

pytestmark = pytest.mark.client

TOPIC = "orders"
PARTITIONS = 2
COUNT = 400
QUICK = {"broker_session_timeout_ms": "1500", "broker_heartbeat_interval_ms": "200"}


async def fill(cluster: Cluster) -> None:
    """`COUNT` records in turns over the partitions, a second apart, in small batches."""
    async with cluster.admin() as admin:
        await admin.create_topics(
            [NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=3)]
        )
    async with cluster.producer(batch_size=600, linger_ms=1, compression_type="lz4") as producer:
        for number in range(COUNT):
            await producer.send_soon(
                TOPIC,
                b"value %d" % number,
                b"%d" % number,
                partition=number % PARTITIONS,
                timestamp_ms=FIRST_MS + 1000 * number,
                headers=[("h", b"1")] if number % 5 == 0 else [],
            )


def of(cluster: Cluster, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": TOPIC,
        "fetchOffset.numRetries": "3",
        **options,
    }


async def rows(options: dict[str, str], columns: str = "partition offset key") -> list[Any]:
    found: list[dict[str, Any]] = await in_thread(read, options, columns)
    return found


async def refused(options: dict[str, str], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        await rows(options)


async def test_what_was_produced_is_read_in_any_cut() -> None:
    async with cluster_for_clients() as cluster:
        await fill(cluster)
        found = await rows(of(cluster, includeHeaders="true"), "key offset partition headers topic")
        assert sorted(int(row["key"]) for row in found) == list(range(COUNT))
        assert all(
            int(row["key"]) == PARTITIONS * row["offset"] + row["partition"] for row in found
        )
        assert sum(row["headers"] is not None for row in found) == COUNT // 5
        # Small answers, many of them; ranges that begin and end inside of batches.
        cut = of(cluster, minPartitions="7") | {"kafka.max.partition.fetch.bytes": "1000"}
        tasks = await in_thread(read_tasks, cut, "key")
        assert len(tasks) >= 7
        assert sorted(int(row["key"]) for task in tasks for row in task) == list(range(COUNT))
        between = of(
            cluster,
            startingOffsets='{"orders": {"0": 17, "1": -2}}',
            endingOffsets='{"orders": {"0": 21, "1": 3}}',
        )
        assert [(row["partition"], row["offset"]) for row in await rows(between)] == [
            *((0, offset) for offset in range(17, 21)),
            *((1, offset) for offset in range(3)),
        ]
        late = of(cluster, startingTimestamp=str(FIRST_MS + 390_000))
        assert len(await rows(late)) == 10
        await wrong_input(cluster)


async def wrong_input(cluster: Cluster) -> None:
    await refused(of(cluster, subscribe="t"), UnknownTopicError, "no topic t")
    await refused(of(cluster, startingTimestamp="9" * 13), OptionError, "nothing at or after")
    one = {name: text for name, text in of(cluster).items() if name != "subscribe"}
    assign = one | {"assign": '{"orders": [1, 5]}'}
    await refused(assign, UnknownTopicError, "there is no orders-5")
    assert {row["partition"] for row in await rows(one | {"assign": '{"orders": [1]}'})} == {1}
    assert len(await rows(one | {"subscribePattern": "ord.*"})) == COUNT
    async with cluster.admin() as admin:
        await admin.delete_records({TopicPartition(TOPIC, 0): 50})
    aged = of(cluster, startingOffsets='{"orders": {"0": 20, "1": 199}}')
    await refused(aged, DataLossError, "orders-0: offsets 20 to 49 are gone")
    assert len(await rows(aged | {"failOnDataLoss": "false"})) == 151


async def test_aborted_and_open_transactions_are_not_committed() -> None:
    async with cluster_for_clients(
        transaction_state_log_num_partitions="1", transaction_state_log_replication_factor="1"
    ) as cluster:
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])
        async with cluster.producer(transactional_id="tx") as producer:
            await producer_transaction(producer, b"committed")
            with pytest.raises(ZeroDivisionError):
                await producer_transaction(producer, b"aborted", lambda: 1 // 0)
            await producer_transaction(producer, b"committed")
            producer.begin_transaction()
            await producer.send(TOPIC, b"open", partition=0)
            committed = of(cluster) | {"kafka.isolation.level": "read_committed"}
            values = [row["value"] for row in await rows(committed, "value")]
            assert values == [b"committed"] * 6
            everything = [row["value"] for row in await rows(of(cluster), "value")]
            assert everything.count(b"aborted") == 3
            assert everything[-1] == b"open"
            await producer.abort_transaction()


async def producer_transaction(
    producer: Any, value: bytes, then: Callable[[], Any] = lambda: None
) -> None:
    async with producer.transaction():
        for _ in range(3):
            await producer.send(TOPIC, value, partition=0)
        then()


async def test_a_leader_that_dies_is_waited_for() -> None:
    async with cluster_for_clients(**QUICK) as cluster:
        await fill(cluster)
        before = len(await rows(of(cluster)))
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        await cluster.kill_broker(leader)
        # Nobody leads the partition until the controller has noticed; connections are lost.
        assert len(await rows(of(cluster))) == before == COUNT


@pytest.mark.deep
async def test_a_stream_goes_on_over_a_failover_and_names_a_topic_that_is_gone_or_made_anew() -> (
    None
):
    async with cluster_for_clients(**QUICK) as cluster:
        await fill(cluster)
        options = of(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="150")
        reader = LimitedStream(parse_read_options(options, streaming=True), ["key"])
        position, keys = await in_thread(reader.initialOffset), list[int]()
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        while len(keys) < COUNT:
            position, found = await in_thread(step, reader, position)
            keys += found
            if leader in cluster.brokers and len(keys) > 100:
                await cluster.kill_broker(leader)
        assert sorted(keys) == list(range(COUNT))
        assert await in_thread(step, reader, position) == (position, [])
        async with cluster.admin() as admin:
            await admin.delete_topics([TOPIC])
            await ends(
                reader, position, "DataLossError: orders-0, orders-1 cannot be read any more"
            )
            await admin.create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=1)])
        await ends(reader, position, "TopicReplacedError: topic orders is another than that")


async def test_a_topic_that_goes_between_planning_and_reading_is_named_or_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster_for_clients(**QUICK) as cluster:
        await fill(cluster)
        options = of(cluster, assign='{"orders": [0]}')
        del options["subscribe"]
        reader = RecordsReader(parse_read_options(options, streaming=False), ["key"])
        (task,) = await in_thread(reader.partitions)
        monkeypatch.setattr("pipeline.source.cluster.NEW_TOPIC_MS", 200)
        async with cluster.admin() as admin:
            await admin.delete_topics([TOPIC])
        await cluster.until(lambda: all(knows_nothing(each) for each in cluster.brokers.values()))
        gone = r"orders-0 is not there \(any more\): offsets 0 to 199 cannot be read"
        with pytest.raises(DataLossError, match=gone):
            await in_thread(list, reader.read(task))
        options["failOnDataLoss"] = "false"
        lenient = RecordsReader(parse_read_options(options, streaming=False), ["key"])
        assert await in_thread(list, lenient.read(task)) == []


def knows_nothing(broker: Broker) -> bool:
    return broker.metadata.image.topic_id(TOPIC) is None


async def ends(reader: LimitedStream, position: dict[str, Any], how: str) -> None:
    """A query would, with that error, once the brokers have heard of what was done."""
    said = ""
    for _ in range(200):
        await trio.sleep(0.1)
        try:
            await in_thread(step, reader, position)
        except DataLossError as error:
            said = f"{type(error).__name__}: {error}"
            if said.startswith(how):
                return
    raise AssertionError(said)


def step(reader: LimitedStream, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """One micro-batch: its end, and the keys of its rows."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = reader.partitions(start, end)
    rows = [row for task in tasks for found in reader.read(task) for row in found.to_pylist()]
    return end, [int(row["key"]) for row in rows]
