"""JSON values with a JSON Schema, by jsonschema-rs: each is checked by the schema that it was written with.

    string, boolean, integer, number     string, boolean, bigint, double
    object with properties               struct, with these; others are left out
    object with additionalProperties     map, if they have a schema and there are no properties
    array with items                     array
    T or null, in any of its spellings   T
    $ref                                 what it refers to
    anything else                        JSON text

Rule: fields are resolved by their names. One that a value does not have is null.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import attrs
import jsonschema_rs
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from pipeline.formats import shapes
from pipeline.formats.schemas import Schema, SchemaError, one_line
from pipeline.formats.shapes import Shape

_BASE: Final = ""


def _whole(value: Any) -> int:
    """Return an integer; JSON Schema says that 1.0 is one."""
    if isinstance(value, bool) or value != int(value):
        raise ValueError(f"{value} is no integer")
    return int(value)


_PLAIN: Final = {
    "string": shapes.STRING,
    "boolean": shapes.BOOLEAN,
    "integer": Shape(shapes.LONG.type, _whole),
    "number": Shape(shapes.DOUBLE.type, float),
}


@attrs.frozen
class JsonReader:
    """The reader's schema, and the reading of values that any other schema has written."""

    schema: Schema
    shape: Shape

    @classmethod
    def of(cls, schema: Schema) -> "JsonReader":
        """Raise SchemaError if it is no schema."""
        contents = _loaded(schema.text)
        _validator(schema)
        registry: Registry[Any] = Registry(retrieve=lambda uri: _resource(_referred(schema, uri)))
        resolver = registry.with_resource(_BASE, _resource(contents)).resolver(_BASE)
        try:
            return cls(schema, _shape(contents, resolver, ()))
        except Unresolvable as error:
            raise SchemaError(f"no JSON Schema: {one_line(error)} is not to be found") from error

    def reading(self, writer: Schema) -> Callable[[bytes], Any]:
        """Return the reading of values that `writer` has written."""
        validator = _validator(writer)

        def read(data: bytes) -> Any:
            found = json.loads(data, parse_constant=_no_number)
            if not validator.is_valid(found):
                for error in validator.iter_errors(found):
                    where = "".join(f".{each}" for each in error.instance_path)
                    raise ValueError(f"${where}: {error.message}")
            return found

        return read


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(f"no JSON Schema: {one_line(error)}") from error


def _referred(schema: Schema, uri: str) -> Any:
    """Return what a schema refers to; nothing else is looked for, on no network."""
    for name, text in schema.references:
        if uri == name or uri.endswith(f"/{name}"):
            return _loaded(text)
    raise LookupError(f"{uri} is none of its references")


def _resource(contents: Any) -> Resource[Any]:
    return Resource.from_contents(contents, default_specification=DRAFT7)


def _validator(schema: Schema) -> Any:
    """Return a validator by the draft that a schema names, or by draft 7, which Confluent's clients mean."""
    contents = _loaded(schema.text)
    names_draft = isinstance(contents, dict) and "$schema" in contents
    make = jsonschema_rs.validator_for if names_draft else jsonschema_rs.Draft7Validator
    try:
        return make(contents, retriever=lambda uri: _referred(schema, uri))
    except ValueError as error:
        said = error.message if isinstance(error, jsonschema_rs.ValidationError) else error
        raise SchemaError(f"no JSON Schema: {one_line(said)}") from error


def _shape(schema: Any, resolver: Any, around: tuple[str, ...]) -> Shape:
    """Return the shape of a schema; `around` has the references that led to it."""
    if not isinstance(schema, dict):
        return shapes.json_text()
    if (reference := schema.get("$ref")) is not None:
        found = resolver.lookup(reference)
        if (where := f"{found.resolver._base_uri} {reference}") in around:  # noqa: SLF001 - names no other way
            return shapes.json_text()
        return _shape(found.contents, found.resolver, (*around, where))
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            left = [each for each in schema[choice] if each != {"type": "null"}]
            return _shape(left[0], resolver, around) if len(left) == 1 else shapes.json_text()
    kind = schema.get("type")
    if isinstance(kind, list):
        left = [each for each in kind if each != "null"]
        kind = left[0] if len(left) == 1 else None
    if kind == "object" and "allOf" not in schema:
        return _object(schema, resolver, around)
    if kind == "array" and isinstance(schema.get("items"), dict):
        return shapes.array(_shape(schema["items"], resolver, around))
    return _PLAIN.get(str(kind)) or shapes.json_text()


def _object(schema: dict[str, Any], resolver: Any, around: tuple[str, ...]) -> Shape:
    properties = schema.get("properties")
    if properties:
        return shapes.record(
            [(name, _shape(each, resolver, around)) for name, each in properties.items()]
        )
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        return shapes.mapping(shapes.STRING, _shape(others, resolver, around))
    return shapes.json_text()
