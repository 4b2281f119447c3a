"""A dump as JSON, one object a line: for `jq`, a notebook, a disaster's script.

    {"kind": "batch", "position": 0, "base_offset": 0, ..., "codec": "zstd", "is_valid": true}
    {"kind": "record", "offset": 0, ..., "key": "k", "value_base64": "/w=="}
    {"kind": "damage", "path": ..., "position": 1024, "reason": ..., "resumed_at": 2048}

Rule 1: `kind` says what the object is; names are those of `entries`, in snake_case. A line
belongs to the file of the last `file_started` before it.

Rule 2: bytes are text where they are UTF-8; where not, the name ends in `_base64`. A null is
null under the plain name.
"""

import base64
import json
import re
from typing import Any, Final

import attrs

from storage.batch.record_batch import BatchHeader
from storage.checkpoint import uuid_text
from storage.tools.dump.entries import (
    BatchEntry,
    CheckpointEntry,
    DirectoryMetadata,
    Entry,
    PartitionMetadata,
    ProducerEntry,
    RecordEntry,
    ShutdownMarker,
    is_damage,
)
from storage.tools.dump.text import TIMESTAMP_NAMES, TextOptions, codec_name, control_json

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def json_line(entry: Entry, options: TextOptions) -> str:
    """`entry` as one line of JSON."""
    kind = _WORD.sub("_", type(entry).__name__).lower().removesuffix("_entry")
    value = {"kind": kind, **_fields(entry, options)}
    if is_damage(entry):
        value["is_damage"] = True
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _fields(entry: Entry, options: TextOptions) -> dict[str, Any]:
    match entry:
        case BatchEntry():
            return _batch(entry)
        case RecordEntry():
            return _record(entry, options)
        case ProducerEntry(state):
            return {
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "coordinator_epoch": state.coordinator_epoch,
                "last_timestamp": state.last_timestamp,
                "transaction_first_offset": state.transaction_first_offset,
                "batches": [batch._asdict() for batch in state.batches],
            }
        case CheckpointEntry((topic, partition), offset):
            return {"topic": topic, "partition": partition, "offset": offset}
        case PartitionMetadata(topic_id):
            return {"topic_id": uuid_text(topic_id)}
        case DirectoryMetadata(properties):
            return attrs.asdict(properties)
        case ShutdownMarker(marker):
            return attrs.asdict(marker)
        case _:
            return attrs.asdict(entry)


def _batch(entry: BatchEntry) -> dict[str, Any]:
    header = entry.header
    return {
        "position": entry.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "timestamp_type": _timestamp_name(header),
        "max_timestamp": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "codec": codec_name(header),
        "crc": header.crc,
        "is_valid": entry.is_valid,
    }


def _record(entry: RecordEntry, options: TextOptions) -> dict[str, Any]:
    record, fields = entry.record, dict[str, Any]()
    if not options.skip_record_metadata:
        fields = {
            "offset": record.offset,
            "timestamp_type": _timestamp_name(entry.header),
            "timestamp": record.timestamp,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
            "sequence": record.sequence,
            "header_keys": [name for name, _ in record.headers],
        }
        if entry.control_type is not None:
            fields["control_type"] = entry.control_name
        if entry.marker is not None:
            fields["coordinator_epoch"] = entry.marker.coordinator_epoch
        if (message := control_json(entry, options)) is not None:
            fields["control"] = message
    if options.payload_json is not None and not entry.header.is_control:
        fields["payload"] = options.payload_json(record)
    elif options.print_data_log and not entry.header.is_control:
        fields |= bytes_field("key", record.key) | bytes_field("value", record.value)
        fields["headers"] = [
            {"key": name, **bytes_field("value", value)} for name, value in record.headers
        ]
    return fields


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _timestamp_name(header: BatchHeader) -> str:
    return TIMESTAMP_NAMES[header.timestamp_type]
