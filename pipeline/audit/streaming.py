"""The audit as a stream: what replicas hold is judged as they grow.

    micro-batch ──sums of each replica──> alike: counted ──────────────┐
                                    └──> not alike: judged as a whole ─┴─> the report, in a file

Rule 1: the judgement is that of the batch audit. A partition whose replicas do not add up to the same in
a micro-batch is read again from the beginning, as far as the stream has come, and judged by the same code;
and again whenever it grows, until its replicas are alike.

Rule 2: the report has the number of its micro-batch, and replaces the last one at once. A micro-batch that
Spark repeats after a restart changes nothing.

    CHECKPOINT/spark        Spark's checkpoint: where the stream goes on
    CHECKPOINT/audit.json   the report so far
"""

import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as f

from pipeline.audit.batches import register
from pipeline.audit.folding import Fold
from pipeline.audit.job import KEY, HeaderSource, folds_of, judge_again, of_directories
from pipeline.audit.judging import EVERYTHING
from pipeline.audit.replicas import find_replicas
from pipeline.audit.results import PartitionAudit, from_row
from pipeline.audit.surveying import Survey, SurveyedPartition
from replication.errors import UnderstudyError
from replication.verify.comparing import Rules
from storage.checkpoint import replace_file
from storage.filesystem import OsFileSystem
from storage.types import Offset, TopicPartition

SETTLE_MS: Final = 10_000
_STATE: Final = "audit.json"

OnReport = Callable[[Sequence[PartitionAudit], Sequence[PartitionAudit]], None]
"""Is called with all partitions after a micro-batch, and with those that it has judged anew."""


class StreamError(UnderstudyError):
    """An error: this Spark has no streams, or the checkpoint is that of another audit."""


@attrs.define(eq=False)
class StreamedAudit:
    """The audits of all partitions so far, and the micro-batch that they include."""

    session: SparkSession
    source: Callable[[], HeaderSource]
    state: Path
    rules: Rules
    on_report: OnReport
    directories: Mapping[str, str]
    batch: int = attrs.field(init=False, default=-1)
    audits: dict[TopicPartition, PartitionAudit] = attrs.field(init=False, factory=dict)

    def load(self) -> None:
        """Take the report of an earlier run; raise StreamError if it is of other directories."""
        try:
            kept = json.loads(self.state.read_text())
        except FileNotFoundError:
            return
        if kept["directories"] != dict(self.directories):
            raise StreamError(f"{self.state} is the report of {', '.join(kept['directories'])}")
        self.batch = kept["batch"]
        self.audits = {each.topic_partition: each for each in map(from_row, kept["audits"])}

    def add(self, rows: DataFrame, batch: int) -> None:
        """Take the rows of a micro-batch."""
        if batch <= self.batch:
            return
        source = self.source()
        survey = Survey.of(source.replicas, self.rules.copies)
        rows = rows.persist()
        try:
            ends, begins = _spans(rows)
            sums = _sums(rows, ends)
        finally:
            rows.unpersist()
        anew, suspicious = [], []
        for each in survey.partitions:
            tp = each.topic_partition
            known = self.audits.get(tp)
            if each.is_alone and not each.is_for_judging(self.rules.copies):
                anew += _if_new(_alone(each), known)
            elif tp in ends or known is None:
                found = self._counted(each, sums.get(tp, {}), begins.get(tp), known)
                if found is None:
                    suspicious.append(each)
                else:
                    anew.append(found)
        anew += judge_again(source, suspicious, self.rules, ends)
        self.audits |= {each.topic_partition: each for each in anew}
        self.batch = batch
        self._keep()
        self.on_report(self.report(), anew)

    def report(self) -> list[PartitionAudit]:
        return [self.audits[tp] for tp in sorted(self.audits)]

    def _counted(
        self,
        each: SurveyedPartition,
        sums: Mapping[str, Fold],
        begin: Offset | None,
        known: PartitionAudit | None,
    ) -> PartitionAudit | None:
        """Return the audit with the sums of a micro-batch, or None if it needs judging."""
        if each.is_for_judging(self.rules.copies) or self.rules.compacted:
            return None
        if known is not None and known.result != "same":
            return None
        reached = known.end_offset if known is not None else None
        if reached is not None and begin is not None and begin < reached:
            return None  # a replica was truncated, and the partition is read again from there
        folds = [sums.get(replica.replica, Fold()) for replica in each.replicas]
        found = each.surveyed(folds)
        if found is None or known is None or known.result != "same":
            return found
        return attrs.evolve(
            found,
            start_offset=known.start_offset,
            end_offset=found.end_offset if found.batches else known.end_offset,
            batches=known.batches + found.batches,
            records=known.records + found.records,
            size=known.size + found.size,
            last_epoch=found.last_epoch if found.batches else known.last_epoch,
        )

    def _keep(self) -> None:
        kept = {
            "batch": self.batch,
            "directories": dict(self.directories),
            "audits": [attrs.asdict(each) for each in self.report()],
        }
        replace_file(OsFileSystem(), str(self.state), json.dumps(kept).encode())


def _alone(each: SurveyedPartition) -> PartitionAudit:
    found = each.surveyed([Fold()])
    assert found is not None, "there is nothing to compare it with"
    return found


def _if_new(found: PartitionAudit, known: PartitionAudit | None) -> list[PartitionAudit]:
    return [] if found == known else [found]


def _spans(rows: DataFrame) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
    """Return up to where, and from where on, a micro-batch has each partition."""
    spans = rows.groupBy(*KEY).agg(f.max("last_offset") + 1, f.min("base_offset")).collect()
    where = [TopicPartition(row[0], row[1]) for row in spans]
    ends = {tp: row[2] for tp, row in zip(where, spans, strict=True)}
    return ends, {tp: row[3] for tp, row in zip(where, spans, strict=True)}


def _sums(
    rows: DataFrame, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[str, Fold]]:
    found: dict[TopicPartition, dict[str, Fold]] = {}
    starts = dict.fromkeys(partitions, 0)
    for (replica, tp), fold in folds_of(rows, starts) if starts else ():
        found.setdefault(tp, {})[replica] = fold
    return found


def audit_stream(
    session: SparkSession,
    directories: Mapping[str, str],
    checkpoint: Path,
    *,
    rules: Rules = EVERYTHING,
    check_crcs: bool = False,
    follow: bool = False,
    settle_ms: int = SETTLE_MS,
    on_report: OnReport = lambda _all, _anew: None,
) -> list[PartitionAudit]:
    """Judge what the log directories hold beyond the checkpoint, and return the whole report.

    With `follow`, go on with what comes until Ctrl-C.
    """
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        raise StreamError("an audit as a stream needs Spark 4.2")
    register(session)
    checkpoint.mkdir(parents=True, exist_ok=True)
    options = {"path": ",".join(directories.values()), "names": ",".join(directories)}
    options |= {"checkCrcs": str(check_crcs).lower(), "settleMs": str(settle_ms)}

    def source() -> HeaderSource:
        return of_directories(session, dict(directories), check_crcs=check_crcs)

    streamed = StreamedAudit(
        session, source, checkpoint / _STATE, rules, on_report, dict(directories)
    )
    streamed.load()
    rows = session.readStream.format("understudy-batches").options(**options).load()
    writer = rows.writeStream.foreachBatch(streamed.add)
    writer = writer.option("checkpointLocation", str(checkpoint / "spark"))
    trigger: dict[str, Any] = {"processingTime": "1 second"} if follow else {"availableNow": True}
    query = writer.trigger(**trigger).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        if not follow:
            raise
    except StreamingQueryException as error:
        raise StreamError(_reason(error)) from error
    finally:
        query.stop()
    replicas = list(find_replicas(OsFileSystem(), directories))
    for each in Survey.of(replicas, rules.copies).partitions:
        if each.is_alone and not each.is_for_judging(rules.copies):
            streamed.audits.setdefault(each.topic_partition, _alone(each))
    return streamed.report()


def _reason(error: StreamingQueryException) -> str:
    """Return the last line of an exception's text that names an error: the text has whole traces."""
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
    return lines[-1] if lines else str(error).splitlines()[0]
