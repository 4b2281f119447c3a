"""`understudy verify A B ...`: are log directories the same?"""

import json
import sys

import click

from replication.verify import CannotCompareError, verify_directories
from storage.errors import StorageError
from storage.filesystem import OsFileSystem

COULD_NOT_COMPARE = 2


@click.command(name="verify")
@click.argument("directories", nargs=-1, required=True, type=click.Path())
@click.option("--output", type=click.Choice(["table", "json"]), default="table")
def command(directories: tuple[str, ...], output: str) -> None:
    """Compare the replicas in DIRECTORIES, byte for byte.

    For each partition: same, or the first offset where they part, with both epochs.
    Exit code 0 same, 1 they differ, 2 they could not be compared.
    """
    if len(directories) < 2:
        raise click.UsageError("give at least two log directories")
    try:
        comparison = verify_directories(OsFileSystem(), list(directories))
    except (CannotCompareError, OSError, StorageError) as error:
        click.echo(f"understudy: cannot compare: {error}", err=True)
        sys.exit(COULD_NOT_COMPARE)
    if output == "json":
        click.echo(json.dumps(comparison.to_dict(), indent=2))
    else:
        for result in comparison.partitions:
            click.echo(str(result))
    sys.exit(0 if comparison.same else 1)
