"""The columns of a record, as Spark's Kafka source names them, and a few more.

    key value topic partition offset timestamp timestampType        by default
    headers                                                         includeHeaders
    leaderEpoch producerId producerEpoch batchOffset                includeBatch
      batchLastOffset batchSize                                       (of the record's batch)
    replica                                                         replicas=all
    id customer ... valueBytes valueError                           value.format
    key_id ... keyBytes keyError                                    key.format

Rule 1: a given schema is the projection: any of these columns, in any order. Spark prunes no
columns of a Python source; columns outside the projection are not decoded.

Rule 2: a read has one Arrow schema, which never varies: Spark compares it exactly.

Rule 3: with a format, the columns of a value's or key's fields stand in its place. A key's are named
`key_NAME`; a value's are named as they are, or `value_NAME` if that name is taken. A schema that is
no record has one column, `value` or `key`.

Rule 4: a timestamp beyond the range of Spark's microseconds becomes the nearest in range. Some
producers write nanoseconds where milliseconds belong.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from pipeline.formats.schemas import SchemaError, schema_by_id
from pipeline.source.errors import OptionError
from pipeline.source.filters import Narrowing
from pipeline.source.format_options import VALUE, FormatOptions
from pipeline.source.options import ReadOptions
from storage.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pipeline.formats.decoding import Decoder

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


@attrs.frozen
class FormatColumns:
    """The columns that keys or values of a format have instead of one of bytes."""

    part: str
    names: tuple[str, ...]
    """The names of the decoder's fields, in their order."""
    decoder: "Decoder"

    @property
    def types(self) -> "dict[str, pa.DataType]":
        """The Arrow types of all columns by their names."""
        import pyarrow as pa  # noqa: PLC0415 - only where something is read

        fields = dict(zip(self.names, (kind for _, kind in self.decoder.fields), strict=True))
        return fields | {f"{self.part}Bytes": pa.binary(), f"{self.part}Error": pa.string()}

    def decode(self, stored: "pa.Array") -> "dict[str, pa.Array]":
        """Return all columns of these keys or values."""
        fields, unread, errors = self.decoder.decode(stored)
        found = dict(zip(self.names, fields, strict=True))
        return found | {f"{self.part}Bytes": unread, f"{self.part}Error": errors}


def formats_for(options: ReadOptions, reserved: Sequence[str] = ()) -> tuple[FormatColumns, ...]:
    """Fetch the readers' schemas; raise SchemaError if one cannot be had, or is none.

    No field's column has one of the `reserved` names, or that of another column.
    """
    own = ("keyBytes", "keyError", "valueBytes", "valueError")
    taken = {name.lower() for name in (*KINDS, *own, *reserved)}
    return tuple(_format_columns(each, taken) for each in options.formats)


def _format_columns(given: FormatOptions, taken: set[str]) -> FormatColumns:
    from pipeline.formats.decoding import Decoder  # noqa: PLC0415 - needs pyarrow

    number = given.schema_id
    try:
        if number is None:
            number = given.schemas.latest(given.subject or "")
        schema = schema_by_id(given.schemas, number)
        decoder = Decoder(given.kind, given.schemas, schema, given.message)
        fields = [name for name, _ in decoder.fields]
    except SchemaError as error:
        which = given.subject if number is None else f"schema {number}"
        raise SchemaError(f"option {given.part}.format: {which}: {error}") from error
    return FormatColumns(
        given.part, tuple(_column(given.part, field, taken) for field in fields), decoder
    )


def _column(part: str, field: str | None, taken: set[str]) -> str:
    """Return the name of a field's column: rule 3."""
    if field is None:
        return part
    is_free = part == VALUE and field.lower() not in taken and not field.lower().startswith("key_")
    return field if is_free else f"{part}_{field}"


def names_for(options: ReadOptions, formats: Sequence[FormatColumns] = ()) -> list[str]:
    """Return the columns of a read without a given schema."""
    if options.columns is not None:
        for name in options.columns:
            check_name("option columns", name, kinds_for(formats))
        return list(options.columns)
    instead = {each.part: list(each.types) for each in formats}
    names = [name for always in ALWAYS for name in instead.get(always, [always])]
    names += [HEADERS] if options.include_headers else []
    names += list(BATCH) if options.include_batch else []
    return names + ([_REPLICA] if options.all_replicas else [])


def kinds_for(formats: Sequence[FormatColumns]) -> dict[str, str]:
    """Return the columns that there are, with the text of their Spark types."""
    kinds = {name: kind for name, kind in KINDS.items() if name not in {f.part for f in formats}}
    names = [name for each in formats for name in each.types]
    found = spark_schema(names, formats).fields if names else []
    return kinds | {field.name: field.dataType.simpleString() for field in found}


def spark_schema(names: Sequence[str], formats: Sequence[FormatColumns]) -> "StructType":
    """Return the schema of these columns as Spark has it."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only for formats

    arrow = Projection(tuple(names), tuple(formats)).schema()
    return from_arrow_schema(arrow, prefer_timestamp_ntz=True)


def ddl(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {KINDS[name]}" for name in names)


def check_name(where: str, name: str, kinds: Mapping[str, str] = KINDS) -> None:
    if name not in kinds:
        raise OptionError(f"{where}: there is no column {name!r}; there are {', '.join(kinds)}")


def check_schema(given: Sequence[tuple[str, str]], kinds: Mapping[str, str] = KINDS) -> list[str]:
    """Return the names in a schema of (name, type); raise OptionError if a column does not fit."""
    for name, kind in given:
        check_name("the given schema", name, kinds)
        if kind != kinds[name]:
            raise OptionError(f"the given schema: column {name} is {kinds[name]}, not {kind}")
    return [name for name, _ in given]


@attrs.frozen
class Projection:
    """The columns to decode, and how they become those of Spark's schema."""

    names: tuple[str, ...]
    formats: tuple[FormatColumns, ...] = ()

    @property
    def stored(self) -> list[str]:
        """The names in `storage.batch.columns.columnar`; at least one, so that rows are counted."""
        parts = [each.part for each in self._decoded()]
        same = (_STORED[name] for name in self.names if name in _STORED and name not in parts)
        return [*same, *parts] or ["offset"]

    def schema(self) -> "pa.Schema":
        import pyarrow as pa  # noqa: PLC0415 - only where something is read

        types = {name: kind for each in self.formats for name, kind in each.types.items()}
        return pa.schema(
            [
                pa.field(name, types[name] if name in types else _arrow_type(pa, KINDS[name]))
                for name in self.names
            ]
        )

    def _decoded(self) -> list[FormatColumns]:
        """Return the formats that have one of the wanted columns."""
        return [each for each in self.formats if not set(self.names).isdisjoint(each.types)]

    def finish(
        self, found: "pa.RecordBatch", schema: "pa.Schema", tp: TopicPartition, replica: str
    ) -> "pa.RecordBatch":
        """Return the columns of `tp` in Spark's schema, copied from the buffer they were read into."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        same = {"topic": tp.topic, "partition": tp.partition, _REPLICA: replica}
        decoded: dict[str, pa.Array] = {}
        for each in self._decoded():
            decoded |= each.decode(found.column(each.part))
        arrays = []
        for field in schema:
            if field.name in decoded:
                arrays.append(decoded[field.name])
            elif field.name in same:
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
