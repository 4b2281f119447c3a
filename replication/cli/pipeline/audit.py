"""`understudy pipeline audit`: check that the replicas hold the same batches."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replication.cli.options import AT_LEAST_ONE
from replication.cli.output import tell
from replication.cli.pipeline.jobs import MASTER, SparkProgress, deliver, output_option
from replication.errors import UnderstudyError
from replication.extras import extra
from storage.errors import StorageError

if TYPE_CHECKING:
    from pipeline.audit.job import HeaderSource

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
    master: str | None,
    outputs: tuple[str, ...],
) -> None:
    """Check that the replicas in DIRECTORIES hold the same batches.

    Only the batch headers are compared, and the batches where the headers differ. The exit
    code is 0 if all are the same, 1 if some differ, 2 if some could not be compared.
    """
    from replication.verify.comparing import Rules

    with extra("spark", "understudy pipeline audit"):
        from pipeline.audit.job import audit
        from pipeline.session import get_session
    if exact and compacted:
        raise click.UsageError("--exact and --compacted contradict each other")
    if compacted and kind == "headers":
        raise click.UsageError("--compacted needs the records, and --headers have none")
    if names and len(names) != len(directories):
        raise click.UsageError("give --name once for each directory, or not at all")
    rules = Rules(copies=copies, exact=exact, compacted=compacted)
    quick = kind == "log-dirs" and _bytes_in(directories) < QUICK_BELOW_BYTES
    session, progress = get_session(master=master, quick=quick), SparkProgress()
    try:
        source = _source(session, kind, directories, names, check_crcs=check_crcs)
        with progress.watching(session):
            audits = audit(source, rules=rules, on_step=progress.step)
    except (UnderstudyError, StorageError, OSError) as error:
        tell(f"understudy: cannot compare: {error}")
        sys.exit(COULD_NOT_COMPARE)
    deliver("audit", audits, outputs)
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
    from pipeline.audit.replicas import directory_names

    called = names or directory_names(directories)
    return of_directories(
        session, dict(zip(called, directories, strict=True)), check_crcs=check_crcs
    )
