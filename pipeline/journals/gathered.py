"""All that the journals tell of a partition, brought together, and folded in one worker.

    events ──the few that change anything──┐
    events ──high watermarks, of which the ─┴─> one row per partition ──fold──> rows
             first and last of each reign

Rule: a high watermark moves many times a second. Of each reign two are kept: the first above
where the reign began, which is its first write, and the highest.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, functions as f
from pyspark.sql.pandas.functions import arrow_udf

from pipeline.journals.timeline import FIRST_WRITE, FOLDED, REACHED, Outage, outages
from storage.types import TopicPartition

KEY = ["topic", "partition"]
REIGN = [*KEY, "node", "leader_epoch"]
OF_BROKERS = ("controlled_shutdown_started", "broker_fenced", "broker_unfenced")
ORDER = ("at_ms", "node", "number")


def shown_order(partition: TopicPartition) -> tuple[bool, TopicPartition]:
    """The user's topics first, then those of the cluster's own."""
    return partition.topic.startswith("__"), partition


def controllers(events: DataFrame) -> list[int]:
    """The nodes that decide who leads."""
    deciding = events.where(f.col("name").isin("leader_elected", "broker_fenced"))
    return sorted(row.node for row in deciding.select("node").distinct().collect())


def find_outages(events: DataFrame) -> list[Outage]:
    """Every time that a broker was fenced, as the controller tells."""
    told = events.where(f.col("name").isin(*OF_BROKERS) & f.col("node").isin(controllers(events)))
    rows = sorted(told.collect(), key=lambda row: tuple(row[name] for name in ORDER))
    return outages(row.asDict() for row in rows)


def gather(events: DataFrame) -> DataFrame:
    """One row per partition: topic, partition, replication_factor, `facts` in order of time."""
    folded = events.where(f.col("name").isin(*FOLDED))
    # A deleted topic ends each of its partitions.
    deleted = folded.where("name = 'topic_deleted'").drop("partition")
    partitions = folded.where("partition is not null").select(*KEY).distinct()
    of_topics = deleted.join(partitions, "topic").select(*events.columns)
    of_partitions = folded.where("partition is not null")
    reigns = _first_writes(events).unionByName(_reached(events))
    facts = of_partitions.unionByName(of_topics).unionByName(reigns)
    created = events.where("name = 'topic_created'").groupBy("topic")
    factors = created.agg(f.max("replication_factor").alias("replication_factor"))
    rows = f.struct(*ORDER, *(name for name in events.columns if name not in (*ORDER, *KEY)))
    gathered = facts.groupBy(*KEY).agg(f.sort_array(f.collect_list(rows)).alias("facts"))
    members = f.array_max(f.transform("facts", lambda fact: f.size(fact["isr"])))
    return gathered.join(factors, "topic", "left").withColumn(
        # Where it was created before the journal began: as many as its ISR ever had.
        "replication_factor",
        f.greatest("replication_factor", members),
    )


def _first_writes(events: DataFrame) -> DataFrame:
    """The first high watermark above the start of each reign."""
    starts = events.where("name = 'became_leader'").groupBy(*REIGN)
    reigns = starts.agg(f.max("leader_epoch_start_offset").alias("start"))
    above = _high_watermarks(events).join(reigns, REIGN).where("high_watermark > start")
    return _one_of_each(above, f.min_by, "at_ms", FIRST_WRITE)


def _reached(events: DataFrame) -> DataFrame:
    return _one_of_each(_high_watermarks(events), f.max_by, "high_watermark", REACHED)


def _high_watermarks(events: DataFrame) -> DataFrame:
    return events.where("name = 'high_watermark_advanced'")


def _one_of_each(events: DataFrame, choose: Callable[..., Any], by: str, name: str) -> DataFrame:
    columns = [each for each in events.columns if each not in (*REIGN, "start")]
    one = events.groupBy(*REIGN).agg(choose(f.struct(*columns), by).alias("one"))
    kept = [f.col(f"one.{each}").alias(each) for each in columns if each != "name"]
    return one.select(*REIGN, f.lit(name).alias("name"), *kept)


def fold(
    gathered: DataFrame,
    rule: Callable[[dict[str, Any]], list[Any]],
    declared: str,
    schema: pa.Schema,
) -> DataFrame:
    """`rule` over each row of `gather`: a row for each value that it returns."""

    def folded(
        topics: pa.Array, partitions: pa.Array, factors: pa.Array, facts: pa.Array
    ) -> pa.Array:
        groups = zip(topics, partitions, factors, facts, strict=True)
        found = [
            [
                {"topic": topic.as_py(), "partition": number.as_py(), **attrs.asdict(value)}
                for value in rule({"replication_factor": factor.as_py(), "facts": told.as_py()})
            ]
            for topic, number, factor, told in groups
        ]
        return pa.array(found, pa.list_(pa.struct(list(schema))))

    make_column: Any = arrow_udf  # its stubs know no struct
    column = make_column(folded, f"array<struct<{declared}>>")
    rows = gathered.select(column(*KEY, "replication_factor", "facts").alias("rows"))
    return rows.select(f.inline("rows"))
