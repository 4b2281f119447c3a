"""The commits of consumer groups, leader epochs and truncations, read by Spark for `commits.py`.

    __consumer_offsets ──> the furthest commits ──┐
    batch headers ──> where leader epochs begin ──┼─> losses
    event journals ──> truncations ───────────────┘

Rule: commits are read before the logs that judge them. What is committed meanwhile is not beyond
the end of a log that was read earlier.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.audit.commits import EpochChain, GroupCommit, GroupLoss, Truncation, find_losses
from pipeline.audit.job import HeaderSource
from pipeline.journals.source import read_events
from pipeline.source.data_source import register
from replication.groups.rules.records import OffsetEntry, parse
from storage.types import NO_LEADER_EPOCH, Offset, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
_COMMIT: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("epoch", pa.int32()),
        ("at_ms", pa.int64()),
    ]
)
_KEY: Final = ["topic", "partition"]


def group_losses(
    session: SparkSession,
    source: HeaderSource,
    directories: Sequence[str],
    journals: Sequence[str] = (),
    *,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[GroupLoss] | None:
    """Return what groups had committed past truncations, or None if there is no log of commits.

    `directories` are the log directories that `source` reads; `journals` are event journals, or
    directories that hold some.
    """
    there = {replica.topic_partition for replica in source.replicas}
    if not any(where.topic == OFFSETS_TOPIC for where in there):
        return None
    on_step("reading the commits of consumer groups")
    truncations = read_truncations(read_events(session, journals)) if journals else []
    commits = read_commits(session, directories, truncations)
    wanted = sorted({commit.topic_partition for commit in commits} & there)
    chains = read_chains(source.batches(wanted)) if wanted else {}
    return find_losses(commits, chains, truncations)


def read_commits(
    session: SparkSession, directories: Sequence[str], truncations: Sequence[Truncation]
) -> list[GroupCommit]:
    """Return the furthest commit of each group, partition and leader epoch.

    With truncations, return also the furthest one before each.
    """
    register(session)
    records = session.read.format("understudy").schema("key binary, value binary")
    options = {"subscribe": OFFSETS_TOPIC, "kafka.isolation.level": "read_committed"}
    options |= {"path": ",".join(directories), "onCorruptBatch": "skip"}
    make_column: Any = arrow_udf  # its stubs know no struct
    as_commit = make_column(_parsed, from_arrow_schema(_COMMIT))
    parsed = records.options(**options).load().select(as_commit("key", "value").alias("commit"))
    commits = parsed.where("commit.group is not null").select("commit.*")
    rows = [_furthest(commits, "group", *_KEY, "epoch").collect()]
    if truncations:
        cut = session.createDataFrame(
            [
                (*each.topic_partition, each.at_ms, each.to_offset, each.from_offset)
                for each in truncations
            ],
            "topic string, partition int, cut_ms bigint, to_offset bigint, from_offset bigint",
        )
        before = commits.join(f.broadcast(cut), _KEY).where(
            "offset > to_offset and offset <= from_offset and at_ms <= cut_ms"
        )
        rows.append(_furthest(before, "group", *_KEY, "epoch", "cut_ms").collect())
    found = (
        GroupCommit(
            group=row["group"],
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            offset=row["furthest"]["offset"],
            epoch=row["epoch"],
            at_ms=row["furthest"]["at_ms"],
        )
        for each in rows
        for row in each
    )
    return list(dict.fromkeys(found))


def _furthest(commits: DataFrame, *by: str) -> DataFrame:
    furthest = f.max_by(f.struct("offset", "at_ms"), f.struct("offset", "at_ms"))
    return commits.groupBy(*by).agg(furthest.alias("furthest"))


def _parsed(keys: pa.Array, values: pa.Array) -> pa.Array:
    pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
    rows = [_commit_row(key, value) for key, value in pairs]
    return pa.array(rows, pa.struct(list(_COMMIT)))


def _commit_row(key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    try:
        entry = parse(key, value) if key else None
    except Exception:  # noqa: BLE001 - a record that is no commit, whatever it is
        return None
    if not isinstance(entry, OffsetEntry) or entry.value is None:
        return None
    return {
        "group": entry.group,
        "topic": entry.partition.topic,
        "partition": entry.partition.partition,
        "offset": entry.value.offset,
        "epoch": entry.value.leader_epoch,
        "at_ms": entry.value.commit_timestamp,
    }


def read_chains(batches: DataFrame) -> dict[TopicPartition, EpochChain]:
    """Return the leader epochs of each partition's surviving log, from rows of batch headers."""
    epochs = (
        batches.where("damage is null")
        .groupBy("replica", *_KEY, "leader_epoch")
        .agg(f.min("base_offset").alias("start"), (f.max("last_offset") + 1).alias("end"))
    )
    logs: dict[TopicPartition, dict[str, list[tuple[int, Offset, Offset]]]] = {}
    for row in epochs.collect():
        where = TopicPartition(row["topic"], row["partition"])
        of_replica = logs.setdefault(where, {}).setdefault(row["replica"], [])
        of_replica.append((row["leader_epoch"], row["start"], row["end"]))
    found = {}
    for where, replicas in logs.items():
        best = max(replicas.values(), key=lambda one: (max(one)[0], max(end for *_, end in one)))
        starts = tuple((epoch, start) for epoch, start, _ in sorted(best))
        found[where] = EpochChain(starts, max(end for *_, end in best))
    return found


def read_truncations(events: DataFrame) -> list[Truncation]:
    """Return the truncations in the rows of event journals."""
    rows = events.where("name = 'log_truncated' and from_offset > to_offset").collect()
    return [
        Truncation(
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            broker=row["node"],
            at_ms=row["at_ms"],
            from_offset=row["from_offset"],
            to_offset=row["to_offset"],
            leader_epoch=NO_LEADER_EPOCH if row["leader_epoch"] is None else row["leader_epoch"],
        )
        for row in rows
    ]
