"""Messages as the JSON that Apache Kafka prints of them, for kafka-dump-log.sh's readers.

    TopicRecord(name="t", topic_id=...)    {"name": "t", "topicId": "vd3b..."}

Fields stand in the order of their bytes, with Kafka's names. A tagged field at its default is left
out; ids are Kafka's text, and other bytes are base 64. (Kafka: the generated JsonConverter classes,
DumpLogSegments.)
"""

import base64
import re
from typing import Any

import attrs

from replication.errors import MetadataError
from replication.wire.control_records import VERSION, decode_message
from replication.wire.metadata_records import decode_record
from replication.wire.schema import Field, Kind, fields_of
from storage.batch.records import Record
from storage.checkpoint import uuid_text
from storage.errors import CorruptRecordError

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def message_json(message: object, version: int) -> dict[str, Any]:
    """Return a message in one version as JSON."""
    kind: type = type(message)
    shown = {}
    for field in fields_of(kind):
        value = getattr(message, field.name)
        if version not in field.wire.versions:
            continue
        is_tagged = field.wire.tag is not None and version in field.wire.tagged
        if not (is_tagged and value == _default(field)):
            shown[_kafkas_name(field.name)] = _value(value, field.wire.kind, field, version)
    return shown


def _default(field: Field) -> object:
    default = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type,attr-defined] # a class that mypy takes for a function


def _kafkas_name(name: str) -> str:
    first, *others = name.rstrip("_").replace("kraft", "k_raft").split("_")
    return first + "".join(each.title() for each in others)


def _value(value: Any, kind: Kind, field: Field, version: int) -> Any:
    if value is None:
        return None
    if kind is Kind.ARRAY:
        items = field.wire.items
        if isinstance(items, Kind):
            return [_value(each, items, field, version) for each in value]
        return [message_json(each, version) for each in value]
    if kind is Kind.STRUCT:
        return message_json(value, version)
    if kind is Kind.UUID:
        return uuid_text(value)
    if kind is Kind.BYTES:
        return base64.b64encode(value).decode()
    return value


def metadata_record_json(record: Record) -> dict[str, Any] | str:
    """Return a record of the metadata log as JSON; one that cannot be read as what is wrong."""
    try:
        message = decode_record(record.value or b"")
    except MetadataError as error:
        return f"Error at {record.offset}, skipping. {error}"
    version = (record.value or b"")[2]
    kind = _WORD.sub("_", type(message).__name__).upper()
    return {"type": kind, "version": version, "data": message_json(message, version)}


def control_record_json(record: Record) -> dict[str, Any] | None:
    """Return a control record of a metadata log as JSON; None for any other control record."""
    try:
        return message_json(decode_message(record), VERSION)
    except (MetadataError, CorruptRecordError):
        return None
