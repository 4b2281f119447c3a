"""The audit as a page: what differs first, then everything."""

from collections.abc import Iterator, Sequence

from pipeline.audit.commits import GroupLoss
from pipeline.audit.results import AuditReport, PartitionAudit, verdict
from pipeline.reports.page import MOST_ROWS, heading, page, paragraph, table, tiles
from replication.observe.pages import folded_note, is_internal


def audit_page(report: AuditReport, *, internal: bool = False) -> str:
    return page(
        "Audit of replicas",
        verdict(report),
        "Do the replicas of every partition hold the same batches?",
        _parts(report, internal=internal),
    )


def _parts(report: AuditReport, *, internal: bool) -> Iterator[str]:
    audits, losses = report.partitions, report.groups
    differing = [audit for audit in audits if not audit.same]
    batches = sum(audit.batches for audit in audits)
    records = sum(audit.records for audit in audits)
    yield tiles(
        [
            (f"{len(audits):,}", "partitions", ""),
            (f"{len(differing):,}", "differ", "bad" if differing else "good"),
            (f"{batches:,}", "batches are the same", ""),
            (f"{records:,}", "records in them", ""),
            *_group_tile(losses),
        ]
    )
    if losses:
        yield heading("Consumer groups that had committed past a truncation")
        yield _losses(losses[:MOST_ROWS])
    if differing:
        yield heading("What differs")
        yield _differences(differing[:MOST_ROWS])
        yield heading("What is wrong with which replica")
        yield _findings(differing)
        yield heading("In pairs")
        yield _pairs(differing[:MOST_ROWS])
    yield heading("All partitions")
    shown = [each for each in audits if internal or not is_internal(each.topic)]
    if len(shown) < len(audits):
        hidden = len(audits) - len(shown)
        yield paragraph(folded_note(hidden))
    if len(shown) > MOST_ROWS:
        yield paragraph(f"The first {MOST_ROWS:,} of {len(shown):,}.")
    yield _partitions(shown[:MOST_ROWS])


def _group_tile(losses: Sequence[GroupLoss] | None) -> list[tuple[str, str, str]]:
    """Return a tile, or none if the commits of groups were not read."""
    if losses is None:
        return []
    groups = len({loss.group for loss in losses})
    return [(f"{groups:,}", "groups had committed past a truncation", "bad" if groups else "good")]


def _losses(losses: Sequence[GroupLoss]) -> str:
    rows = [
        (
            loss.group,
            str(loss.topic_partition),
            loss.committed_offset,
            loss.committed_epoch,
            loss.truncated_at,
            loss.leader_epoch,
            loss.broker,
            loss.evidence,
        )
        for loss in losses
    ]
    columns = ("group", "partition", "committed offset", "of epoch", "truncated at")
    return table("Groups", (*columns, "leader epoch", "on broker", "by"), rows)


def _differences(audits: Sequence[PartitionAudit]) -> str:
    rows = []
    for audit in audits:
        for copy in audit.copies:
            held = None
            if copy.base_offset is not None:
                held = f"{copy.base_offset} to {copy.last_offset}"
            rows.append(
                [
                    str(audit.topic_partition),
                    audit.difference,
                    audit.offset,
                    copy.directory,
                    held,
                    copy.leader_epoch,
                    copy.file,
                    copy.position,
                    copy.damage or copy.topic_id,
                ]
            )
    columns = ("partition", "difference", "offset", "replica", "holds", "epoch", "file", "byte", "")
    return table("What differs", columns, rows)


def _findings(audits: Sequence[PartitionAudit]) -> str:
    rows = [
        (
            str(audit.topic_partition),
            found.replica,
            found.kind,
            found.first_offset,
            found.end_offset,
            found.segment,
            found.position,
            found.reason,
        )
        for audit in audits
        for found in audit.findings
    ]
    columns = ("partition", "replica", "finding", "from offset", "to, exclusive")
    return table("Findings", (*columns, "file", "byte", "reason"), rows[:MOST_ROWS])


def _pairs(audits: Sequence[PartitionAudit]) -> str:
    rows = [
        (
            str(audit.topic_partition),
            pair.first,
            pair.second,
            pair.difference or "same",
            pair.offset,
            pair.first_epoch,
            pair.second_epoch,
        )
        for audit in audits
        for pair in audit.pairs
    ]
    columns = ("partition", "replica", "and", "difference", "offset", "its epoch", "the other's")
    return table("Replicas in pairs", columns, rows[:MOST_ROWS])


def _partitions(audits: Sequence[PartitionAudit]) -> str:
    rows = (
        (
            str(audit.topic_partition),
            audit.result,
            len(audit.replicas),
            audit.start_offset,
            audit.end_offset,
            audit.batches,
            audit.records,
            audit.last_epoch,
        )
        for audit in audits
    )
    columns = (
        "partition",
        "result",
        "replicas",
        "same from",
        "to, exclusive",
        "batches",
        "records",
    )
    return table("All partitions", (*columns, "last epoch"), rows)
