"""The keys or values of record batches as columns, with those that cannot be read beside them.

    00 0000002a ...          magic byte 0, the schema's id, and the value
    00 0000002a 00 ...       Protobuf: which message of the schema, and the value

    id  customer  valueBytes  valueError
    1   Ada       null        null
    null null     7b226964..  its first byte is 123, not 0: no Confluent wire format
    null null     null        null                                          a null value

Rule 1: one failure does not reach another record. Whatever a library raises for a value, and
whatever Arrow does not take of it, is the reason beside its bytes.

Rule 2: a schema that cannot be had is asked for once in a task, and a registry that does not answer
is not asked again in it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

from pipeline.formats.schemas import (
    AVRO,
    PROTOBUF,
    RegistryUnreachableError,
    Schema,
    SchemaError,
    SchemaSource,
    one_line,
    schema_by_id,
)
from pipeline.formats.shapes import Shape
from replication.extras import extra

_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5

Read: TypeAlias = Callable[[bytes], Any]


class FormatReader(Protocol):
    """A reader's schema in one format."""

    @property
    def shape(self) -> Shape: ...

    def reading(self, writer: Schema) -> Read: ...


def reader_of(kind: str, schema: Schema, message: str | None) -> FormatReader:
    """Return the reader's schema of a format; raise SchemaError if it is none."""
    if schema.kind != kind:
        raise SchemaError(f"its format is {schema.kind}, not {kind}")
    with extra("formats", f"format {kind}"):
        if kind == AVRO:
            from pipeline.formats.avro import AvroReader  # noqa: PLC0415 - the extra, and one of three

            return AvroReader.of(schema)
        if kind == PROTOBUF:
            from pipeline.formats.protobuf import ProtobufReader  # noqa: PLC0415 - as above

            return ProtobufReader.of(schema, message)
        from pipeline.formats.json_schema import JsonReader  # noqa: PLC0415 - as above

        return JsonReader.of(schema)


@attrs.define
class Decoder:
    """The decoding of keys or values; it travels to the tasks without what it has compiled."""

    kind: str
    schemas: SchemaSource
    schema: Schema
    message: str | None = None
    _reader: FormatReader | None = attrs.field(init=False, default=None, eq=False)
    _readings: dict[int, Read | str] = attrs.field(init=False, factory=dict, eq=False)
    _unreachable: str | None = attrs.field(init=False, default=None, eq=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels."""
        fields = [each.name for each in attrs.fields(type(self)) if each.init]
        return {name: getattr(self, name) for name in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what travelled."""
        self.__init__(**state)  # type: ignore[misc]

    @property
    def reader(self) -> FormatReader:
        if self._reader is None:
            self._reader = reader_of(self.kind, self.schema, self.message)
        return self._reader

    @property
    def fields(self) -> list[tuple[str | None, pa.DataType]]:
        """The fields with their types, or a single one without a name if it is no record."""
        kind = self.reader.shape.type
        if self.reader.shape.fields is None:
            return [(None, kind)]
        return [(kind.field(at).name, kind.field(at).type) for at in range(kind.num_fields)]

    def decode(self, values: pa.Array) -> "tuple[list[pa.Array], pa.Array, pa.Array]":
        """Return an array for each field, the bytes of what cannot be read, and the reasons."""
        stored = values.to_pylist()
        found: list[Any] = []
        reasons: list[str | None] = []
        for value in stored:
            decoded, reason = (None, None) if value is None else self._decoded(value)
            found.append(decoded)
            reasons.append(reason)
        made = self._array(found, reasons)
        fields = [made] if self.reader.shape.fields is None else made.flatten()
        unread = [value if reason else None for value, reason in zip(stored, reasons, strict=True)]
        return fields, pa.array(unread, pa.binary()), pa.array(reasons, pa.string())

    def _decoded(self, value: bytes) -> tuple[Any, str | None]:
        if len(value) < _PREFIX_BYTES or value[0] != _MAGIC:
            what = f"its first byte is {value[0]}" if value and value[0] else f"{len(value)} bytes"
            return None, f"{what}: no Confluent wire format"
        number = int.from_bytes(value[1:_PREFIX_BYTES], "big")
        read = self._readings.get(number)
        if read is None:
            read = self._readings[number] = self._reading(number)
        if isinstance(read, str):
            return None, read
        try:
            return self.reader.shape.changed(read(value[_PREFIX_BYTES:])), None
        except Exception as error:  # noqa: BLE001 - rule 1
            return None, f"it does not fit schema {number}: {one_line(error)}"

    def _reading(self, number: int) -> Read | str:
        if self._unreachable is not None:
            return f"schema {number}: {self._unreachable}"
        try:
            schema = schema_by_id(self.schemas, number)
            if schema.kind != self.kind:
                raise SchemaError(f"its format is {schema.kind}, not {self.kind}")  # noqa: TRY301 - said alike
            return self.reader.reading(schema)
        except RegistryUnreachableError as error:
            self._unreachable = one_line(error)
            return f"schema {number}: {one_line(error)}"
        except Exception as error:  # noqa: BLE001 - rule 1
            return f"schema {number}: {one_line(error)}"

    def _array(self, found: Sequence[Any], reasons: list[str | None]) -> pa.Array:
        kind = self.reader.shape.type
        try:
            return pa.array(found, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            fitting = []
            for row, value in enumerate(found):
                try:
                    pa.array([value], kind)
                    fitting.append(value)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    fitting.append(None)
                    reasons[row] = f"it does not fit the reader's schema: {one_line(error)}"
            return pa.array(fitting, kind)
