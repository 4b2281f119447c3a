"""In a worker: the records of one task as Parquet files, one for each topic and date.

    task 7 of run 3   orders-0 [400, 900), returns-1 [7, 12)
      topic=orders/date=2026-11-20/00000003-00007.parquet
      topic=orders/date=2026-11-21/00000003-00007.parquet
      topic=returns/date=2026-11-21/00000003-00007.parquet

Rule 1: a task's files have the names that its run and number give. Done again, after a worker
died, it writes the same files in the same places.

Rule 2: the date is that of the record's timestamp, in UTC. A record that has none is of no
date: `__HIVE_DEFAULT_PARTITION__`, as Hive has named it ever since.

Rule 3: a row group is large, as readers want it: batches are gathered until they are.

Rule 4: no dictionary is tried where hardly anything is there twice. Offsets and times are written
as differences; of values all lengths, and then all bytes, which a codec is through with sooner.
The least and the greatest of such values are not looked for: nearly all would be between them.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.export.deserialisers import Deserialiser

NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
ROWS_PER_GROUP: Final = 131_072

# What is read of a record, in the order of the files' columns; topic and date are their places.
READ: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"


@attrs.frozen(kw_only=True)
class Format:
    """What the files hold."""

    key: Deserialiser
    value: Deserialiser
    headers: bool
    compression: str

    def read_columns(self) -> list[str]:
        return [*READ, *([HEADERS] if self.headers else [])]

    def schema(self) -> pa.Schema:
        fields = [("key", self.key.type), ("value", self.value.type), ("partition", pa.int32())]
        fields += [("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))]
        fields += [("timestampType", pa.int32())]
        if self.headers:
            header = pa.struct([("key", pa.string()), ("value", pa.binary())])
            fields.append((HEADERS, pa.list_(header)))
        return pa.schema(fields)

    def parquet(self) -> dict[str, Any]:
        """How pyarrow is to write it: rule 4."""
        schema = self.schema()
        columns = _leaves(schema)
        rising = dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED")
        bulky = {}
        if schema.field("value").type in (pa.binary(), pa.string()):
            bulky["value"] = "DELTA_LENGTH_BYTE_ARRAY"
        return {
            "compression": self.compression,
            "column_encoding": rising | bulky,
            "use_dictionary": [name for name in columns if name not in rising | bulky],
            "write_statistics": [name for name in columns if name not in bulky],
        }


@attrs.frozen(kw_only=True)
class Written:
    """One file, below the directory that it was written to."""

    path: str
    topic: str
    date: str | None
    rows: int
    size: int


@attrs.define
class TaskWriter:
    """Takes a task's record batches; `close` says which files there are."""

    root: Path
    name: str
    format: Format
    _files: "dict[tuple[str, str | None], _File]" = attrs.field(factory=dict, init=False)

    def write(self, batch: pa.RecordBatch) -> None:
        """Records of one partition, with the columns of `Format.read_columns`."""
        if not batch.num_rows:
            return
        topic = batch.column("topic")[0].as_py()
        table = pa.Table.from_batches([self._decoded(batch)])
        for date, rows in _by_date(batch.column("timestamp")):
            self._file(topic, date).add(table if rows is None else table.take(rows))

    def close(self) -> list[Written]:
        return [
            Written(
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
            column = {name: batch.column(name)[row].as_py() for name in READ[2:5]}
            return f"{column['topic']}-{column['partition']} offset {column['offset']}, its {what}"

        made = {
            "key": self.format.key.convert(batch.column("key"), lambda row: where("key", row)),
            "value": self.format.value.convert(
                batch.column("value"), lambda row: where("value", row)
            ),
        }
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
        """The size of the file, which is there and whole from here on."""
        self._flush()
        self._writer.close()
        _begin_to_sync(self._unfinished)
        self._unfinished.replace(self.path)
        return self.path.stat().st_size

    @property
    def _unfinished(self) -> Path:
        """Two workers may do the same task at once: each has a file of its own."""
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
    """The disk is at it while the worker goes on: who syncs the file later waits for less."""
    if sys.platform == "linux":
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _by_date(timestamps: pa.Array) -> Iterator[tuple[str | None, pa.Array | None]]:
    """Each date and its rows; None for all of them."""
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
    """What Parquet calls its columns; of nested ones, those that hold something."""
    file = pa.BufferOutputStream()
    pq.ParquetWriter(file, schema).close()
    found = pq.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [found.column(number).path for number in range(len(found))]


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    return array if array.type == field.type else array.cast(field.type)
