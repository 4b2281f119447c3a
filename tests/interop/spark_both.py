"""A driver of its own, with the jar of Spark's own Kafka source: the same reads by both sources.

    python -m tests.interop.spark_both          questions on standard input, answers on the output

    {"batch": {"what": {options}}, "stream": ...}  ->  {"batch": {"what": {"kafka": ..., "understudy": ...}}}

Of a batch: its schema, and its rows in order. Of a stream: how far each micro-batch went, and the
rows of all. Of what is refused: that it is.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

FORMATS = ("kafka", "understudy")
TOPIC_IDS = "@topicIds"  # in our checkpoints only


def rows_of(table: Any) -> list[str]:
    found = sorted(table.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    return [str(row) for row in found]


def batch(spark: Any, source: str, options: Mapping[str, str]) -> dict[str, Any]:
    table = spark.read.format(source).options(**options).load()
    return {"schema": table.schema.jsonValue(), "rows": rows_of(table)}


def stream(spark: Any, source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema, the rows and the end of each micro-batch, of all that is there now."""
    table = spark.readStream.format(source).options(**options).load()
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            table.writeStream.foreachBatch(lambda part, _: found.extend(part.collect()))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    ends = [json.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress]
    found.sort(key=lambda row: (row.topic, row.partition, row.offset))
    return {
        "schema": table.schema.jsonValue(),
        "rows": [str(row) for row in found],
        "ends": [{name: each[name] for name in each if name != TOPIC_IDS} for each in ends],
    }


def written(spark: Any, source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return what this source has written, as the other reads it; topics are `to-kafka` and so on."""
    kinds = "topic string, partition int, key binary, value binary"
    kinds += ", headers array<struct<key:string,value:binary>>"
    rows = [
        (
            f"to-{source}",
            number % 2,
            b"k%d" % number if number % 3 else None,
            b"v%d" % number,
            headers,
        )
        for number, headers in enumerate([None, [("h", b"1"), ("h", None)]] * 10)
    ]
    table = spark.createDataFrame(rows, kinds).coalesce(1)
    table.write.format(source).options(**options).mode("append").save()
    (other,) = {*FORMATS} - {source}
    reader = spark.read.format(other).options(**options, subscribe=f"to-{source}")
    found = reader.option("includeHeaders", "true").load()
    return {"rows": rows_of(found.drop("timestamp").withColumn("topic", found.topic.substr(1, 2)))}


Ask = Callable[[Any, str, Mapping[str, str]], dict[str, Any]]
KINDS: Mapping[str, Ask] = {"batch": batch, "stream": stream, "written": written}


def answer(spark: Any, kind: str, source: str, options: Mapping[str, str]) -> dict[str, Any]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return KINDS[kind](spark, source, options)
    except (PySparkException, Py4JError) as error:  # of a task, and of Kafka's client
        return {"refused": str(error)}


if __name__ == "__main__":
    from pipeline.session import get_session

    session = get_session(master="local[2]", quick=True)
    questions = json.load(sys.stdin)
    answers = {
        kind: {
            what: {source: answer(session, kind, source, options) for source in FORMATS}
            for what, options in asked.items()
        }
        for kind, asked in questions.items()
    }
    print(json.dumps(answers))
