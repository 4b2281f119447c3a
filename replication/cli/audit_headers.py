"""`understudy audit-headers LOG_DIR`: write the headers of a broker's batches as Parquet."""

from pathlib import Path

import click

from replication.cli.options import NEW_DIRECTORY
from replication.cli.output import OUTPUT, show_answer
from replication.cli.progress import progress
from replication.extras import extra
from storage.filesystem import OsFileSystem


@click.command(name="audit-headers")
@click.argument("log_directory", type=click.Path(exists=True, file_okay=False))
@click.option("--name", required=True, help="The name of this replica in the audit.")
@click.option(
    "--to",
    required=True,
    type=NEW_DIRECTORY,
    help="The directory to write replicas/ and batches/ to.",
)
@click.option(
    "--check-crcs", is_flag=True, help="Read every byte and check the CRCs, which finds bit rot."
)
@OUTPUT
def command(log_directory: str, name: str, to: Path, *, check_crcs: bool, output: str) -> None:
    """Write the headers of a broker's batches, for an audit elsewhere.

    A header takes about 60 bytes before compression. Collect the files of all brokers, and run
    `understudy pipeline audit --headers` over them.
    """
    with extra("arrow", "writing Parquet"):
        from pipeline.audit.parquet import write_headers
    if "/" in name or name.startswith("."):
        raise click.UsageError(f"--name {name} cannot be a file's name")
    with progress("replicas") as bar:
        rows = write_headers(
            OsFileSystem(),
            log_directory,
            name=name,
            to=to,
            check_crcs=check_crcs,
            on_replica=bar.update,
        )
    facts = {"name": name, "batches": rows, "to": str(to)}
    show_answer(output, facts, [f"{rows:,} batches of {name} in {to}"])
