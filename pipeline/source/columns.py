"""The columns of a record, as Spark's Kafka source names them, and a few more.

    key value topic partition offset timestamp timestampType        by default
    headers                                                         includeHeaders
    leaderEpoch producerId producerEpoch batchOffset                includeBatch
      batchLastOffset batchSize                                       (of the record's batch)
    replica                                                         replicas=all

Rule 1: a given schema is the projection: any of these columns, in any order. Spark prunes no
columns of a Python source; columns outside the projection are not decoded.

Rule 2: a read has one Arrow schema, which never varies: Spark compares it exactly.

Rule 3: a timestamp beyond the range of Spark's microseconds becomes the nearest in range. Some
producers write nanoseconds where milliseconds belong.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from pipeline.source.errors import OptionError
from pipeline.source.filters import Narrowing
from pipeline.source.options import ReadOptions
from storage.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = "headers"
_REPLICA: Final = "replica"

ALWAYS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
BATCH: Final = {
    "leaderEpoch": "int",
    "producerId": "bigint",
    "producerEpoch": "int",
    "batchOffset": "bigint",
    "batchLastOffset": "bigint",
    "batchSize": "int",
}
KINDS: Final = {
    **ALWAYS,
    HEADERS: "array<struct<key:string,value:binary>>",
    **BATCH,
    _REPLICA: "string",
}

# The names in `storage.batch.columns.columnar`; other columns are constant in a slice.
_STORED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    HEADERS: HEADERS,
    "leaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "batchOffset": "base_offset",
    "batchLastOffset": "last_offset",
    "batchSize": "batch_size",
}
_MOST_MS: Final = (2**63 - 1) // 1000


def names_for(options: ReadOptions) -> list[str]:
    """Return the columns of a read without a given schema."""
    if options.columns is not None:
        for name in options.columns:
            check_name("option columns", name)
        return list(options.columns)
    names = list(ALWAYS)
    names += [HEADERS] if options.include_headers else []
    names += list(BATCH) if options.include_batch else []
    return names + ([_REPLICA] if options.all_replicas else [])


def ddl(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {KINDS[name]}" for name in names)


def check_name(where: str, name: str) -> None:
    if name not in KINDS:
        raise OptionError(f"{where}: there is no column {name!r}; there are {', '.join(KINDS)}")


def check_schema(kinds: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names in a schema of (name, type); raise OptionError if a column does not fit."""
    for name, kind in kinds:
        check_name("the given schema", name)
        if kind != KINDS[name]:
            raise OptionError(f"the given schema: column {name} is {KINDS[name]}, not {kind}")
    return [name for name, _ in kinds]


@attrs.frozen
class Projection:
    """The columns to decode, and how they become those of Spark's schema."""

    names: tuple[str, ...]

    @property
    def stored(self) -> list[str]:
        """The names in `storage.batch.columns.columnar`; at least one, so that rows are counted."""
        return [_STORED[name] for name in self.names if name in _STORED] or ["offset"]

    def schema(self) -> "pa.Schema":
        import pyarrow as pa  # noqa: PLC0415 - only where something is read

        return pa.schema([pa.field(name, _arrow_type(pa, KINDS[name])) for name in self.names])

    def finish(
        self, found: "pa.RecordBatch", schema: "pa.Schema", tp: TopicPartition, replica: str
    ) -> "pa.RecordBatch":
        """Return the columns of `tp` in Spark's schema, copied from the buffer they were read into."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        same = {"topic": tp.topic, "partition": tp.partition, _REPLICA: replica}
        arrays = []
        for field in schema:
            if field.name in same:
                value = pa.scalar(same[field.name], field.type)
                arrays.append(pa.repeat(value, found.num_rows))
            else:
                arrays.append(_converted(pa, found.column(_STORED[field.name]), field))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@attrs.frozen
class SourceReadSettings:
    """The settings that all tasks of a read share; they travel to the executors with the reader."""

    projection: Projection
    narrowing: Narrowing
    options: ReadOptions


def _arrow_type(pa: Any, kind: str) -> Any:
    if kind == KINDS[HEADERS]:
        return pa.list_(
            pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
    types = {"binary": pa.binary(), "string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}
    return types[kind] if kind in types else pa.timestamp("us", tz="UTC")


def _converted(pa: Any, found: Any, field: Any) -> Any:
    if field.name == HEADERS:
        return _headers(pa, found, field.type)
    if field.name == "timestamp":
        return _microseconds(pa, found, field.type)
    return found if found.type == field.type else found.cast(field.type)


def _microseconds(pa: Any, found: Any, kind: Any) -> Any:
    times = found.view(pa.int64()).to_numpy(zero_copy_only=True)
    if times.max() > _MOST_MS or times.min() < -_MOST_MS:
        times = times.clip(-_MOST_MS, _MOST_MS)
    return pa.array(times * 1000).view(kind)


def _headers(pa: Any, found: Any, kind: Any) -> Any:
    """Convert headers; a record without headers has null, as in Spark's source."""
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    lengths = found.value_lengths()
    values = found.flatten().cast(kind.value_type)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=pc.equal(lengths, 0))
