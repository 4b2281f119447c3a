"""The records of one task as Parquet files, one for each topic and date, written in a worker.

    task 7 of run 3   orders-0 [400, 900), returns-1 [7, 12)
      topic=orders/date=2026-11-20/00000003-00007.parquet
      topic=orders/date=2026-11-21/00000003-00007.parquet
      topic=returns/date=2026-11-21/00000003-00007.parquet

Rule 1: the names of a task's files come from its run and number. If a worker dies, the task that
is repeated writes the same files in the same places.

Rule 2: the date is that of the record's timestamp, in UTC. A record without a timestamp has the
date `__HIVE_DEFAULT_PARTITION__`, which is Hive's name for null.

Rule 3: row groups are large, because readers want them so: batches are gathered first.

Rule 4: columns whose values hardly repeat have no dictionary. Offsets and times are written as
differences; values as all lengths and then all bytes, which a codec compresses sooner. Values have
no statistics: nearly every search would lie between the least and the greatest.
"""

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.export.deserialisers import UNCHANGED, Deserialiser
from pipeline.source.columns import HEADERS, FormatColumns

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
ROWS_PER_GROUP: Final = 131_072

# The columns that are read beside keys and values; topic and date name directories.
READ: Final = ("topic", "partition", "offset", "timestamp", "timestampType")


@attrs.frozen(kw_only=True)
class Format:
    """The contents of the files: how keys and values are converted, headers, compression."""

    key: Deserialiser
    value: Deserialiser
    headers: bool
    compression: str
    formats: tuple[FormatColumns, ...] = ()
    """Keys or values whose fields are columns, instead of a deserialiser."""
    partition_columns: bool = False
    """Whether the files have the columns topic and date, which name their directories, too."""

    @property
    def deserialised(self) -> set[str]:
        """The parts of a record that a deserialiser converts: `key`, `value`."""
        named = {"key": self.key, "value": self.value}
        return {part for part, deserialiser in named.items() if deserialiser.name != UNCHANGED}

    def read_columns(self) -> list[str]:
        return [*self._payload(), *READ, *([HEADERS] if self.headers else [])]

    def _payload(self) -> dict[str, pa.DataType]:
        """Return the columns of keys and values."""
        instead = {each.part: each.types for each in self.formats}
        own = {"key": self.key.type, "value": self.value.type}
        parts = [instead.get(part, {part: kind}) for part, kind in own.items()]
        return parts[0] | parts[1]

    def schema(self) -> pa.Schema:
        fields = [*self._payload().items(), ("partition", pa.int32())]
        fields += [("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))]
        fields += [("timestampType", pa.int32())]
        if self.headers:
            header = pa.struct([("key", pa.string()), ("value", pa.binary())])
            fields.append((HEADERS, pa.list_(header)))
        if self.partition_columns:
            fields += [("topic", pa.string()), ("date", pa.date32())]
        return pa.schema(fields)

    def parquet(self) -> dict[str, Any]:
        """Return pyarrow's options for writing: rule 4."""
        schema = self.schema()
        columns = _leaves(schema)
        rising = dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED")
        bulky = {}
        if "value" in schema.names and schema.field("value").type in (pa.binary(), pa.string()):
            bulky["value"] = "DELTA_LENGTH_BYTE_ARRAY"
        return {
            "compression": self.compression,
            "column_encoding": rising | bulky,
            "use_dictionary": [name for name in columns if name not in rising | bulky],
            "write_statistics": [name for name in columns if name not in bulky],
        }


@attrs.frozen(kw_only=True)
class WrittenFile:
    """A file that was written; `path` is relative to the export's directory."""

    path: str
    topic: str
    date: str | None
    rows: int
    size: int


@attrs.define
class TaskWriter:
    """The writer of a task's record batches; `close` returns the files."""

    root: Path
    name: str
    format: Format
    _files: "dict[tuple[str, str | None], _File]" = attrs.field(factory=dict, init=False)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write records of one partition, with the columns of `Format.read_columns`."""
        if not batch.num_rows:
            return
        topic = batch.column("topic")[0].as_py()
        table = pa.Table.from_batches([self._decoded(batch)])
        for date, rows in _by_date(batch.column("timestamp")):
            self._file(topic, date).add(table if rows is None else table.take(rows))

    def close(self) -> list[WrittenFile]:
        return [
            WrittenFile(
                path=str(file.path.relative_to(self.root)),
                topic=topic,
                date=date,
                rows=file.rows,
                size=file.close(),
            )
            for (topic, date), file in sorted(self._files.items(), key=str)
        ]

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        def where(what: str, row: int) -> str:
            column = {name: batch.column(name)[row].as_py() for name in READ[:3]}
            return f"{column['topic']}-{column['partition']} offset {column['offset']}, its {what}"

        decoded = {each.part for each in self.format.formats}
        made = {
            part: deserialiser.convert(batch.column(part), partial(where, part))
            for part, deserialiser in (("key", self.format.key), ("value", self.format.value))
            if part not in decoded
        }
        if self.format.partition_columns:
            made["date"] = _dates(batch.column("timestamp"))
        schema = self.format.schema()
        columns = [made[n] if n in made else batch.column(n) for n in schema.names]
        return pa.RecordBatch.from_arrays(
            [_cast(a, f) for a, f in zip(columns, schema, strict=True)], schema=schema
        )

    def _file(self, topic: str, date: str | None) -> "_File":
        if (topic, date) not in self._files:
            # A topic's name holds letters, digits, dots, dashes and underscores: nothing to escape.
            place = self.root / f"topic={topic}" / f"date={date or NO_DATE}"
            place.mkdir(parents=True, exist_ok=True)
            self._files[topic, date] = _File(place / f"{self.name}.parquet", self.format)
        return self._files[topic, date]


@attrs.define
class _File:
    path: Path
    format: Format
    rows: int = 0
    _waiting: list[pa.Table] = attrs.field(factory=list, init=False)
    _waiting_rows: int = attrs.field(default=0, init=False)
    _writer: Any = attrs.field(default=None, init=False)

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self.rows += table.num_rows
        if self._waiting_rows >= ROWS_PER_GROUP:
            self._flush()

    def close(self) -> int:
        """Make the file appear, whole, and return its size."""
        self._flush()
        self._writer.close()
        _begin_to_sync(self._unfinished)
        self._unfinished.replace(self.path)
        return self.path.stat().st_size

    @property
    def _unfinished(self) -> Path:
        """The file until it is whole; two workers with the same task have a file each."""
        return self.path.with_name(f".{self.path.name}.{os.getpid()}")

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._unfinished, self.format.schema(), **self.format.parquet()
            )
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROWS_PER_GROUP)
        self._waiting, self._waiting_rows = [], 0


def _begin_to_sync(path: Path) -> None:
    """Start writing a file to the disk, so that a later sync waits for less."""
    if sys.platform == "linux":
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _by_date(timestamps: pa.Array) -> Iterator[tuple[str | None, pa.Array | None]]:
    """Yield each date and its rows, where None stands for all rows."""
    bounds = pc.min_max(timestamps)
    dates = _dates(pa.array([bounds["min"], bounds["max"]], timestamps.type))
    if len(pc.unique(dates)) > 1:
        dates = _dates(timestamps)
    kinds = pc.unique(dates)
    for kind in kinds:
        rows = None
        if len(kinds) > 1:
            chosen = pc.is_null(dates) if not kind.is_valid else pc.equal(dates, kind)
            rows = pc.indices_nonzero(chosen)
        yield (f"{kind.as_py():%Y-%m-%d}" if kind.is_valid else None), rows


def _dates(timestamps: pa.Array) -> pa.Array:
    days = pc.floor_temporal(timestamps, unit="day")
    return pc.if_else(pc.less(timestamps, pa.scalar(0, timestamps.type)), None, days)


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the names of Parquet's columns, of nested columns the leaves."""
    file = pa.BufferOutputStream()
    pq.ParquetWriter(file, schema).close()
    found = pq.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [found.column(number).path for number in range(len(found))]


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    return array if array.type == field.type else array.cast(field.type)
