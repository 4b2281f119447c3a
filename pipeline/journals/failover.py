"""The failover job: what each outage of a broker did to the partitions that it led.

A controlled shutdown is reported, too, as planned. Every election and truncation is listed with its
cause, whether it belongs to an outage or not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame

from pipeline.journals.changes import Change, changes
from pipeline.journals.gathered import find_outages, fold, gather, shown_order
from pipeline.journals.outages import (
    MOST_IN_TEXT,
    OutageReport,
    PartitionFailover,
    partitions_of,
    sections,
    verdict_on,
)
from pipeline.journals.quorum import QuorumStanding
from pipeline.journals.timeline import Failover, Outage, failovers
from replication.observe.pages import PageVerdict, counted
from storage.types import TopicPartition

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("broker", pa.int32()),
        ("cause", pa.string()),
        ("began_ms", pa.int64()),
        ("silent_ms", pa.int64()),
        ("fenced_ms", pa.int64()),
        ("elected_ms", pa.int64()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("election", pa.string()),
        ("leading_ms", pa.int64()),
        ("first_write_ms", pa.int64()),
        ("isr_whole_ms", pa.int64()),
        ("truncated", pa.int64()),
        ("truncated_committed", pa.int64()),
        ("lost_committed", pa.int64()),
        ("had_traffic", pa.bool_()),
        ("was_deleted", pa.bool_()),
        ("chain", pa.list_(pa.string())),
    ]
)

CHANGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("at_ms", pa.int64()),
        ("node", pa.int32()),
        ("name", pa.string()),
        ("cause", pa.string()),
        ("text", pa.string()),
    ]
)
MOST_CHANGES: Final = 20_000


@attrs.frozen
class FailoverReport:
    """Every outage in order of time, and every election and truncation by partition."""

    outages: tuple[OutageReport, ...] = ()
    changes: Mapping[TopicPartition, tuple[Change, ...]] = attrs.field(factory=dict)
    left_out: int = 0
    """The number of elections and truncations beyond the first `MOST_CHANGES`."""
    quorum: QuorumStanding | None = None
    """The controllers by the copies of the metadata log; None where none was found."""


def failover_report(
    events: DataFrame,
    *,
    quorum: QuorumStanding | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> FailoverReport:
    """Run the job; the report shows `quorum` as it is."""
    events = events.persist()
    gathered = gather(events).persist()
    try:
        on_step("reading journals")
        known = find_outages(events)
        on_step(f"following {len(known)} outages")
        found = [_from_row(row.asDict()) for row in failover_rows(gathered, known).collect()]
        on_step("explaining elections and truncations")
        rows = change_rows(gathered).persist()
        count = rows.count()
        first = rows.orderBy("at_ms", "topic", "partition").limit(MOST_CHANGES).collect()
        rows.unpersist()
    finally:
        gathered.unpersist()
        events.unpersist()
    by_outage: dict[tuple[int, int], list[PartitionFailover]] = {}
    for each in sorted(found, key=lambda each: shown_order(each.topic_partition)):
        by_outage.setdefault((each.failover.broker, each.failover.began_ms), []).append(each)
    return FailoverReport(
        tuple(
            OutageReport(outage, tuple(by_outage.get((outage.broker, outage.began_ms), ())))
            for outage in known
        ),
        _by_partition(row.asDict() for row in first),
        count - len(first),
        quorum,
    )


def _by_partition(rows: Iterable[dict[str, Any]]) -> dict[TopicPartition, tuple[Change, ...]]:
    found: dict[TopicPartition, list[Change]] = {}
    for row in rows:
        where = TopicPartition(row.pop("topic"), row.pop("partition"))
        found.setdefault(where, []).append(Change(**row))
    return {where: tuple(found[where]) for where in sorted(found, key=shown_order)}


def failover_rows(gathered: DataFrame, known: Sequence[Outage]) -> DataFrame:
    """Return one row for each outage and each partition that its broker led."""
    return fold(gathered, partial(_failovers, known=tuple(known)), SCHEMA)


def _failovers(row: dict[str, Any], *, known: Sequence[Outage]) -> list[Any]:
    return list(failovers(row["facts"], known))


def change_rows(gathered: DataFrame) -> DataFrame:
    """Return one row for each election and truncation."""
    return fold(gathered, _changes, CHANGE_SCHEMA)


def _changes(row: dict[str, Any]) -> list[Any]:
    return list(changes(row["facts"], row["topic_partition"]))


def _from_row(row: dict[str, Any]) -> PartitionFailover:
    where = TopicPartition(row.pop("topic"), row.pop("partition"))
    row["chain"] = tuple(row["chain"])
    return PartitionFailover(where, Failover(**row))


def to_json(found: FailoverReport) -> list[dict[str, Any]]:
    """Return each outage with its partitions; times are milliseconds since 1970."""
    return [
        attrs.asdict(report.outage)
        | {"lost_committed": report.lost_committed, "truncated": report.truncated}
        | {"partitions": [_to_row(each) for each in report.partitions]}
        for report in found.outages
    ]


def _to_row(each: PartitionFailover) -> dict[str, Any]:
    where = each.topic_partition
    return {"topic": where.topic, "partition": where.partition} | attrs.asdict(each.failover)


def verdict(found: FailoverReport) -> PageVerdict:
    """Return what happened, whether anything is lost, and what is wrong where the journals end."""
    return verdict_on(found.outages)


def lines(found: FailoverReport, *, internal: bool = False) -> Iterator[str]:
    """Yield the verdict, the outages and the planned shutdowns, for people to read.

    Partitions of internal topics are left out unless `internal`. What is folded is counted.
    """
    yield str(verdict(found))
    if found.quorum is not None:
        yield str(found.quorum)
    shown = [each if internal else each.without_internal() for each in found.outages]
    for section in sections(shown):
        yield f"{section.title}: {len(section.reports):,}"
        for report in section.shown:
            yield from _lines_of(report)
        if section.folded:
            yield f"  {section.folded}"


def _lines_of(report: OutageReport) -> Iterator[str]:
    outage = report.outage
    began = datetime.fromtimestamp(outage.began_ms / 1000, UTC)
    yield (
        f"{began:%Y-%m-%d %H:%M:%S} UTC  b{outage.broker}: {cause_of(outage)};"
        f" it led {counted(len(report.partitions) + report.hidden, 'partition')},"
        f" {len(report.with_traffic):,} with traffic;"
        f" {counted(report.lost_committed, 'committed record')} lost,"
        f" {report.truncated:,} uncommitted cut off"
    )
    shown = partitions_of(report, most=MOST_IN_TEXT)
    for each in shown.kept:
        yield f"  {each.topic_partition}"
        yield from (f"    {link}" for link in each.failover.chain)
    if shown.folded:
        yield f"  {shown.folded}"


def cause_of(outage: Outage) -> str:
    """Return the cause, and whether it was planned."""
    return f"{outage.cause} (planned)" if outage.planned else outage.cause


def write_parquet(found: FailoverReport, path: str) -> None:
    """Write a Parquet file with a row for each outage and partition."""
    rows = [_to_row(each) for report in found.outages for each in report.partitions]
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
