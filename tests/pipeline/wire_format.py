"""Values that Confluent's serializers write, and logs of them."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from storage.batch.records import Record, encode_batch
from storage.tools.standalone import open_log_directory
from tests.pipeline.logs import SMALL, TP, append
from tests.pipeline.registry import RegistryStandIn

ORDER_1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "cents", "type": "int"},
    ],
}
ORDER_2 = {
    **ORDER_1,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "buyer", "type": "string", "aliases": ["customer"]},
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


EVERY_AVRO = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "either", "type": ["null", "string", "long"]},
        {"name": "wide", "type": ["int", "long"]},
        {"name": "inner", "type": ["null", {"type": "record", "name": "In", "fields": [
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}]}]},
        {"name": "tree", "type": {"type": "record", "name": "Node", "fields": [
            {"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}]}},
        {"name": "offset", "type": "int"},
    ],
}  # fmt: skip
NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


def client(registry: RegistryStandIn) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def context(part: str = "value") -> SerializationContext:
    return SerializationContext(
        TP.topic, MessageField.VALUE if part == "value" else MessageField.KEY
    )


def avro(registry: RegistryStandIn, schema: Any, *values: Any, part: str = "value") -> list[bytes]:
    serialize = AvroSerializer(client(registry), json.dumps(schema))
    return [serialize(value, context(part)) for value in values]


def log_of(directory: Path, values: Sequence[bytes | None], keys: Sequence[bytes] = ()) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    with open_log_directory(directory, config=SMALL, node_id=1) as logs:
        log = logs.get_or_create(TP)
        for at, value in enumerate(values):
            key = keys[at] if keys else None
            append(log, encode_batch([Record(timestamp=at, key=key, value=value)]))
    return str(directory)


def options(registry: RegistryStandIn, path: str, kind: str, **more: str) -> dict[str, str]:
    given = {"path": path, "subscribe": TP.topic, "value.format": kind}
    return given | {"schema.registry.url": registry.url} | more


def fields(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without the columns that every record has."""
    always = ("key", "topic", "partition", "offset", "timestamp", "timestampType")
    return [{name: row[name] for name in row if name not in always} for row in rows]
