"""Values in the Confluent wire format in Spark itself: types, streams, brokers, one-line errors."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("fastavro", reason="the formats extra is not installed: understudy[formats]")
pytest.importorskip("httpx2", reason="Confluent's serializers need it")

from tests.pipeline.logs import TP
from tests.pipeline.registry import RegistryStandIn
from tests.pipeline.wire_format import EVERY_AVRO, NOON, ORDER_1, ORDER_2, avro, log_of, options

if TYPE_CHECKING:
    from understudy import ThreadedCluster

pytestmark = pytest.mark.spark


def load(spark: Any, given: dict[str, str]) -> Any:
    return spark.read.format("understudy").options(**given).load()


def test_every_type_goes_through_spark(
    spark: Any, registry: RegistryStandIn, tmp_path: Path
) -> None:
    value = {
        "flag": True, "ratio": 0.5, "raw": b"\1\2", "kind": "B", "day": dt.date(2026, 11, 28),
        "at_ms": NOON, "at_us": NOON, "local": NOON.replace(tzinfo=None), "price": Decimal("12.34"),
        "uuid": "00000000-0000-0000-0000-000000000007", "tags": ["a"], "counts": {"x": 1},
        "either": "s", "wide": 1, "inner": {"at": NOON}, "tree": {"v": 1, "next": None}, "offset": 3,
    }  # fmt: skip
    path = log_of(tmp_path / "log", [*avro(registry, EVERY_AVRO, value), b"none", None])
    table = load(spark, options(registry, path, "avro"))
    kinds = dict(table.dtypes)
    assert kinds["tree"] == "struct<v:int,next:string>"
    assert (kinds["at_ms"], kinds["local"]) == ("timestamp", "timestamp_ntz")
    assert (kinds["counts"], kinds["price"]) == ("map<string,bigint>", "decimal(9,2)")
    first, second, third = table.orderBy("offset").collect()
    assert (first.day, first.local, first.price) == (value["day"], value["local"], value["price"])
    assert (first.counts, first.tags, first.tree.v) == ({"x": 1}, ["a"], 1)
    assert table.where("at_ms = timestamp'2026-11-28 12:00:00Z' and inner.at = at_us").count() == 1
    assert (bytes(second.valueBytes), second.flag) == (b"none", None)
    assert second.valueError == "its first byte is 110: no Confluent wire format"
    assert (third.valueBytes, third.valueError, third.flag) == (None, None, None)
    projected = spark.read.format("understudy").schema("price decimal(9,2), topic string")
    rows = projected.options(**options(registry, path, "avro")).load().collect()
    assert [tuple(row) for row in rows] == [(Decimal("12.34"), "t"), (None, "t"), (None, "t")]


def test_a_stream_reads_a_schema_that_came_later(
    spark: Any, registry: RegistryStandIn, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need Spark 4.2")
    values = avro(registry, ORDER_1, {"id": 1, "customer": "Ada", "cents": 5})
    log, number = tmp_path / "log", registry.subjects["t-value"][0]

    def run() -> list[Any]:
        given = options(registry, str(log), "avro", **{"value.schema.id": str(number)})
        given |= {"startingOffsets": "earliest", "stopAtHighWatermark": "false"}
        rows = spark.readStream.format("understudy").options(**given).load()
        query = rows.writeStream.format("parquet")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "table")).awaitTermination()
        found = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
        return [(row.id, row.customer, row.cents, row.valueError) for row in found]

    log_of(log, values)
    assert run() == [(1, "Ada", 5, None)]
    later = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "customer", "type": "string"}, {"name": "id", "type": "int"},
        {"name": "cents", "type": "int"}, {"name": "more", "type": "string"}]}  # fmt: skip
    new = {"id": 2, "customer": "Bo", "cents": 6, "more": "!"}
    log_of(log, [*avro(registry, later, new), b"\0\0\0\3\xe7"])
    first, second, third = run()
    assert [first, second] == [(1, "Ada", 5, None), (2, "Bo", 6, None)]
    assert third[0] is None
    assert "HTTP 404 Schema not found" in third[3]


@pytest.mark.client
def test_from_live_brokers(
    spark: Any, registry: RegistryStandIn, kafka_cluster: "ThreadedCluster", kafka_topic: str
) -> None:
    from confluent_kafka import Producer

    values = avro(registry, ORDER_1, {"id": 1, "customer": "Ada", "cents": 5})
    values += avro(registry, ORDER_2, {"id": 2, "buyer": "Bo", "cents": 6, "note": None})
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for value in [*values, b"{}"]:
        producer.produce(kafka_topic, value)
    assert producer.flush(30) == 0
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": kafka_topic}
    given |= {"value.format": "avro", "schema.registry.url": registry.url}
    table = load(spark, given | {"value.subject": f"{TP.topic}-value"})
    rows = [(row.id, row.buyer, row.valueError is None) for row in table.collect()]
    assert sorted(rows, key=str) == [(1, "Ada", True), (2, "Bo", True), (None, None, False)]


def test_an_error_is_one_line_in_spark(
    spark: Any, registry: RegistryStandIn, tmp_path: Path
) -> None:
    from pyspark.errors import AnalysisException

    path = log_of(tmp_path / "log", [b"x"])
    registry.add("t-value", json.dumps({"type": "recrod"}))
    with pytest.raises(AnalysisException) as caught:
        load(spark, options(registry, path, "avro"))
    (line,) = (each for each in str(caught.value).splitlines() if "SchemaError:" in each)
    assert "option value.format: schema 100: no Avro schema: " in line
