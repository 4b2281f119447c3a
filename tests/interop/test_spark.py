"""The Spark source and sink against Apache Kafka's broker, beside a stock client."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.clients.sample import CODECS
from tests.interop.kafka import Kafka
from tests.pipeline.sessions import session_for_tests

pytestmark = [pytest.mark.interop, pytest.mark.spark]

PATIENCE_SECONDS = 60

# Partition, key, value, headers: what a record is to who wrote it.
Headers = list[tuple[str, str | bytes | None]]
Row = tuple[int | None, bytes | None, bytes | None, Headers]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with session_for_tests(tmp_path_factory.mktemp("installed")) as session:
        yield session


def rows(first: int, last: int) -> list[Row]:
    """Return rows for every partition, some with null keys or values, some with headers."""
    return [
        (
            partition,
            None if number % 7 == 0 else b"key %d" % number,
            None if number % 11 == 0 else b"value %d " % number * 20,
            [("h", b"%d" % number), ("none", None)] if number % 3 == 0 else [],
        )
        for partition in range(len(CODECS))
        for number in range(first, last)
    ]


def produce(kafka: Kafka, topic: str, wanted: Sequence[Row]) -> None:
    for place, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 50,
                "log_level": 0,
            }
        )
        for partition, key, value, headers in wanted:
            if partition == place:
                producer.produce(topic, value, key, partition=partition, headers=headers)
        assert producer.flush(PATIENCE_SECONDS) == 0


def consume(kafka: Kafka, topic: str, count: int) -> list[Row]:
    """Return the committed records that librdkafka reads, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(len(CODECS))])
    found: list[Row] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_SECONDS)
            assert messages, f"{len(found)} of {count} records in time"
            found += [as_row_of_theirs(each) for each in messages]
        assert consumer.poll(0.5) is None, "no record is there twice"
    finally:
        consumer.close()
    return sorted(found, key=by_partition)


def by_partition(row: Row) -> int:
    assert row[0] is not None
    return row[0]


def as_row_of_theirs(message: Message) -> Row:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return message.partition(), message.key(), message.value(), headers


def as_row(row: Any) -> Row:
    def plain(value: Any) -> bytes | None:
        return None if value is None else bytes(value)

    headers: Headers = [(each.key, plain(each.value)) for each in row.headers or []]
    return row.partition, plain(row.key), plain(row.value), headers


def read(table: Any) -> list[Row]:
    found = sorted(table.collect(), key=lambda row: (row.partition, row.offset))
    return [as_row(row) for row in found]


def test_records_are_read_whole_and_by_the_offsets_of_a_time(spark: Any, kafka: Kafka) -> None:
    kafka.create_topic("read-by-spark", partitions=len(CODECS))
    produce(kafka, "read-by-spark", rows(0, 200))
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "read-by-spark"}
    source = spark.read.format("understudy").options(**servers, includeHeaders="true")
    table = source.option("minPartitions", "12").load()
    assert read(table) == rows(0, 200)
    assert table.rdd.getNumPartitions() >= 12
    last = {str(number): 190 for number in range(len(CODECS))}
    tail = source.option("startingOffsets", f'{{"read-by-spark": {last}}}'.replace("'", '"'))
    assert read(tail.load()) == rows(190, 200)
    assert source.option("startingTimestamp", "1").load().count() == 200 * len(CODECS)


def test_a_stream_goes_on_where_it_was_and_its_transactions_are_committed(
    spark: Any, kafka: Kafka, tmp_path: Path
) -> None:
    for topic in ("streamed", "copied"):
        kafka.create_topic(topic, partitions=len(CODECS))
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    offsets = {"startingOffsets": "earliest", "includeHeaders": "true"}

    def copy() -> None:
        table = spark.readStream.format("understudy").options(
            **servers, **offsets, subscribe="streamed"
        )
        query = (
            table.load()
            .select("partition", "key", "value", "headers")
            .writeStream.format("understudy")
            .options(**servers, topic="copied", transactionalIdPrefix="interop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    produce(kafka, "streamed", rows(0, 100))
    copy()
    produce(kafka, "streamed", rows(100, 150))
    copy()
    wanted = sorted(rows(0, 100) + rows(100, 150), key=by_partition)
    assert consume(kafka, "copied", len(wanted)) == wanted


def test_a_table_is_written_with_its_keys_headers_and_partitions(spark: Any, kafka: Kafka) -> None:
    kafka.create_topic("written-by-spark", partitions=len(CODECS))
    kinds = (
        "partition int, key binary, value binary, headers array<struct<key:string,value:binary>>"
    )
    table = spark.createDataFrame(rows(0, 50), kinds).coalesce(1)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "written-by-spark"}
    table.write.format("understudy").options(**servers).mode("append").save()
    assert consume(kafka, "written-by-spark", 50 * len(CODECS)) == rows(0, 50)
