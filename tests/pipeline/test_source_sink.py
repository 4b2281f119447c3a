"""Rows into topics, without Spark: over real sockets, once for each time that a task is done."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

import pyarrow as pa
import trio

from pipeline.source.errors import OptionError, SourceError
from pipeline.source.sink import Sending, TaskResult, Turn, parse_sink_options
from replication.client.admin import NewTopic
from replication.cluster.cluster import Cluster
from tests.clients.sample import cluster_for_clients, in_thread
from tests.pipeline.logs import read

TOPIC = "copies"
KINDS = {"key": "binary", "value": "string", "partition": "int"}
TRANSACTIONS = {
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "offsets_topic_replication_factor": "1",
}


def sending(cluster: Cluster, batch: int = 0, **options: str) -> Sending:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC, **options}
    turn = Turn(job="q", partition=3, batch=batch)
    return Sending(parse_sink_options(given, KINDS), turn)


def table(first: int, count: int = 100) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": None if number % 3 == 0 else b"k%d" % number,
                "value": None if number % 7 == 0 else f"v{number}",
                "partition": number % 2,
                "headers": [{"key": "h", "value": b"%d" % number}] if number % 5 == 0 else None,
            }
            for number in numbers
        ]
    )


async def written(cluster: Cluster, **options: str) -> list[dict[str, Any]]:
    wanted = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": TOPIC, **options}
    names = options.get("columns", "key,value,partition,headers").replace(",", " ")
    rows: list[dict[str, Any]] = await in_thread(read, wanted, names)
    return rows


async def make_topic(cluster: Cluster) -> None:
    async with cluster.admin() as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=1)])


@pytest.mark.client
async def test_every_row_is_there_once_in_its_order() -> None:
    async with cluster_for_clients() as cluster:
        await make_topic(cluster)
        batches = iter([table(0), table(100)])
        assert await in_thread(sending(cluster).run, batches) == TaskResult(200)
        rows = await written(cluster)
        for partition in (0, 1):
            wanted = [
                {**row, "value": None if row["value"] is None else row["value"].encode()}
                for row in table(0, 200).to_pylist()
                if row["partition"] == partition
            ]
            assert [row for row in rows if row["partition"] == partition] == wanted


@pytest.mark.client
async def test_a_task_that_is_run_again_after_it_was_committed_writes_nothing() -> None:
    async with cluster_for_clients(**TRANSACTIONS) as cluster:
        await make_topic(cluster)
        once = {"transactionalIdPrefix": "tx"}
        committed = {"kafka.isolation.level": "read_committed"}
        first = sending(cluster, 0, **once)
        assert await in_thread(first.run, iter([table(0)])) == TaskResult(100)
        assert await in_thread(first.run, iter([table(0)])) == TaskResult(0, skipped=True)
        second = sending(cluster, 1, **once)
        # The attempt dies in the middle: nothing of it is committed.
        with pytest.raises(OSError, match="the pipe broke"):
            await in_thread(second.run, broken_off())
        assert len(await written(cluster, **committed)) == 100
        assert await in_thread(second.run, iter([table(100)])) == TaskResult(100)
        values = [row["value"] for row in await written(cluster, **committed)]
        assert len(values) == 200
        assert len(set(values)) == 1 + 200 - 29  # every seventh is null


@pytest.mark.client
async def test_each_row_is_there_once_though_a_leader_dies_under_way() -> None:
    quick = {"broker_session_timeout_ms": "1500", "broker_heartbeat_interval_ms": "200"}
    async with cluster_for_clients(**quick) as cluster:
        async with cluster.admin() as admin:
            wanted = NewTopic(name=TOPIC, partitions=2, replication_factor=3)
            await admin.create_topics([wanted])

        ours = trio.lowlevel.current_trio_token()  # the sink has a loop of its own

        def while_a_leader_dies() -> Iterator[pa.RecordBatch]:
            yield table(0)
            leader = cluster.leader(TOPIC, 0)
            assert leader is not None
            trio.from_thread.run(cluster.kill_broker, leader, trio_token=ours)
            yield table(100)
            yield table(200)

        # Small batches, so that there are many under way.
        send = sending(cluster, 0, **{"kafka.batch.size": "500", "kafka.linger.ms": "1"})
        assert await in_thread(send.run, while_a_leader_dies()) == TaskResult(300)
        columns = {"columns": "partition,headers,value,producerId", "includeHeaders": "true"}
        rows = await written(cluster, **columns)
        assert sorted(row["value"] for row in rows if row["value"]) == sorted(
            value.encode() for value in table(0, 300)["value"].to_pylist() if value
        )
        assert len(rows) == 300
        # By one idempotent producer (KIP-98).
        assert {row["producerId"] for row in rows} != {-1}
        assert len({row["producerId"] for row in rows}) == 1


def broken_off() -> Any:
    yield table(100)
    raise OSError("the pipe broke")


@pytest.mark.client
async def test_a_row_that_names_no_topic_is_refused() -> None:
    async with cluster_for_clients() as cluster:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        options = parse_sink_options(given, {"topic": "string", "value": "binary"})
        nowhere = pa.RecordBatch.from_pylist([{"topic": None, "value": b"x"}])
        send = Sending(options, Turn(job="q", partition=0, batch=0))
        with pytest.raises(SourceError, match="a row whose topic is null"):
            await in_thread(send.run, iter([nowhere]))


@pytest.mark.parametrize(
    ("options", "kinds", "said"),
    [
        ({"topik": "t"}, {}, "unknown option topik; did you mean topic?"),
        ({"kafka.lingr.ms": "5"}, {}, "unknown key lingr.ms"),
        ({"kafka.acks": "1"}, {}, "enable.idempotence=true needs acks=all"),
        ({"kafka.transactional.id": "x"}, {}, "the sink decides that"),
        ({}, {"value": "int"}, "column value is int, not binary or string"),
        ({}, {"partition": "bigint"}, "column partition is bigint, not int"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    options: dict[str, str], kinds: dict[str, str], said: str
) -> None:
    given = {"kafka.bootstrap.servers": "b1:9092", "topic": "t", **options}
    with pytest.raises(OptionError) as caught:
        parse_sink_options(given, {"value": "binary", **kinds})
    assert said in str(caught.value)


def test_a_table_needs_values_and_a_topic() -> None:
    given = {"kafka.bootstrap.servers": "b1:9092"}
    with pytest.raises(OptionError, match="needs a column `value`"):
        parse_sink_options(given, {"topic": "string"})
    with pytest.raises(OptionError, match="option `topic`, or a column"):
        parse_sink_options(given, {"value": "binary"})
