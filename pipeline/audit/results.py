"""What the audit says of each partition: the value, its row in Spark and Parquet, and its JSON.

The value is `understudy verify`'s answer with two things beside it: where each pair of
replicas parts, and what is wrong with each replica, range by range.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet

from pipeline.audit.judging import Finding, Judgement, Pair
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

# As Spark declares it; `attrs.asdict` of a PartitionAudit is such a row.
RESULT_TYPE: Final = """struct<
    topic: string, partition: int, replicas: array<string>, result: string,
    difference: string, offset: bigint, start_offset: bigint, end_offset: bigint,
    batches: bigint, records: bigint, size: bigint, last_epoch: int, keys: bigint,
    copies: array<struct<directory: string, leader_epoch: int, base_offset: bigint,
        last_offset: bigint, file: string, position: bigint, damage: string, topic_id: string,
        crc: bigint, reached: bigint, cleaned_before: bigint>>,
    pairs: array<struct<first: string, second: string, difference: string, offset: bigint,
        first_epoch: int, second_epoch: int>>,
    findings: array<struct<replica: string, kind: string, first_offset: bigint,
        end_offset: bigint, segment: string, position: bigint, reason: string>>>"""


@attrs.frozen(kw_only=True)
class PartitionAudit:
    """One partition: `result` is "same", "different" or "alone"."""

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
        """Nothing differs."""
        return self.result != "different"

    def to_result(self) -> PartitionResult:
        """As `understudy verify` has it."""
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


def from_judgement(judgement: Judgement) -> PartitionAudit:
    """What a worker found of one partition."""
    result = judgement.result
    told: dict[str, Any] = {}
    if not isinstance(result, Alone):
        told |= attrs.asdict(result.compared)
    if isinstance(result, Different):
        told |= {"difference": result.difference.value, "offset": result.offset}
        told |= {"copies": result.copies}
    if isinstance(result, Same):
        told |= {"keys": result.keys}
    return PartitionAudit(
        topic=result.partition.topic,
        partition=result.partition.partition,
        replicas=result.directories,
        result=type(result).__name__.lower(),
        pairs=judgement.pairs,
        findings=judgement.findings,
        **told,
    )


def from_row(row: dict[str, Any]) -> PartitionAudit:
    """A row of `RESULT_TYPE` with its structs as dictionaries."""
    nested: dict[str, Any] = {
        "replicas": tuple(row["replicas"]),
        "copies": tuple(CopyAt(**copy) for copy in row["copies"]),
        "pairs": tuple(Pair(**pair) for pair in row["pairs"]),
        "findings": tuple(Finding(**finding) for finding in row["findings"]),
    }
    return PartitionAudit(**(row | nested))


def comparison(audits: Iterable[PartitionAudit]) -> Comparison:
    """All of them as `understudy verify` would tell it."""
    results = tuple(audit.to_result() for audit in audits)
    names = sorted({name for result in results for name in result.directories})
    return Comparison(tuple(names), results)


def to_json(audits: Sequence[PartitionAudit]) -> dict[str, Any]:
    """`understudy verify`'s JSON, with the pairs and the findings in each partition."""
    answer = comparison(audits).to_dict()
    for partition, audit in zip(answer["partitions"], audits, strict=True):
        partition["pairs"] = [attrs.asdict(pair) for pair in audit.pairs]
        partition["findings"] = [attrs.asdict(finding) for finding in audit.findings]
    return answer


def lines(audits: Sequence[PartitionAudit]) -> Iterator[str]:
    """For people: a line for each partition, more where it differs, and a sum."""
    for audit in audits:
        yield str(audit.to_result())
        yield from (f"    {finding}" for finding in audit.findings)
        yield from (f"    {pair}" for pair in audit.pairs)
    differing = sum(not audit.same for audit in audits)
    batches = sum(audit.batches for audit in audits)
    yield f"{len(audits)} partitions, {differing} differ; {batches:,} batches are the same"


def write_parquet(audits: Sequence[PartitionAudit], path: str) -> None:
    """A row for each partition."""
    rows = [attrs.asdict(audit) for audit in audits]
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


def _schema() -> pa.Schema:
    """`RESULT_TYPE` in Arrow."""
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
