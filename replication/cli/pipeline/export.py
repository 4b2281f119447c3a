"""`understudy pipeline export`: topics as Parquet, Delta or Iceberg, each record once."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from replication.cli.options import NEW_DIRECTORY
from replication.cli.output import OUTPUT, show_answer
from replication.cli.pipeline.jobs import MASTER, SparkProgress
from replication.errors import ConfigError
from replication.extras import extra

if TYPE_CHECKING:
    from pipeline.export.target import Target
    from pipeline.export.writing import Format

DESERIALISER = "bytes, string, int, long, ..., or module:function"


@click.command(name="export")
@click.argument("log_dirs", nargs=-1, type=click.Path(exists=True, file_okay=False))
@click.option("--bootstrap-servers", help="Live brokers, instead of log directories.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="A topic to export; may be repeated.  [default: all in LOG_DIRS]",
)
@click.option(
    "--to",
    "directory",
    required=True,
    type=NEW_DIRECTORY,
    help="The directory of the files or the table; it is created if needed.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Whether to write Parquet files, a Delta table or an Iceberg table.",
)
@click.option(
    "--key", default="bytes", show_default=True, help=f"How to read keys: {DESERIALISER}."
)
@click.option(
    "--value", default="bytes", show_default=True, help=f"How to read values: {DESERIALISER}."
)
@click.option("--headers", is_flag=True, help="Add a column of headers.")
@click.option(
    "--read-uncommitted", is_flag=True, help="Export records of aborted transactions too."
)
@click.option(
    "--compression", default="zstd", show_default=True, help="The codec of the Parquet files."
)
@MASTER
@click.option(
    "-X",
    "properties",
    multiple=True,
    metavar="OPTION=VALUE",
    help="An option of the data source, such as kafka.security.protocol=SSL.",
)
@OUTPUT
def command(
    *,
    log_dirs: tuple[str, ...],
    bootstrap_servers: str | None,
    topics: tuple[str, ...],
    directory: Path,
    kind: str,
    key: str,
    value: str,
    headers: bool,
    read_uncommitted: bool,
    compression: str,
    master: str | None,
    properties: tuple[str, ...],
    output: str,
) -> None:
    """Export topics as Parquet files, a Delta table or an Iceberg table, by topic and date.

    Each run adds the records that were committed since the previous one. Each record is there
    once, even if a run was killed. LOG_DIRS are the log directories of one or more brokers.
    """
    with extra("spark", "understudy pipeline export"):
        from pipeline.export.deserialisers import Deserialiser
        from pipeline.export.job import export
        from pipeline.export.source import RESERVED
        from pipeline.export.writing import Format
        from pipeline.session import get_session
        from pipeline.source.columns import formats_for
        from pipeline.source.options import parse_read_options
    options = dict(_option(each) for each in properties)
    options |= _source_options(log_dirs, bootstrap_servers, topics)
    isolation = "read_uncommitted" if read_uncommitted else "read_committed"
    options.setdefault("kafka.isolation.level", isolation)
    made = Format(
        key=Deserialiser(key),
        value=Deserialiser(value),
        headers=headers,
        compression=compression,
        formats=formats_for(parse_read_options(options, streaming=False), reserved=RESERVED),
        partition_columns=kind == "iceberg",
    )
    target = _target(kind, directory.resolve(), made)
    session, progress = get_session(master=master), SparkProgress()
    with progress.watching(session):
        done = export(session, options, target, made, on_step=progress.step)
    lines = [
        *(f"{tp}: offsets {a} to {b} (exclusive)" for tp, (a, b) in sorted(done.offsets.items())),
        f"{done.records:,} records in {len(done.files)} files below {directory}",
    ]
    show_answer(output, done.to_json(), lines)


def _option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"-X {text}: expected OPTION=VALUE")
    return name.strip(), value.strip()


def _source_options(
    log_dirs: tuple[str, ...], bootstrap_servers: str | None, topics: tuple[str, ...]
) -> dict[str, str]:
    if bool(log_dirs) == bool(bootstrap_servers):
        raise click.UsageError("give either LOG_DIRS or --bootstrap-servers")
    if bootstrap_servers and not topics:
        raise click.UsageError("give --topic: a live cluster is not exported as a whole")
    # Internal topics are left out.
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": "(?!__).*"}
    if bootstrap_servers:
        return chosen | {"kafka.bootstrap.servers": bootstrap_servers}
    return chosen | {"path": ",".join(log_dirs)}


def _target(kind: str, directory: Path, made: "Format") -> "Target":
    if kind == "parquet":
        from pipeline.export.parquet import ParquetTarget

        return ParquetTarget(directory)
    if kind == "iceberg":
        with extra("iceberg", "--format iceberg"):
            from pipeline.export.iceberg import IcebergTarget

        return IcebergTarget(directory, made)
    with extra("delta", "--format delta"):
        from pipeline.export.delta import DeltaTarget
    return DeltaTarget(directory, made)
