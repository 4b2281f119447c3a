"""`understudy dump-log`: the contents of log files, as kafka-dump-log prints them, and more.

The text is Kafka's own, for programs that parse it; JSON lines and Arrow are for other programs. A
dump continues after damage, which the exit code shows:

    0   no damage    1   damage, reported on standard error    2   a wrong command line
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from replication.cli.options import AT_LEAST_ZERO
from replication.cli.output import JSON, output_option, show_line, tell
from replication.cli.progress import progress
from replication.extras import extra
from replication.wire.as_json import control_record_json, metadata_record_json
from storage.filesystem import OsFileSystem
from storage.tools.dump import DumpOptions, dump, files_in, is_damage
from storage.tools.dump.entries import BatchEntry, Entry, FileStarted
from storage.tools.dump.json_lines import json_line
from storage.tools.dump.text import Findings, TextOptions, error_line, line


@click.command(name="dump-log")
@click.option("--files", required=True, help="Files or directories, separated by commas.")
@click.option("--print-data-log", is_flag=True, help="Show keys and values.")
@click.option("--deep-iteration", is_flag=True, help="Show each record.")
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="Make only the checks that decide whether an index is rebuilt.",
)
@click.option(
    "--verify-index-only", is_flag=True, help="Check indexes without printing their entries."
)
@click.option(
    "--max-bytes",
    type=AT_LEAST_ZERO,
    help="The largest number of bytes to read from each .log file.",
)
@click.option(
    "--skip-record-metadata", is_flag=True, help="Show only the keys and values of records."
)
@click.option(
    "--cluster-metadata-decoder",
    is_flag=True,
    help="Show records as those of the metadata log, in Kafka's JSON.",
)
@output_option(also=["text", "arrow"])
def command(
    *,
    files: str,
    print_data_log: bool,
    deep_iteration: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_bytes: int | None,
    skip_record_metadata: bool,
    cluster_metadata_decoder: bool,
    output: str,
) -> None:
    """Show the contents and the damage of log files.

    The files are segments, indexes, producer snapshots, aborted transactions and checkpoints.
    --output arrow writes an Arrow stream of the .log files: a row for each batch, or with
    --print-data-log for each record.
    """
    # A link on the command line is followed; one found in a directory is not.
    named = [path for path in files.split(",") if path]
    paths = [str(Path(path).resolve()) if Path(path).is_symlink() else path for path in named]
    print_data_log |= cluster_metadata_decoder
    deep = deep_iteration or print_data_log
    options = DumpOptions(
        deep_iteration=deep,
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
        max_bytes=max_bytes,
    )
    shown = TextOptions(
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        control_json=control_record_json,
        payload_json=metadata_record_json if cluster_metadata_decoder else None,
    )
    if output == "arrow":
        damaged = print_arrow(paths, deep=deep, max_bytes=max_bytes)
    elif output == JSON:
        damaged = print_json(watched(dump(OsFileSystem(), paths, options), paths), shown)
    else:
        damaged = print_text(watched(dump(OsFileSystem(), paths, options), paths), shown)
    sys.exit(1 if damaged else 0)


def watched(entries: Iterable[Entry], paths: list[str]) -> Iterator[Entry]:
    """Yield `entries`, and show the progress in bytes."""
    sizes = {file: _size(file) for path in paths for file in files_in(OsFileSystem(), path)}
    total, before, size = sum(sizes.values()), 0, 0
    with progress("bytes", beside_output=True) as bar:
        for entry in entries:
            if isinstance(entry, FileStarted):
                before, size = before + size, sizes.get(entry.path, 0)
            elif isinstance(entry, BatchEntry):
                bar.update(before + entry.position, total)
            yield entry


def _size(path: str) -> int:
    """Return the size of a file; 0 if there is none, which the dump reports."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def print_text(entries: Iterable[Entry], options: TextOptions) -> bool:
    """Print entries as text; return whether anything was damaged."""
    findings, damaged = Findings(), False
    for entry in entries:
        damaged |= is_damage(entry)
        findings.note(entry)
        if (text := line(entry, options)) is not None:
            show_line(text)
        if (text := error_line(entry)) is not None:
            tell(text)
    for text in findings.lines():
        tell(text)
    return damaged


def print_json(entries: Iterable[Entry], options: TextOptions) -> bool:
    damaged = False
    for entry in entries:
        damaged |= is_damage(entry)
        show_line(json_line(entry, options))
    return damaged


def print_arrow(paths: list[str], *, deep: bool, max_bytes: int | None) -> bool:
    with extra("arrow", "--output arrow"):
        import pyarrow as pa

        from storage.tools.dump import arrow
    file_system, damaged = OsFileSystem(), False
    logs = list(_logs(paths))
    rows = arrow.arrow_records if deep else arrow.arrow_batches
    found = rows(file_system, logs, max_bytes)
    schema = arrow.RECORD_SCHEMA if deep else arrow.BATCH_SCHEMA
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
        for item in found:
            if isinstance(item, pa.RecordBatch):
                writer.write_batch(item)
            else:
                damaged = True
                tell(str(item))
    return damaged


def _logs(paths: list[str]) -> Iterator[str]:
    """Yield the `.log` files of `paths`; raise UsageError for another file that is named."""
    for path in paths:
        for file in files_in(OsFileSystem(), path):
            if file.endswith(".log"):
                yield file
            elif file == path:
                raise click.UsageError(f"--output arrow needs .log files; {path} is another one")
