"""Protobuf values: the reader's message reads what another version of it has written.

    int32 sint32 sfixed32 | int64 ... | uint32 | uint64      int, bigint, bigint, decimal(20,0)
    float double bool string bytes                           of the same kind
    enum                                                     string: its name, or an unknown number
    message, repeated, map                                   struct, array, map
    google.protobuf.Timestamp, wrappers such as StringValue  timestamp, the wrapped value
    messages that hold themselves, google.protobuf.Struct    JSON text

Rule 1: fields are resolved by their numbers, as in every reading of Protobuf. The schema of the
writer says which message a value is; one with another name than the reader's does not fit.

Rule 2: a field that can be absent is null if it is. Others have their default, as their language
has it.

`protoc` comes with grpcio-tools and runs as a process of its own, once for each schema.
"""

import base64
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs
import grpc_tools
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pipeline.formats import shapes
from pipeline.formats.schemas import Schema, SchemaError, one_line
from pipeline.formats.shapes import Shape

_COMPILE_SECONDS: Final = 30
_FILE: Final = "schema.proto"
_KINDS: Final = {
    FieldDescriptor.TYPE_UINT64: shapes.decimal(20, 0),
    FieldDescriptor.TYPE_FIXED64: shapes.decimal(20, 0),
    FieldDescriptor.TYPE_UINT32: shapes.LONG,
    FieldDescriptor.TYPE_FIXED32: shapes.LONG,
    FieldDescriptor.TYPE_BYTES: shapes.BINARY,
}
_KINDS_IN_MEMORY: Final = {
    FieldDescriptor.CPPTYPE_INT32: shapes.INT,
    FieldDescriptor.CPPTYPE_INT64: shapes.LONG,
    FieldDescriptor.CPPTYPE_FLOAT: shapes.FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: shapes.DOUBLE,
    FieldDescriptor.CPPTYPE_BOOL: shapes.BOOLEAN,
    FieldDescriptor.CPPTYPE_STRING: shapes.STRING,
}
_GOOGLE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(f"{_GOOGLE}{name}" for name in ("Struct", "Value", "ListValue", "Any"))


@attrs.frozen
class ProtobufReader:
    """The reader's message, and the reading of values that any version of it has written."""

    schema: Schema
    shape: Shape
    message: Descriptor

    @classmethod
    def of(cls, schema: Schema, name: str | None) -> "ProtobufReader":
        """Take the message of this full name, or the first; raise SchemaError if there is none."""
        messages = compiled(schema)
        found = next((each for each in _all(messages) if name in (None, each.full_name)), None)
        if found is None:
            known = ", ".join(each.full_name for each in _all(messages)) or "none"
            raise SchemaError(f"there is no message {name}; there are: {known}")
        shape = _message(found, ())
        if shape.fields is None:
            shape = shapes.record([("value", shape)], lambda message, _: message)
        return cls(schema, shape, found)

    def reading(self, writer: Schema) -> Callable[[bytes], Any]:
        """Return the reading of values that `writer` has written."""
        messages = compiled(writer)
        read = GetMessageClass(self.message).FromString
        expected = self.message.full_name

        def of_value(data: bytes) -> Any:
            indexes, start = message_indexes(data)
            written = _at(messages, indexes)
            if written.full_name != expected:
                raise ValueError(f"it is a message {written.full_name}, not {expected}")
            return read(data[start:])

        return of_value


@lru_cache(maxsize=1024)
def compiled(schema: Schema) -> tuple[Descriptor, ...]:
    """Return the top-level messages of a schema, in order; raise SchemaError."""
    described = _descriptor(schema.text)
    files = _compile(schema) if described is None else _with_imports(schema, described)
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        found = pool.FindFileByName(files[-1].name)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"no schema of Protobuf: {one_line(error)}") from error
    return tuple(found.message_types_by_name[each.name] for each in files[-1].message_type)


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return the descriptor in a text that is no `.proto` but one in base64, as clients register it."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None


def _with_imports(schema: Schema, described: FileDescriptorProto) -> list[FileDescriptorProto]:
    """Return the descriptors of all that a descriptor imports, and then itself."""
    found: dict[str, FileDescriptorProto] = {}
    texts = dict(schema.references)

    def collect(file: FileDescriptorProto) -> None:
        for name in file.dependency:
            if name not in found:
                found[name] = imported(name)
                collect(found[name])
                found[name] = found.pop(name)  # after what it imports itself

    def imported(name: str) -> FileDescriptorProto:
        if (described := _descriptor(texts.get(name, "-"))) is not None:
            described.name = name
            return described
        try:
            importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
            known = FileDescriptorProto()
            Default().FindFileByName(name).CopyToProto(known)
        except (ImportError, KeyError) as error:
            raise SchemaError(
                f"no schema of Protobuf: it imports {name}, which is not there"
            ) from error
        return known

    collect(described)
    return [*found.values(), described]


def _compile(schema: Schema) -> list[FileDescriptorProto]:
    """Return the descriptors of a `.proto` text: those of its imports, and then its own."""
    with tempfile.TemporaryDirectory(prefix="understudy-proto-") as made:
        root = Path(made).resolve()
        for name, text in (*schema.references, (_FILE, schema.text)):
            place = (root / name).resolve()
            if not place.is_relative_to(root):
                raise SchemaError(
                    f"a reference is called {name}, which is no path below a directory"
                )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return list(FileDescriptorSet.FromString(_run_protoc(root)).file)


def _run_protoc(root: Path) -> bytes:
    """Return the descriptors of `_FILE` and of all that it imports."""
    to = root / "compiled.bin"
    google = Path(grpc_tools.__file__).parent / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{google}"]
    command += ["--include_imports", f"--descriptor_set_out={to}", _FILE]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and file names
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise SchemaError(f"no .proto: protoc took more than {_COMPILE_SECONDS} s") from error
    if done.returncode:
        raise SchemaError(f"no .proto: {one_line(done.stderr)}")
    return to.read_bytes()


def message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes that lead to a value's message, and where the message begins."""
    count, at = _zigzag(data, 0)
    if count == 0:  # short for the first message
        return (0,), at
    if not 0 < count <= len(data):
        raise ValueError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("its message indexes are cut off")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _at(messages: tuple[Descriptor, ...], indexes: tuple[int, ...]) -> Descriptor:
    inside: Any = messages
    found = None
    for index in indexes:
        if not 0 <= index < len(inside):
            raise ValueError(f"its schema has no message {list(indexes)}")
        found = inside[index]
        inside = found.nested_types
    assert found is not None, "there is an index"
    return found


def _all(messages: Any) -> list[Descriptor]:
    """Return the messages, each before those that are declared in it."""
    return [found for each in messages for found in (each, *_all(each.nested_types))]


def _message(message: Descriptor, around: tuple[str, ...]) -> Shape:
    name = message.full_name
    if name == f"{_GOOGLE}Timestamp":
        return Shape(
            shapes.UTC_MICROSECONDS, lambda each: each.seconds * 1_000_000 + each.nanos // 1000
        )
    if name in _WRAPPERS:
        wrapped = _single(message.fields_by_name["value"], around)
        return Shape(wrapped.type, lambda each: wrapped.changed(each.value))
    if name in around or name in _AS_JSON or not message.fields:
        return shapes.json_text(_as_json)
    inside = (*around, name)
    fields = {each.name: _field(each, inside) for each in message.fields}
    absent = frozenset(
        each.name for each in message.fields if each.has_presence and not _is_repeated(each)
    )

    def get(value: Any, field: str) -> Any:
        if field in absent and not value.HasField(field):
            return None
        return getattr(value, field)

    return shapes.record(list(fields.items()), get)


def _as_json(message: Any) -> str:
    return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _field(field: FieldDescriptor, around: tuple[str, ...]) -> Shape:
    if not _is_repeated(field):
        return _single(field, around)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return shapes.mapping(_single(key, around), _single(value, around))
    item = _single(field, around)
    return Shape(shapes.array(item).type, lambda values: [item.changed(each) for each in values])


def _single(field: FieldDescriptor, around: tuple[str, ...]) -> Shape:
    if field.message_type is not None:
        return _message(field.message_type, around)
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        return Shape(shapes.STRING.type, lambda number: names.get(number, str(number)))
    return _KINDS.get(field.type) or _KINDS_IN_MEMORY[field.cpp_type]
