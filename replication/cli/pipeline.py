"""`understudy pipeline`: jobs on Spark over the brokers' log directories."""

import json
import sys

import attrs
import click


@click.group(name="pipeline")
def command() -> None:
    """Jobs on Spark over the brokers' log directories."""


@command.command()
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False)
)
@click.option("--name", "names", multiple=True, help="What to call each directory, in their order.")
@click.option("--master", help="Spark's master URL; all cores of this machine by default.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table")
def audit(
    directories: tuple[str, ...], names: tuple[str, ...], master: str | None, output: str
) -> None:
    """Do the replicas in DIRECTORIES hold the same batches? Exit code 1 where they do not."""
    try:
        from pipeline.audit import audit_directories
        from pipeline.session import get_session
    except ImportError as error:
        raise click.ClickException("install the Spark extra: understudy[spark]") from error
    if names and len(names) != len(directories):
        raise click.UsageError("give --name once for each directory, or not at all")
    rows = audit_directories(get_session(master=master), directories, names or None)
    if output == "json":
        click.echo(json.dumps([attrs.asdict(row) for row in rows], indent=2))
    else:
        for row in rows:
            click.echo(str(row))
    sys.exit(0 if all(row.same for row in rows) else 1)
