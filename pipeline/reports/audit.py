"""The audit as a page: what differs first, then everything."""

from collections.abc import Iterator, Sequence

from pipeline.audit.results import PartitionAudit
from pipeline.reports.page import heading, page, paragraph, table, tiles

# More rows than this nobody reads; JSON and Parquet have them all.
MOST_ROWS = 1000


def audit_page(audits: Sequence[PartitionAudit]) -> str:
    return page(
        "Audit of replicas",
        "Do the replicas of every partition hold the same batches?",
        _parts(audits),
    )


def _parts(audits: Sequence[PartitionAudit]) -> Iterator[str]:
    differing = [audit for audit in audits if not audit.same]
    batches = sum(audit.batches for audit in audits)
    records = sum(audit.records for audit in audits)
    yield tiles(
        [
            (f"{len(audits):,}", "partitions", ""),
            (f"{len(differing):,}", "differ", "bad" if differing else "good"),
            (f"{batches:,}", "batches are the same", ""),
            (f"{records:,}", "records in them", ""),
        ]
    )
    if differing:
        yield heading("What differs")
        yield _differences(differing[:MOST_ROWS])
        yield heading("What is wrong with which replica")
        yield _findings(differing)
        yield heading("In pairs")
        yield _pairs(differing[:MOST_ROWS])
    yield heading("All partitions")
    if len(audits) > MOST_ROWS:
        yield paragraph(f"The first {MOST_ROWS:,} of {len(audits):,}.")
    yield _partitions(audits[:MOST_ROWS])


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
    return table(columns, rows)


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
    return table((*columns, "file", "byte", "reason"), rows[:MOST_ROWS])


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
    return table(columns, rows)


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
    return table((*columns, "last epoch"), rows)
