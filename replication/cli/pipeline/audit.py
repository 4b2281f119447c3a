"""`understudy pipeline audit`: check that the replicas hold the same batches."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replication.cli.options import AT_LEAST_ONE, NEW_DIRECTORY
from replication.cli.output import show_line, tell
from replication.cli.pipeline.jobs import (
    INTERNAL,
    MASTER,
    SHOWN,
    SparkProgress,
    deliver,
    output_option,
)
from replication.errors import UnderstudyError
from replication.extras import extra
from storage.errors import StorageError

if TYPE_CHECKING:
    from pipeline.audit.job import HeaderSource
    from pipeline.audit.results import PartitionAudit

COULD_NOT_COMPARE = 2
# For fewer bytes, a JVM that starts quickly is done before one that optimises more.
QUICK_BELOW_BYTES = 512 * 1024 * 1024


@click.command(name="audit")
@click.option(
    "--log-dirs",
    "kind",
    flag_value="log-dirs",
    default="log-dirs",
    help="DIRECTORIES are log directories.  [default]",
)
@click.option(
    "--headers", "kind", flag_value="headers", help="DIRECTORIES hold what audit-headers wrote."
)
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False)
)
@click.option("--name", "names", multiple=True, help="The name of each log directory, in order.")
@click.option(
    "--check-crcs", is_flag=True, help="Read every byte and check the CRCs, which finds bit rot."
)
@click.option(
    "--copies", type=AT_LEAST_ONE, help="The number of copies that each partition must have."
)
@click.option("--exact", is_flag=True, help="Compare compacted partitions batch by batch too.")
@click.option(
    "--compacted", is_flag=True, help="Compare the last record of each key in every partition."
)
@click.option(
    "--journal",
    "journals",
    multiple=True,
    type=click.Path(exists=True),
    help="An event journal, or a directory with some, to find truncations in; may be repeated.",
)
@click.option(
    "--checkpoint",
    type=NEW_DIRECTORY,
    help="Judge as a stream, and keep in this directory how far it has come.",
)
@click.option(
    "--follow", is_flag=True, help="With --checkpoint, go on as the logs grow, until Ctrl-C."
)
@click.option(
    "--settle",
    "settle_ms",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="With --follow, how many milliseconds a replica may lack what another one holds.",
)
@INTERNAL
@MASTER
@output_option
def command(
    *,
    kind: str,
    directories: tuple[str, ...],
    names: tuple[str, ...],
    check_crcs: bool,
    copies: int | None,
    exact: bool,
    compacted: bool,
    journals: tuple[str, ...],
    checkpoint: Path | None,
    follow: bool,
    settle_ms: int,
    internal: bool,
    master: str | None,
    outputs: tuple[str, ...],
) -> None:
    """Check that the replicas in DIRECTORIES hold the same batches.

    Only the batch headers are compared, and the batches where the headers differ. Consumer
    groups that had committed past an offset that was truncated later are reported too. With
    --checkpoint, only what is new since the last run is read. The exit code is 0 if all are the same, 1 if some differ, 2 if some could not be compared.
    """
    from replication.verify.comparing import Rules

    with extra("spark", "understudy pipeline audit"):
        from pipeline.audit.groups import group_losses
        from pipeline.audit.job import audit
        from pipeline.audit.results import AuditReport
        from pipeline.audit.streaming import audit_stream
        from pipeline.session import get_session
    if exact and compacted:
        raise click.UsageError("--exact and --compacted contradict each other")
    if compacted and kind == "headers":
        raise click.UsageError("--compacted needs the records, and --headers have none")
    if checkpoint is not None and kind == "headers":
        raise click.UsageError("--checkpoint is for log directories, which grow")
    if follow and checkpoint is None:
        raise click.UsageError("--follow needs --checkpoint")
    if journals and kind == "headers":
        raise click.UsageError("--journal needs the commits of groups, and --headers have none")
    if names and len(names) != len(directories):
        raise click.UsageError("give --name once for each directory, or not at all")
    rules = Rules(copies=copies, exact=exact, compacted=compacted)
    quick = kind == "log-dirs" and _bytes_in(directories) < QUICK_BELOW_BYTES
    session, progress = get_session(master=master, quick=quick), SparkProgress()
    try:
        source = _source(session, kind, directories, names, check_crcs=check_crcs)
        with progress.watching(session):
            if checkpoint is None:
                audits = audit(source, rules=rules, on_step=progress.step)
            else:
                audits = audit_stream(
                    session,
                    _named(directories, names),
                    checkpoint,
                    rules=rules,
                    check_crcs=check_crcs,
                    follow=follow,
                    settle_ms=settle_ms,
                    on_report=partial(_show_progress, outputs) if follow else _show_nothing,
                )
            groups = None
            if kind == "log-dirs" and not follow:
                groups = group_losses(session, source, directories, journals, on_step=progress.step)
    except (UnderstudyError, StorageError, OSError) as error:
        tell(f"understudy: cannot compare: {error}")
        sys.exit(COULD_NOT_COMPARE)
    deliver("audit", AuditReport(audits, groups), outputs, internal=internal)
    sys.exit(0 if all(one.same for one in audits) else 1)


def _bytes_in(directories: Sequence[str]) -> int:
    logs = (log for directory in directories for log in Path(directory).glob("*/*.log"))
    return sum(log.stat().st_size for log in logs)


def _source(
    session: Any,
    kind: str,
    directories: Sequence[str],
    names: Sequence[str],
    *,
    check_crcs: bool,
) -> "HeaderSource":
    if kind == "headers":
        from pipeline.audit.job import of_headers

        if names or check_crcs:
            raise click.UsageError(
                "with --headers, give --name and --check-crcs to audit-headers instead"
            )
        return of_headers(session, directories)
    from pipeline.audit.job import of_directories

    return of_directories(session, _named(directories, names), check_crcs=check_crcs)


def _named(directories: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the directories by the names of their replicas."""
    from pipeline.audit.replicas import directory_names

    return dict(zip(names or directory_names(directories), directories, strict=True))


def _show_nothing(audits: Sequence["PartitionAudit"], anew: Sequence["PartitionAudit"]) -> None: ...


def _show_progress(
    outputs: Sequence[str], audits: Sequence["PartitionAudit"], anew: Sequence["PartitionAudit"]
) -> None:
    """Show what differs as of this micro-batch, and write the report so far into files."""
    from pipeline.audit.results import AuditReport, lines

    if any(output in SHOWN for output in outputs):
        for line in lines(AuditReport([each for each in anew if not each.same])):
            show_line(line)
    files = [output for output in outputs if output not in SHOWN]
    deliver("audit", AuditReport(audits), files, quiet=True)
