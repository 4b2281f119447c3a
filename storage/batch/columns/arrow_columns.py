"""Columns of Arrow from batches that have been taken apart (the columns are listed in `storage.batch.columns.columnar`).

    of the record     offset  timestamp  key  value  headers
    of its batch      timestamp_type  leader_epoch  producer_id
                      base_offset  last_offset  batch_size  producer_epoch       when asked for

A field of a batch's header is repeated for each of its records.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.attributes import frozen
from storage.batch.columns.vectors import Bytes, Fields, Integers, views
from storage.batch.record_batch import LENGTH_OVERHEAD, LOG_APPEND_TIME_BIT

_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string_view(), nullable=False), ("value", pa.binary_view())])
)
_PLAIN_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
)


def _schema(binary: pa.DataType, headers: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("timestamp_type", pa.int8(), nullable=False),
            pa.field("key", binary),
            pa.field("value", binary),
            pa.field("headers", headers, nullable=False),
            pa.field("leader_epoch", pa.int32(), nullable=False),
            pa.field("producer_id", pa.int64(), nullable=False),
        ]
    )


SCHEMA: Final = _schema(pa.binary_view(), _HEADERS)
PLAIN_SCHEMA: Final = _schema(pa.binary(), _PLAIN_HEADERS)
COLUMNS: Final = tuple(SCHEMA.names)

# Columns that are built only where they are named.
_BATCH_FIELDS: Final = {
    field.name: field
    for field in (
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64(), nullable=False),
        pa.field("batch_size", pa.int32(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
    )
}


@frozen
class Part:
    """Batches of one run, taken apart: what columns are made of."""

    headers: npt.NDArray[np.void]
    counts: Integers
    fields: Fields
    data: Bytes
    buffer: pa.Buffer

    def per_record(self, field: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """Repeat a field of each batch's header for each record of the batch."""
        return np.repeat(self.headers[field].astype(kind), self.counts)


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Return the schema of the columns called `names`. Raise KeyError where there is no such
    column.
    """
    return pa.schema([_field(SCHEMA, name) for name in names])


def _field(schema: pa.Schema, name: str) -> pa.Field:
    if name in _BATCH_FIELDS:
        return _BATCH_FIELDS[name]
    if name not in COLUMNS:
        raise KeyError(f"no column {name!r}; there are {', '.join((*COLUMNS, *_BATCH_FIELDS))}")
    return schema.field(name)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` in Arrow's older types, its keys and values copied: for Spark and Parquet."""
    wanted = pa.schema([_field(PLAIN_SCHEMA, name) for name in batch.schema.names])
    arrays = [batch.column(field.name).cast(field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def column(name: str, part: Part) -> pa.Array:  # noqa: PLR0912 - a table
    fields = part.fields
    match name:
        case "offset":
            return pa.array(part.per_record("base_offset", np.int64) + fields.offset_deltas)
        case "timestamp":
            return _timestamps(part)
        case "timestamp_type":
            return pa.array(np.repeat(append_time(part).astype(np.int8), part.counts))
        case "key":
            return _views(pa.binary_view(), fields.key_starts, fields.key_lengths, part)
        case "value":
            return _views(pa.binary_view(), fields.value_starts, fields.value_lengths, part)
        case "headers":
            return _header_lists(part)
        case "leader_epoch":
            return pa.array(part.per_record("leader_epoch", np.int32))
        case "producer_id":
            return pa.array(part.per_record("producer_id", np.int64))
        case "base_offset":
            return pa.array(part.per_record("base_offset", np.int64))
        case "last_offset":
            last = part.headers["base_offset"] + part.headers["last_offset_delta"].astype(np.int64)
            return pa.array(np.repeat(last, part.counts))
        case "batch_size":
            sizes = part.headers["length"].astype(np.int32) + np.int32(LENGTH_OVERHEAD)
            return pa.array(np.repeat(sizes, part.counts))
        case "producer_epoch":
            return pa.array(part.per_record("producer_epoch", np.int16))
        case other:
            raise KeyError(f"no column {other!r}")


def append_time(part: Part) -> npt.NDArray[np.bool_]:
    """Return which batches are of log-append time."""
    return np.asarray((part.headers["attributes"] & LOG_APPEND_TIME_BIT) != 0)


def _timestamps(part: Part) -> pa.Array:
    times = part.per_record("base_timestamp", np.int64) + part.fields.timestamp_deltas
    of_append_time = append_time(part)
    if of_append_time.any():
        # The leader stamps the header alone; every record of the batch is that old.
        latest = part.per_record("max_timestamp", np.int64)
        times = np.where(np.repeat(of_append_time, part.counts), latest, times)
    kind = SCHEMA.field("timestamp").type
    return pa.Array.from_buffers(kind, len(times), [None, pa.py_buffer(times)])


def _header_lists(part: Part) -> pa.Array:
    found = part.fields.headers
    counts = np.zeros_like(part.fields.key_starts) if found is None else found.counts
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    if found is None:
        structs = pa.array([], _HEADERS.value_type)
    else:
        names = _text(_views(pa.binary_view(), found.key_starts, found.key_lengths, part))
        values = _views(pa.binary_view(), found.value_starts, found.value_lengths, part)
        structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), structs, type=_HEADERS)


def _text(names: pa.Array) -> pa.Array:
    """Return `names` as strings; what is not UTF-8 in them is replaced, as Java does."""
    try:
        return names.cast(pa.string_view())
    except pa.ArrowInvalid:
        replaced = [name.decode(errors="replace") for name in names.to_pylist()]
        return pa.array(replaced, pa.string_view())


def _views(kind: pa.DataType, starts: Integers, lengths: Integers, part: Part) -> pa.Array:
    valid, nulls = None, int(np.count_nonzero(lengths < 0))
    if nulls:
        valid = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(views(part.data, starts, lengths)), part.buffer]
    return pa.Array.from_buffers(kind, len(starts), buffers, nulls)
