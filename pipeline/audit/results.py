"""The audit of one partition: the value, its row in Spark and Parquet, and its JSON.

The value is `understudy verify`'s result with two additions: the offset at which each pair of
replicas diverges, and what is wrong with each replica, range by range.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet

from pipeline.audit.commits import GroupLoss
from pipeline.audit.judging import Finding, Judgement, Pair
from replication.observe.pages import Level, PageVerdict, counted, folded_note, is_internal
from replication.verify.results import (
    Alone,
    Compared,
    Comparison,
    CopyAt,
    Difference,
    Different,
    PartitionResult,
    Same,
)
from storage.types import TopicPartition


@attrs.frozen(kw_only=True)
class PartitionAudit:
    """The audit of one partition: `result` is "same", "different" or "alone"."""

    topic: str
    partition: int
    replicas: tuple[str, ...]
    result: str
    difference: str | None = None
    offset: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    batches: int = 0
    records: int = 0
    size: int = 0
    last_epoch: int | None = None
    keys: int | None = None
    copies: tuple[CopyAt, ...] = ()
    pairs: tuple[Pair, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.result != "different"

    def to_result(self) -> PartitionResult:
        """Return the result as `understudy verify` has it."""
        where, replicas = self.topic_partition, self.replicas
        if self.result == "alone":
            return Alone(partition=where, directories=replicas)
        assert self.start_offset is not None, "what was compared has a start"
        assert self.end_offset is not None, "and an end"
        compared = Compared(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            batches=self.batches,
            records=self.records,
            size=self.size,
            last_epoch=self.last_epoch,
        )
        if self.result == "same":
            return Same(partition=where, directories=replicas, compared=compared, keys=self.keys)
        assert self.offset is not None, "what differs does so at an offset"
        return Different(
            partition=where,
            directories=replicas,
            difference=Difference(self.difference),
            offset=self.offset,
            copies=self.copies,
            compared=compared,
        )


@attrs.frozen
class AuditReport:
    """The answer of an audit: its partitions, and what consumer groups had committed in vain.

    `groups` is None where the commits of groups were not read.
    """

    partitions: Sequence[PartitionAudit]
    groups: Sequence[GroupLoss] | None = None


def from_judgement(judgement: Judgement) -> PartitionAudit:
    """Return a worker's judgement as an audit."""
    result = judgement.result
    found: dict[str, Any] = {}
    if not isinstance(result, Alone):
        found |= attrs.asdict(result.compared)
    if isinstance(result, Different):
        found |= {"difference": result.difference.value, "offset": result.offset}
        found |= {"copies": result.copies}
    if isinstance(result, Same):
        found |= {"keys": result.keys}
    return PartitionAudit(
        topic=result.partition.topic,
        partition=result.partition.partition,
        replicas=result.directories,
        result=type(result).__name__.lower(),
        pairs=judgement.pairs,
        findings=judgement.findings,
        **found,
    )


def from_row(row: dict[str, Any]) -> PartitionAudit:
    """Return the audit in a row of `SCHEMA`, whose structs are dictionaries."""
    nested: dict[str, Any] = {
        "replicas": tuple(row["replicas"]),
        "copies": tuple(CopyAt(**copy) for copy in row["copies"]),
        "pairs": tuple(Pair(**pair) for pair in row["pairs"]),
        "findings": tuple(Finding(**finding) for finding in row["findings"]),
    }
    return PartitionAudit(**(row | nested))


def comparison(audits: Iterable[PartitionAudit]) -> Comparison:
    """Return all audits as one comparison of `understudy verify`."""
    results = tuple(audit.to_result() for audit in audits)
    names = sorted({name for result in results for name in result.directories})
    return Comparison(tuple(names), results)


def to_json(report: AuditReport) -> dict[str, Any]:
    """Return the JSON of `understudy verify` with pairs and findings of each partition, and groups."""
    audits = report.partitions
    answer = comparison(audits).to_dict()
    for partition, audit in zip(answer["partitions"], audits, strict=True):
        partition["pairs"] = [attrs.asdict(pair) for pair in audit.pairs]
        partition["findings"] = [attrs.asdict(finding) for finding in audit.findings]
    losses = report.groups
    return answer | {"groups": None if losses is None else [attrs.asdict(each) for each in losses]}


def verdict(report: AuditReport) -> PageVerdict:
    """Return whether the replicas hold the same batches, and where they differ first."""
    audits = report.partitions
    differing = [audit for audit in audits if not audit.same]
    alone = sum(audit.result == "alone" for audit in audits)
    uncompared = f" {counted(alone, 'partition')} had one replica only." if alone else ""
    if not audits:
        return PageVerdict(Level.WARNING, "there was no partition to compare.")
    if differing:
        first = differing[0]
        return PageVerdict(
            Level.BAD,
            f"{len(differing):,} of {counted(len(audits), 'partition')} differ, first"
            f" {first.topic_partition} at offset {first.offset} ({first.difference}):"
            f" a replica lacks records, or has others.{uncompared}",
        )
    batches = sum(audit.batches for audit in audits)
    return PageVerdict(
        Level.WARNING if alone == len(audits) else Level.GOOD,
        f"the replicas of {counted(len(audits) - alone, 'partition')} hold the same"
        f" {counted(batches, 'batch', 'batches')}; nothing is missing.{uncompared}",
    )


def lines(report: AuditReport, *, internal: bool = False) -> Iterator[str]:
    """Yield the verdict, a line for each partition, more where it differs, and a sum.

    Partitions of internal topics that do not differ are left out unless `internal`.
    """
    audits = report.partitions
    yield str(verdict(report))
    for audit in audits:
        if audit.same and is_internal(audit.topic) and not internal:
            continue
        yield str(audit.to_result())
        yield from (f"    {finding}" for finding in audit.findings)
        yield from (f"    {pair}" for pair in audit.pairs)
    hidden = sum(audit.same and is_internal(audit.topic) for audit in audits)
    if hidden and not internal:
        yield folded_note(hidden)
    differing = sum(not audit.same for audit in audits)
    batches = sum(audit.batches for audit in audits)
    yield from map(str, report.groups or ())
    yield f"{len(audits)} partitions, {differing} differ; {batches:,} batches are the same"
    if report.groups is not None:
        yield _sum_of(report.groups)


def _sum_of(losses: Sequence[GroupLoss]) -> str:
    if not losses:
        return "no consumer group had committed past a truncation"
    groups = len({loss.group for loss in losses})
    partitions = len({loss.topic_partition for loss in losses})
    return f"{groups} consumer groups had committed past truncations, in {partitions} partitions"


def write_parquet(report: AuditReport, path: str) -> None:
    """Write a Parquet file with a row for each partition."""
    rows = [attrs.asdict(audit) for audit in report.partitions]
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


def _schema() -> pa.Schema:
    """Return the Arrow schema of `attrs.asdict` of a PartitionAudit."""
    string, long, integer = pa.string(), pa.int64(), pa.int32()
    copy = [("directory", string), ("leader_epoch", integer), ("base_offset", long)]
    copy += [("last_offset", long), ("file", string), ("position", long)]
    copy += [("damage", string), ("topic_id", string)]
    copy += [("crc", long), ("reached", long), ("cleaned_before", long)]
    pair = [("first", string), ("second", string), ("difference", string), ("offset", long)]
    pair += [("first_epoch", integer), ("second_epoch", integer)]
    finding = [("replica", string), ("kind", string), ("first_offset", long)]
    finding += [("end_offset", long), ("segment", string), ("position", long), ("reason", string)]
    fields = [("topic", string), ("partition", integer), ("replicas", pa.list_(string))]
    fields += [("result", string), ("difference", string), ("offset", long)]
    fields += [("start_offset", long), ("end_offset", long), ("batches", long)]
    fields += [("records", long), ("size", long), ("last_epoch", integer), ("keys", long)]
    fields += [("copies", pa.list_(pa.struct(copy))), ("pairs", pa.list_(pa.struct(pair)))]
    fields += [("findings", pa.list_(pa.struct(finding)))]
    return pa.schema(fields)


SCHEMA: Final = _schema()
