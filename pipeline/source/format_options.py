"""The options of keys and values whose fields are columns, and of where their schemas are.

value.format   value.schema.id | value.subject   value.message     key.* alike
schema.registry.url, schema.registry.*   |   schema.directory
"""

import os
from collections.abc import Sequence
from typing import Final

import attrs

from pipeline.formats.schemas import (
    AVRO,
    JSON,
    PROTOBUF,
    Registry,
    SchemaDirectory,
    SchemaError,
    SchemaSource,
)
from pipeline.source.errors import OptionError
from pipeline.source.given import GivenOptions

KEY: Final = "key"
VALUE: Final = "value"
FORMAT: Final = (
    *("value.format", "value.subject", "value.schema.id", "value.message"),
    *("key.format", "key.subject", "key.schema.id", "key.message"),
    *("schema.registry.url", "schema.registry.basic.auth.user.info"),
    *("schema.registry.timeout.ms", "schema.directory"),
)


@attrs.frozen(kw_only=True)
class FormatOptions:
    """The options of keys or values whose fields are columns."""

    part: str
    kind: str
    schemas: SchemaSource
    schema_id: int | None
    subject: str | None
    message: str | None


def parse_formats(options: GivenOptions, topics: Sequence[str]) -> tuple[FormatOptions, ...]:
    """Return the options of each part that has a format; `topics` are those that are read."""
    parts = [part for part in (KEY, VALUE) if options.text(f"{part}.format") is not None]
    kinds = {part: options.choice(f"{part}.format", AVRO, PROTOBUF, JSON) for part in parts}
    for name in FORMAT:
        part = name.partition(".")[0]
        is_idle = part not in parts if part in (KEY, VALUE) else not parts
        if is_idle and options.text(name) is not None:
            needed = KEY if part == KEY else VALUE
            raise OptionError(f"option {name}: give {needed}.format too")
    if not parts:
        return ()
    schemas = _schemas(options)
    return tuple(_format(options, topics, part, kinds[part], schemas) for part in parts)


def _schemas(options: GivenOptions) -> SchemaSource:
    url, directory = options.text("schema.registry.url"), options.text("schema.directory")
    if (url is None) == (directory is None):
        raise OptionError("give either schema.registry.url or schema.directory with a format")
    if directory is not None:
        if not os.path.isdir(directory):
            raise OptionError(f"option schema.directory: {directory} is no directory")
        return SchemaDirectory(directory)
    try:
        return Registry(
            url=str(url).strip(),
            user_info=options.text("schema.registry.basic.auth.user.info"),
            timeout_ms=options.number("schema.registry.timeout.ms", default=10_000),
        )
    except SchemaError as error:
        raise OptionError(f"option schema.registry.url: {error}") from error


def _format(
    options: GivenOptions, topics: Sequence[str], part: str, kind: str, schemas: SchemaSource
) -> FormatOptions:
    """Return the options of one part; by default its subject is TOPIC-value or TOPIC-key."""
    schema_id = options.number_if_given(f"{part}.schema.id")
    subject, message = options.text(f"{part}.subject"), options.text(f"{part}.message")
    if schema_id is not None and subject is not None:
        raise OptionError(f"give {part}.schema.id or {part}.subject, not both")
    if message is not None and kind != PROTOBUF:
        raise OptionError(f"option {part}.message: only Protobuf has messages")
    if schema_id is None and subject is None:
        if isinstance(schemas, SchemaDirectory) or len(topics) != 1:
            raise OptionError(f"give {part}.schema.id, the schema of the columns")
        subject = f"{topics[0]}-{part}"
    return FormatOptions(
        part=part, kind=kind, schemas=schemas, schema_id=schema_id, subject=subject, message=message
    )
