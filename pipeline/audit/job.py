"""The audit on Spark: a survey of every header, and a judgement of what is not alike.

    batches  ──join log starts──> group by offset ──> group by partition ──> alike or not
                                                                               │ not
    batches of those partitions, read again ──with their replicas──> judging ──┘

Rule 1: the survey moves one small row for each batch, and ends with one for each partition:
where every replica holds one and the same batch at every offset from the highest log start
on, nothing else is to be done.

Rule 2: only a partition that is not alike is read again. One worker has all header rows of
it, reads in depth the batches where they part, or all of them where a cleaner has been, and
says what `understudy verify` would. What is alike was not read: nobody counted its keys.
"""

import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as f
from pyspark.sql.pandas.functions import arrow_udf

from pipeline.audit import headers
from pipeline.audit.batches import register
from pipeline.audit.copies import Copy
from pipeline.audit.depth import check_on, compare_on
from pipeline.audit.judging import EVERYTHING, judge
from pipeline.audit.replicas import NoLogDirectoryError, check_directories
from pipeline.audit.results import RESULT_TYPE, SCHEMA, PartitionAudit, from_judgement, from_row
from replication.verify.comparing import Rules
from replication.verify.lock_step import Past
from storage.filesystem import OsFileSystem
from storage.types import TopicPartition

KEY = ["topic", "partition"]
# What identifies a batch beside its place: the epoch is what the CRC leaves out.
FINGERPRINT = ["last_offset", "leader_epoch", "crc", "size"]


@attrs.frozen
class Headers:
    """Where rows come from: `batches` gives those of some partitions only, or for None of all."""

    replicas: DataFrame
    batches: Callable[[Sequence[TopicPartition] | None], DataFrame]


def audit(
    source: Headers,
    *,
    rules: Rules = EVERYTHING,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[PartitionAudit]:
    """What is to be said of each partition, in order of topic and partition.

    `rules` are those of `verify`: how many replicas each must have, and what of compaction counts.
    `on_step` hears what comes next, for progress.
    """
    on_step("reading batch headers")
    rows = survey(source.replicas, source.batches(None), rules.copies).collect()
    if not rows:
        raise NoLogDirectoryError("there is no partition to audit")
    audits = [_surveyed(row) for row in rows if not row.is_suspicious]
    suspicious = [TopicPartition(row.topic, row.partition) for row in rows if row.is_suspicious]
    if suspicious:
        on_step(f"looking closer at {len(suspicious)} of {len(rows)} partitions")
        judged = judgement(source.replicas, source.batches(suspicious), rules)
        wanted = set(suspicious)
        found = (from_row(row.asDict(recursive=True)) for row in judged.collect())
        audits += [each for each in found if each.topic_partition in wanted]
    return sorted(audits, key=lambda each: each.topic_partition)


def survey(replicas: DataFrame, batches: DataFrame, expected_copies: int | None) -> DataFrame:
    """One row per partition: how far it reaches, and whether anything in it is suspicious."""
    first_segment = f.coalesce(f.element_at("segments", 1), f.lit(0))
    partitions = replicas.groupBy(*KEY).agg(
        f.count("*").alias("copies"),
        f.sort_array(f.collect_list("replica")).alias("replicas"),
        f.countDistinct("topic_id").alias("topic_ids"),
        f.max(f.greatest("log_start_offset", first_segment)).alias("start_offset"),
    )
    starts = partitions.select(*KEY, "copies", "start_offset")
    counted = _counted(_by_offset(batches.join(f.broadcast(starts), KEY)))
    few = f.lit(False) if expected_copies is None else f.col("copies") < expected_copies
    # Copies that hold nothing from the start on may still end before it.
    nothing = (f.col("batches") == 0) & (f.col("start_offset") > 0)
    compared = nothing | ~f.col("alike") | (f.col("topic_ids") > 1)
    return (
        partitions.join(counted, KEY, "left")
        .fillna({"batches": 0, "records": 0, "size": 0, "alike": True})
        .withColumn("end_offset", f.coalesce("end_offset", "start_offset"))
        .withColumn("is_suspicious", few | ((f.col("copies") > 1) & compared))
    )


def _by_offset(batches: DataFrame) -> DataFrame:
    """One row per base offset, at and above the start: does every copy hold the same there?"""
    is_damaged = f.col("damage").isNotNull() | ~f.coalesce("is_sound", f.lit(True))
    same = [f.min(name) == f.max(name) for name in FINGERPRINT]
    return (
        batches.where((f.col("last_offset") >= f.col("start_offset")) | f.col("damage").isNotNull())
        .groupBy(*KEY, "base_offset")
        .agg(
            (f.count("*") == f.first("copies")).alias("everywhere"),
            reduce(and_, same).alias("same"),
            f.bool_or(is_damaged).alias("is_damaged"),
            *(f.max(name).alias(name) for name in ("last_offset", "record_count", "size")),
            f.max("leader_epoch").alias("leader_epoch"),
        )
    )


def _counted(by_offset: DataFrame) -> DataFrame:
    alike: Column = f.col("everywhere") & f.col("same") & ~f.col("is_damaged")
    return by_offset.groupBy(*KEY).agg(
        f.count("*").alias("batches"),
        f.sum("record_count").alias("records"),
        f.sum("size").alias("size"),
        (f.max("last_offset") + 1).alias("end_offset"),
        f.max_by("leader_epoch", "base_offset").alias("last_epoch"),
        f.bool_and(alike).alias("alike"),
    )


def judgement(replicas: DataFrame, batches: DataFrame, rules: Rules) -> DataFrame:
    """One row of `RESULT_TYPE` per partition of `batches`, from all of its rows."""

    def judged(of_replicas: pa.Array, of_batches: pa.Array) -> pa.Array:
        groups = zip(of_replicas, of_batches, strict=True)
        found = [_judge_group(*group, rules=rules) for group in groups]
        return pa.array(found, pa.struct(list(SCHEMA)))

    # An Arrow function of columns, as grouped Arrow functions ask for pandas.
    make_column: Any = arrow_udf  # its stubs know no struct
    as_column = make_column(judged, RESULT_TYPE)
    groups = _gathered(replicas, "of_replicas").join(_gathered(batches, "of_batches"), KEY, "left")
    return groups.select(as_column("of_replicas", "of_batches").alias("judged")).select("judged.*")


def _gathered(rows: DataFrame, name: str) -> DataFrame:
    """All rows of each partition in one column."""
    return rows.groupBy(*KEY).agg(f.collect_list(f.struct(*rows.columns)).alias(name))


def _judge_group(
    of_replicas: pa.ListScalar, of_batches: pa.ListScalar, *, rules: Rules
) -> dict[str, Any]:
    rows = sorted(of_replicas.as_py(), key=lambda row: row["replica"])
    # A partition without a single batch has no list.
    batches = headers.SCHEMA.empty_table() if of_batches.values is None else _table(of_batches)
    ordered = batches.sort_by([("segment", "ascending"), ("position", "ascending")])
    copies = [_copy(row, ordered) for row in rows]
    where = TopicPartition(rows[0]["topic"], rows[0]["partition"])
    files = OsFileSystem()
    found = judge(
        where,
        copies,
        rules=rules,
        check_batch=check_on(files),
        compare_records=compare_on(files),
    )
    return attrs.asdict(from_judgement(found))


def _table(rows: pa.ListScalar) -> pa.Table:
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows.values)])


def _copy(row: dict[str, Any], batches: pa.Table) -> Copy:
    mine = batches.filter(pa.compute.equal(batches["replica"], row["replica"]))
    return Copy(
        replica=row["replica"],
        directory=row["directory"],
        topic_id=row["topic_id"],
        log_start_offset=row["log_start_offset"],
        segments=tuple(row["segments"]),
        # Headers that an earlier version has written do not tell.
        past=Past(cleaned_before=row.get("cleaned_before") or 0, reached=row.get("reached") or 0),
        rows={name: mine[name].to_numpy() for name in mine.column_names},
    )


def _surveyed(row: Row) -> PartitionAudit:
    """What the survey says of a partition in which nothing is suspicious."""
    who = {"topic": row.topic, "partition": row.partition, "replicas": tuple(row.replicas)}
    if row.copies == 1:
        return PartitionAudit(**who, result="alone")
    counts = ("start_offset", "end_offset", "batches", "records", "size", "last_epoch")
    return PartitionAudit(**who, result="same", **{name: row[name] for name in counts})


def of_directories(
    session: SparkSession,
    directories: dict[str, str],
    *,
    check_crcs: bool = False,
) -> Headers:
    """Headers of log directories, by the replicas' names, that every worker can read."""
    check_directories(OsFileSystem(), directories.values())
    register(session)
    options = {"path": ",".join(directories.values()), "names": ",".join(directories)}
    batches = session.read.format("understudy-batches").options(**options)
    batches = batches.option("checkCrcs", str(check_crcs).lower())

    def some(partitions: Sequence[TopicPartition] | None) -> DataFrame:
        if partitions is None:
            return batches.load()
        return batches.option("partitions", json.dumps(partitions)).load()

    replicas = session.read.format("understudy-replicas").options(**options).load()
    return Headers(replicas, some)
