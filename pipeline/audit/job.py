"""The audit on Spark: a survey of every header, and a judgement of what is not alike.

    replicas, listed ──log starts──┐
    segments ──in few tasks──> folds, a row for each replica ──> alike, alone, or suspicious
                                                                                │
    batches of those partitions, read again ──with their replicas──> judging ───┘

Rule 1: the survey moves no header. The tasks that read batches add them up (`folding.py`), and
only the sums of each replica are brought together and compared: where those of a partition's
replicas are equal, each holds the same batch at every offset from the highest log start on, and
nothing else needs to be done.

Rule 2: only a partition whose replicas are not alike is read again. One worker has all its
header rows, reads in depth the batches at which they diverge, or all of them where a cleaner has
been, and says what `understudy verify` would. Partitions that are alike have no count of keys.

Rule 3: the process that starts the audit lists the replicas once and plans the tasks. A plan
by Spark costs processes and a query; the survey is a job without either.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import Column, DataFrame, SparkSession, functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.audit import headers
from pipeline.audit.batches import register
from pipeline.audit.folding import Fold, Who, fold
from pipeline.audit.header_stream import FINGERPRINT, ReplicaHeaders
from pipeline.audit.judging import EVERYTHING, check_on, compare_on, judge
from pipeline.audit.parquet import BATCHES, REPLICAS, NoHeadersError
from pipeline.audit.replicas import (
    SCHEMA as REPLICA_SCHEMA,
    NoLogDirectoryError,
    ReplicaDirectory,
    check_directories,
    find_replicas,
    large_tasks,
    segments_of,
    with_pasts,
)
from pipeline.audit.results import SCHEMA, PartitionAudit, from_judgement, from_row
from pipeline.audit.surveying import Survey, SurveyedPartition
from replication.verify.comparing import Rules
from storage.filesystem import OsFileSystem
from storage.types import Offset, TopicPartition

KEY = ["topic", "partition"]


@attrs.frozen
class HeaderSource:
    """The source of headers.

    `folds` adds up the batches of some partitions, from an offset of each on; `batches` gives
    the rows of some.
    """

    replicas: Sequence[ReplicaDirectory]
    folds: Callable[[Mapping[TopicPartition, Offset]], Iterable[tuple[Who, Fold]]]
    batches: Callable[[Sequence[TopicPartition]], DataFrame]


def audit(
    source: HeaderSource,
    *,
    rules: Rules = EVERYTHING,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[PartitionAudit]:
    """Return the audit of each partition, in order of topic and partition.

    `rules` are those of `verify`: how many replicas each must have, and what of compaction counts.
    `on_step` hears what comes next, for progress.
    """
    on_step("reading batch headers")
    survey = Survey.of(source.replicas, rules.copies)
    if not survey.partitions:
        raise NoLogDirectoryError("there is no partition to audit")
    starts = survey.starts()
    audits, suspicious = survey.ends(source.folds(starts) if starts else ())
    if suspicious:
        on_step(f"looking closer at {len(suspicious)} of {len(survey.partitions)} partitions")
        audits += judge_again(source, suspicious, rules)
    return sorted(audits, key=lambda each: each.topic_partition)


def judge_again(
    source: HeaderSource,
    suspicious: Sequence[SurveyedPartition],
    rules: Rules,
    ends: Mapping[TopicPartition, Offset] | None = None,
) -> list[PartitionAudit]:
    """Read these partitions again, and judge them; with `ends`, only batches that begin below."""
    if not suspicious:
        return []
    batches = source.batches([each.topic_partition for each in suspicious])
    session = batches.sparkSession
    if ends:
        rows = [(*tp, end) for tp, end in ends.items()]
        limits = session.createDataFrame(rows, "topic string, partition int, end bigint")
        limited = batches.join(f.broadcast(limits), KEY, "left")
        batches = limited.where("end is null or base_offset < end").select(*batches.columns)
    judged = judgement(_rows(session, suspicious), batches, rules)
    return [from_row(row.asDict(recursive=True)) for row in judged.collect()]


def _rows(session: SparkSession, partitions: Sequence[SurveyedPartition]) -> DataFrame:
    replicas = [replica for each in partitions for replica in each.replicas]
    rows = [replica.to_row() for replica in with_pasts(OsFileSystem(), replicas)]
    return session.createDataFrame(pa.Table.from_pylist(rows, schema=REPLICA_SCHEMA))


def judgement(replicas: DataFrame, batches: DataFrame, rules: Rules) -> DataFrame:
    """Return one row of `results.SCHEMA` for each partition, made from all of its rows."""

    def judged(of_replicas: pa.Array, of_batches: pa.Array) -> pa.Array:
        groups = zip(of_replicas, of_batches, strict=True)
        found = [_judge_group(*group, rules=rules) for group in groups]
        return pa.array(found, pa.struct(list(SCHEMA)))

    # An Arrow function of columns, as grouped Arrow functions ask for pandas.
    make_column: Any = arrow_udf  # its stubs know no struct
    as_column = make_column(judged, from_arrow_schema(SCHEMA))
    groups = _gathered(replicas, "of_replicas").join(_gathered(batches, "of_batches"), KEY, "left")
    return groups.select(as_column("of_replicas", "of_batches").alias("judged")).select("judged.*")


def _gathered(rows: DataFrame, name: str) -> DataFrame:
    """Collect all rows of each partition in one column."""
    return rows.groupBy(*KEY).agg(f.collect_list(f.struct(*rows.columns)).alias(name))


def _judge_group(
    of_replicas: pa.ListScalar, of_batches: pa.ListScalar, *, rules: Rules
) -> dict[str, Any]:
    rows = sorted(of_replicas.as_py(), key=lambda row: row["replica"])
    # A partition without a single batch has no list.
    batches = headers.SCHEMA.empty_table() if of_batches.values is None else _table(of_batches)
    ordered = batches.sort_by([("segment", "ascending"), ("position", "ascending")])
    copies = [
        ReplicaHeaders.of(
            ReplicaDirectory.from_row(row),
            ordered.filter(pa.compute.equal(ordered["replica"], row["replica"])),
        )
        for row in rows
    ]
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


def of_directories(
    session: SparkSession,
    directories: dict[str, str],
    *,
    check_crcs: bool = False,
) -> HeaderSource:
    """Return the headers of log directories, by replica name, that every worker can read."""
    files = OsFileSystem()
    check_directories(files, directories.values())
    replicas = list(find_replicas(files, directories))

    def folds(starts: Mapping[TopicPartition, Offset]) -> Iterable[tuple[Who, Fold]]:
        context = session.sparkContext
        segments = [
            segment
            for replica in replicas
            if replica.topic_partition in starts
            for segment in segments_of(files, replica, starts[replica.topic_partition])
        ]
        tasks = list(large_tasks(segments, context.defaultParallelism))
        if not tasks:
            return []
        work = partial(_fold_tasks, check_crcs=check_crcs)
        return context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()

    def some(partitions: Sequence[TopicPartition]) -> DataFrame:
        register(session)
        options = {"path": ",".join(directories.values()), "names": ",".join(directories)}
        batches = session.read.format("understudy-batches").options(**options)
        batches = batches.option("checkCrcs", str(check_crcs).lower())
        return batches.option("partitions", json.dumps(partitions)).load()

    return HeaderSource(replicas, folds, some)


def _fold_tasks(
    tasks: Iterable[Sequence[headers.SegmentHeaders]], *, check_crcs: bool
) -> Iterator[tuple[Who, Fold]]:
    for segments in tasks:
        yield from fold(OsFileSystem(), segments, check_crcs=check_crcs)


def of_headers(session: SparkSession, directories: Sequence[str]) -> HeaderSource:
    """Return the headers that `write_headers` has written for all brokers, as a source of audits."""
    for directory in directories:
        for part in (REPLICAS, BATCHES):
            if not (Path(directory) / part).is_dir():
                raise NoHeadersError(f"{directory} has no headers of batches: no {part} in it")

    def read(part: str) -> DataFrame:
        return session.read.parquet(*(f"{directory}/{part}" for directory in directories))

    def some(partitions: Sequence[TopicPartition]) -> DataFrame:
        wanted = session.createDataFrame(list(partitions), "topic string, partition int")
        return read(BATCHES).join(wanted, KEY, "left_semi")

    def folds(starts: Mapping[TopicPartition, Offset]) -> Iterable[tuple[Who, Fold]]:
        return folds_of(read(BATCHES), starts)

    rows = read(REPLICAS).collect()
    found = [ReplicaDirectory.from_row(row.asDict()) for row in rows]
    seen: set[tuple[str, TopicPartition]] = set()
    for replica in found:
        if (who := (replica.replica, replica.topic_partition)) in seen:
            raise NoHeadersError(f"{who[0]} has written its headers of {who[1]} twice")
        seen.add(who)
    return HeaderSource(found, folds, some)


# Folds of header rows that are a table already: Spark's JVM makes the sums of `folding.py`. Its hashes
# are of the same columns, but other hashes: only folds of one kind are compared with each other. Each
# hash of 64 bits is added up in two halves, because Spark takes a sum beyond 64 bits for an error.

_HASHES: Final = 2
_LOW_HALF: Final = 2**32 - 1


def folds_of(
    batches: DataFrame, starts: Mapping[TopicPartition, Offset]
) -> Iterator[tuple[Who, Fold]]:
    """Yield the fold of each replica in `batches` whose partition `starts` names."""
    rows = [(where.topic, where.partition, start) for where, start in starts.items()]
    wanted = batches.sparkSession.createDataFrame(
        rows, "topic string, partition int, start_offset bigint"
    )
    digest = [each for number in range(_HASHES) for each in _sums_of_hash(number)]
    is_damaged = f.col("damage").isNotNull() | ~f.coalesce("is_sound", f.lit(True))
    counted = (
        batches.join(f.broadcast(wanted), ["topic", "partition"])
        .where((f.col("last_offset") >= f.col("start_offset")) | f.col("damage").isNotNull())
        .groupBy("replica", "topic", "partition")
        .agg(
            f.count("*").alias("batches"),
            f.coalesce(f.sum("record_count"), f.lit(0)).alias("records"),
            f.coalesce(f.sum("size"), f.lit(0)).alias("size"),
            (f.max("last_offset") + 1).alias("end_offset"),
            f.max_by("leader_epoch", "base_offset").alias("last_epoch"),
            f.array(*digest).alias("digest"),
            f.bool_or(is_damaged).alias("is_damaged"),
        )
    )
    for replica, topic, partition, *sums, digests, damaged in counted.collect():
        fold = Fold(
            **dict(zip(_SUMS, sums, strict=True)), digest=tuple(digests), is_damaged=damaged
        )
        yield (replica, TopicPartition(topic, partition)), fold


_SUMS: Final = ("batches", "records", "size", "end_offset", "last_epoch")


def _sums_of_hash(number: int) -> Iterator[Column]:
    found = f.xxhash64(f.lit(number), *FINGERPRINT)
    yield f.sum(f.shiftright(found, 32))
    yield f.sum(found.bitwiseAND(_LOW_HALF))
