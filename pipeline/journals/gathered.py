"""The events of one partition brought together in a row, and folded in one worker.

    events ──those that change its state───┐
    events ──the first and last high───────┴─> one row per partition ──fold──> rows
             watermark of each leader epoch

Rule: a high watermark moves many times a second. Two are kept for each leader epoch: the first
above the epoch's start offset, which is its first write, and the highest.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType

from pipeline.journals.timeline import FIRST_WRITE, FOLDED, REACHED, Outage, outages
from storage.types import TopicPartition

KEY = ["topic", "partition"]
LEADER_EPOCH = [*KEY, "node", "leader_epoch"]
OF_BROKERS = ("controlled_shutdown_started", "broker_fenced", "broker_unfenced")
ORDER = ("at_ms", "node", "number")


def shown_order(partition: TopicPartition) -> tuple[bool, TopicPartition]:
    """Return a sort key that puts users' topics before the cluster's own."""
    return partition.topic.startswith("__"), partition


def controllers(events: DataFrame) -> list[int]:
    """Return the nodes that have elected leaders or fenced brokers."""
    deciding = events.where(f.col("name").isin("leader_elected", "broker_fenced"))
    return sorted(row.node for row in deciding.select("node").distinct().collect())


def find_outages(events: DataFrame) -> list[Outage]:
    """Return every outage of a broker, by the controllers' events."""
    of_brokers = f.col("name").isin(*OF_BROKERS) & f.col("node").isin(controllers(events))
    rows = sorted(
        events.where(of_brokers).collect(), key=lambda row: tuple(row[name] for name in ORDER)
    )
    return outages(row.asDict() for row in rows)


def gather(events: DataFrame) -> DataFrame:
    """Return a row per partition: topic, partition, replication_factor, `facts` in order of time."""
    folded = events.where(f.col("name").isin(*FOLDED))
    # A deleted topic ends each of its partitions.
    deleted = folded.where("name = 'topic_deleted'").drop("partition")
    partitions = folded.where("partition is not null").select(*KEY).distinct()
    of_topics = deleted.join(partitions, "topic").select(*events.columns)
    of_partitions = folded.where("partition is not null")
    watermarks = _first_writes(events).unionByName(_reached(events))
    facts = of_partitions.unionByName(of_topics).unionByName(watermarks)
    created = events.where("name = 'topic_created'").groupBy("topic")
    factors = created.agg(f.max("replication_factor").alias("replication_factor"))
    rows = f.struct(*ORDER, *(name for name in events.columns if name not in (*ORDER, *KEY)))
    gathered = facts.groupBy(*KEY).agg(f.sort_array(f.collect_list(rows)).alias("facts"))
    members = f.array_max(f.transform("facts", lambda fact: f.size(fact["isr"])))
    return gathered.join(factors, "topic", "left").withColumn(
        # A partition that was created before the journal began: the largest ISR that it had.
        "replication_factor",
        f.greatest("replication_factor", members),
    )


def _first_writes(events: DataFrame) -> DataFrame:
    """Return the first high watermark above the start of each leader epoch."""
    starts = events.where("name = 'became_leader'").groupBy(*LEADER_EPOCH)
    epochs = starts.agg(f.max("leader_epoch_start_offset").alias("start"))
    above = _high_watermarks(events).join(epochs, LEADER_EPOCH).where("high_watermark > start")
    return _one_of_each(above, f.min_by, "at_ms", FIRST_WRITE)


def _reached(events: DataFrame) -> DataFrame:
    return _one_of_each(_high_watermarks(events), f.max_by, "high_watermark", REACHED)


def _high_watermarks(events: DataFrame) -> DataFrame:
    return events.where("name = 'high_watermark_advanced'")


def _one_of_each(events: DataFrame, choose: Callable[..., Any], by: str, name: str) -> DataFrame:
    columns = [each for each in events.columns if each not in (*LEADER_EPOCH, "start")]
    one = events.groupBy(*LEADER_EPOCH).agg(choose(f.struct(*columns), by).alias("one"))
    kept = [f.col(f"one.{each}").alias(each) for each in columns if each != "name"]
    return one.select(*LEADER_EPOCH, f.lit(name).alias("name"), *kept)


def fold(
    gathered: DataFrame, rule: Callable[[dict[str, Any]], list[Any]], schema: pa.Schema
) -> DataFrame:
    """Apply `rule` to each row of `gather`; return a row of `schema` for each value of its results."""

    def folded(
        topics: pa.Array, partitions: pa.Array, factors: pa.Array, facts: pa.Array
    ) -> pa.Array:
        groups = zip(topics, partitions, factors, facts, strict=True)
        found = [
            [
                {"topic": topic.as_py(), "partition": number.as_py(), **attrs.asdict(value)}
                for value in rule(
                    {
                        "topic_partition": TopicPartition(topic.as_py(), number.as_py()),
                        "replication_factor": factor.as_py(),
                        "facts": fact.as_py(),
                    }
                )
            ]
            for topic, number, factor, fact in groups
        ]
        return pa.array(found, pa.list_(pa.struct(list(schema))))

    make_column: Any = arrow_udf  # its stubs know no struct
    column = make_column(folded, ArrayType(from_arrow_schema(schema)))
    rows = gathered.select(column(*KEY, "replication_factor", "facts").alias("rows"))
    return rows.select(f.inline("rows"))
