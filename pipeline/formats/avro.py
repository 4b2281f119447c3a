"""Avro values, by fastavro: its schema resolution reads what another schema has written.

    null boolean int long float double bytes string fixed enum    the Spark type of the same kind
    date timestamp-* local-timestamp-* decimal                    date, timestamp, timestamp_ntz, decimal
    [null, T]                                                     T, which may be null
    [int, long]  [float, double]                                  bigint, double
    other unions, records that hold themselves                    JSON text
    other logical types                                           the type that they annotate

Rule: only decimals are left to the library. The other logical types are taken out of its schemas, so
that it returns numbers, which Arrow takes as they are.
"""

import io
import json
from collections.abc import Callable
from typing import Any, Final

import attrs
import fastavro
import pyarrow as pa

from pipeline.formats import shapes
from pipeline.formats.schemas import Schema, SchemaError, one_line
from pipeline.formats.shapes import Shape

_PRIMITIVE: Final = {
    "boolean": shapes.BOOLEAN,
    "int": shapes.INT,
    "long": shapes.LONG,
    "float": shapes.FLOAT,
    "double": shapes.DOUBLE,
    "bytes": shapes.BINARY,
    "string": shapes.STRING,
    "null": shapes.STRING,
    "fixed": shapes.BINARY,
    "enum": shapes.STRING,
}
_LOGICAL: Final = {
    ("int", "date"): Shape(pa.date32()),
    ("long", "timestamp-millis"): Shape(shapes.UTC_MICROSECONDS, lambda ms: ms * 1000),
    ("long", "timestamp-micros"): Shape(shapes.UTC_MICROSECONDS),
    ("long", "local-timestamp-millis"): Shape(shapes.LOCAL_MICROSECONDS, lambda ms: ms * 1000),
    ("long", "local-timestamp-micros"): Shape(shapes.LOCAL_MICROSECONDS),
}
_WIDER: Final = {
    frozenset(("int", "long")): shapes.LONG,
    frozenset(("float", "double")): shapes.DOUBLE,
}


@attrs.frozen
class AvroReader:
    """The reader's schema, and the reading of values that any other schema has written."""

    schema: Schema
    shape: Shape
    _parsed: Any

    @classmethod
    def of(cls, schema: Schema) -> "AvroReader":
        """Raise SchemaError if it is no schema."""
        named: dict[str, Any] = {}
        parsed = _parsed(schema, named, lambda found: found)
        return cls(schema, _shape(parsed, named, ()), _parsed(schema, {}, _without_logical_types))

    def reading(self, writer: Schema) -> Callable[[bytes], Any]:
        """Return the reading of values that `writer` has written."""
        written = _parsed(writer, {}, _without_logical_types)
        wanted = None if writer == self.schema else self._parsed

        def read(data: bytes) -> Any:
            stream = io.BytesIO(data)
            found = fastavro.schemaless_reader(stream, written, wanted)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes are left")
            return found

        return read


def _parsed(schema: Schema, named: dict[str, Any], prepare: Callable[[Any], Any]) -> Any:
    found: Any = None
    try:
        for text in (*(text for _, text in schema.references), schema.text):
            found = fastavro.parse_schema(prepare(_json(text)), named_schemas=named)
    except (ValueError, TypeError, KeyError, AttributeError, fastavro.schema.SchemaParseException,
            fastavro.schema.UnknownType) as error:  # fmt: skip
        raise SchemaError(f"no Avro schema: {one_line(error)}") from error
    return found


def _json(text: str) -> Any:
    """Return the schema in a text: JSON, or the bare name of a type."""
    try:
        return json.loads(text)
    except ValueError:
        if text.strip() in _PRIMITIVE:
            return text.strip()
        raise


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = schema.get("logicalType") == "decimal"
    return {
        name: each if name in ("default", "aliases", "symbols") else _without_logical_types(each)
        for name, each in schema.items()
        if kept or name not in ("logicalType", "precision", "scale")
    }


def _shape(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    """Return the shape of a parsed schema; `around` are the names of the records that it is in."""
    if isinstance(schema, list):
        return _union(schema, named, around)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        return shapes.json_text() if schema in around else _shape(named[schema], named, around)
    kind = schema["type"]
    if kind in ("record", "error"):
        if schema["name"] in around:
            return shapes.json_text()
        inside = (*around, schema["name"])
        return shapes.record(
            [(each["name"], _shape(each["type"], named, inside)) for each in schema["fields"]]
        )
    if kind == "array":
        return shapes.array(_shape(schema["items"], named, around))
    if kind == "map":
        return shapes.mapping(shapes.STRING, _shape(schema["values"], named, around))
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return shapes.decimal(schema["precision"], schema.get("scale", 0))
    if isinstance(kind, str) and kind in _PRIMITIVE:
        return _LOGICAL.get((kind, schema.get("logicalType")), _PRIMITIVE[kind])
    return _shape(kind, named, around)


def _union(branches: list[Any], named: dict[str, Any], around: tuple[str, ...]) -> Shape:
    kinds = [each for each in branches if each != "null"]
    if not kinds:
        return shapes.STRING
    if len(kinds) == 1:
        return _shape(kinds[0], named, around)
    plain = frozenset(each for each in kinds if isinstance(each, str))
    return _WIDER.get(plain, shapes.json_text()) if len(plain) == len(kinds) else shapes.json_text()
