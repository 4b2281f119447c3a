"""The events of journal files as rows, without Spark.

One row for each event, with the fields that reports use as columns: null where an event has
no such field. `node` is the node that reported it, `broker` the broker that it is about.

The decisions in a metadata log become rows, too: a controller of Apache Kafka has no other journal
(`metadata_log.py`).

Events that this program cannot read become rows of two names that no event has:

    journal_skipped   an event of a newer version, or one whose name is unknown
    journal_damaged   a file that is not the last of its journal, and does not read to its end; or
                      a metadata log
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from pipeline.journals.metadata_log import DIRECTORY_NAME, read_metadata_log
from replication.errors import MetadataError, UnderstudyError
from replication.events import EVENTS
from replication.observe.journal import journal_files, read_records, read_whole
from storage.filesystem import FileSystem
from storage.types import TopicPartition

JOURNAL_NAME: Final = "events.journal"
SKIPPED: Final = "journal_skipped"
DAMAGED: Final = "journal_damaged"

_LONG, _INT, _INTS = pa.int64(), pa.int32(), pa.list_(pa.int32())
SCHEMA: Final = pa.schema(
    [
        ("at_ms", _LONG),
        ("node", _INT),
        ("number", _LONG),  # of the event in its file, which orders the events of one clock tick
        ("name", pa.string()),
        ("topic", pa.string()),
        ("partition", _INT),
        ("broker", _INT),
        ("leader", _INT),
        ("previous_leader", _INT),
        ("leader_epoch", _INT),
        ("partition_epoch", _INT),
        ("isr", _INTS),
        ("high_watermark", _LONG),
        ("log_end_offset", _LONG),
        ("leader_epoch_start_offset", _LONG),
        ("from_offset", _LONG),
        ("to_offset", _LONG),
        ("lag", _LONG),
        ("lag_ms", _LONG),
        ("since_heartbeat_ms", _LONG),
        ("replication_factor", _INT),
        ("cause", pa.string()),
        ("reason", pa.string()),
    ]
)

_VERSIONS: Final = {event.name: event.version for event in EVENTS}
_FIELDS: Final = frozenset(SCHEMA.names[6:])
_TEXTS: Final = frozenset({"cause", "reason"})
_MOST_ROWS: Final = 65_536


class NoJournalError(UnderstudyError):
    """An error: there is no journal at the given paths."""


def find_journals(files: FileSystem, paths: Sequence[str]) -> list[str]:
    """Return every journal file at `paths`, each a journal or a directory with some.

    Journals are looked for in a directory and one level below: a path may be a broker's data
    directory, that of a whole cluster, or `events.journal` itself. A metadata log counts where it is
    named itself, by its directory: most clusters have their controller's journal.
    """
    found: list[str] = []
    for path in paths:
        if _is_metadata_log(path):
            found.append(path)
            continue
        if not files.is_directory(path):
            if not files.exists(path):
                raise NoJournalError(f"{path} is not there")
            found += journal_files(files, path)
            continue
        below = [f"{path}/{name}" for name in files.list_directory(path)]
        for directory in [path, *(each for each in below if files.is_directory(each))]:
            found += journal_files(files, f"{directory}/{JOURNAL_NAME}")
    if not found:
        raise NoJournalError(f"no {JOURNAL_NAME} in {', '.join(paths)}")
    return list(dict.fromkeys(found))


def _is_metadata_log(path: str) -> bool:
    return os.path.basename(path.rstrip("/")) == DIRECTORY_NAME  # noqa: PTH119 - a string here


def rows_of(files: FileSystem, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the events of journal files in the columns of `SCHEMA`."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        of_path = _rows_of_metadata_log if _is_metadata_log(path) else _rows_of_file
        for row in of_path(files, path):
            rows.append(row)
            if len(rows) == _MOST_ROWS:
                yield _batch(rows)
                rows = []
    if rows:
        yield _batch(rows)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _rows_of_file(files: FileSystem, path: str) -> Iterator[dict[str, Any]]:
    try:
        data = _contents(files, path)
    except OSError as error:
        cause = f"{path}: {error.strerror}"
        yield {"at_ms": 0, "node": -1, "number": 0, "name": DAMAGED, "cause": cause}
        return
    whole, at_ms, node, number = 0, 0, -1, -1
    for number, ((name, version, at_ms, node, fields), whole) in enumerate(read_records(data)):  # noqa: B007
        row = {"at_ms": at_ms, "node": node, "number": number, "name": name}
        if version > _VERSIONS.get(name, 0):
            yield row | {"name": SKIPPED, "cause": f"{name} v{version}"}
        else:
            yield row | _columns(fields)
    # The end of a journal's last file may be torn by a crash, or be written at this moment.
    if whole < len(data) and os.path.basename(path) != JOURNAL_NAME:  # noqa: PTH119 - a string here
        cause = f"{len(data) - whole} bytes of {path} cannot be read"
        row = {"at_ms": at_ms, "node": node, "number": number + 1, "name": DAMAGED}
        yield row | {"cause": cause}


def _rows_of_metadata_log(files: FileSystem, path: str) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        for number, entry in enumerate(read_metadata_log(files, path)):
            row = {"at_ms": entry.at_ms, "node": entry.broker, "number": number}
            fields = attrs.asdict(entry.event, recurse=False)
            yield row | {"name": entry.event.name} | _columns(fields)
    except (MetadataError, OSError) as error:
        cause = f"{path} cannot be read: {error}"
        yield {"at_ms": 0, "node": -1, "number": number + 1, "name": DAMAGED, "cause": cause}


def _contents(files: FileSystem, path: str) -> bytes:
    file = files.open_for_reading(path)
    try:
        return read_whole(file)
    finally:
        file.close()


def _columns(fields: dict[str, Any]) -> dict[str, Any]:
    # The leader of a group is a text: the id of a member, not of a broker.
    row = {
        name: value
        for name, value in fields.items()
        if name in _FIELDS and isinstance(value, str) == (name in _TEXTS)
    }
    where = fields.get("partition")
    if isinstance(where, list | TopicPartition):
        row["topic"], row["partition"] = where
    elif "topic" in fields:
        row["topic"] = fields["topic"]
    return row
