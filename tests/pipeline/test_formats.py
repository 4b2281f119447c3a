"""Values in the Confluent wire format as columns, without Spark: Avro and JSON.

Confluent's own serializers write the values; the registry is a stand-in.
"""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("fastavro", reason="the formats extra is not installed: understudy[formats]")
pytest.importorskip("httpx2", reason="Confluent's serializers need it")

from confluent_kafka.schema_registry.json_schema import JSONSerializer

from pipeline.formats.schemas import SchemaError, from_registry
from tests.pipeline.logs import read
from tests.pipeline.registry import RegistryStandIn
from tests.pipeline.wire_format import (
    EVERY_AVRO,
    NOON,
    ORDER_1,
    ORDER_2,
    avro,
    client,
    context,
    fields,
    log_of,
    options,
)


def test_fields_become_columns_and_older_schemas_are_resolved(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    values = avro(registry, ORDER_1, {"id": 1, "customer": "Ada", "cents": 5})
    values += avro(registry, ORDER_2, {"id": 2, "buyer": "Bo", "cents": 1 << 40, "note": "!"})
    rows = read(options(registry, log_of(tmp_path / "log", [*values, None]), "avro"))
    sound = {"valueBytes": None, "valueError": None}
    assert fields(rows) == [
        {"id": 1, "buyer": "Ada", "cents": 5, "note": None, **sound},
        {"id": 2, "buyer": "Bo", "cents": 1 << 40, "note": "!", **sound},
        {"id": None, "buyer": None, "cents": None, "note": None, **sound},
    ]
    assert [row["offset"] for row in rows] == [0, 1, 2]


def test_what_cannot_be_read_is_kept_as_bytes_with_the_reason(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    good, other = avro(registry, ORDER_1, *({"id": n, "customer": "x", "cents": n} for n in (1, 2)))
    other_schema = {"type": "record", "name": "Refund", "fields": [{"name": "a", "type": "string"}]}
    alien = avro(registry, other_schema, {"a": "b"})[0]
    number = registry.subjects["t-value"][0]
    wrong = {
        b"": "0 bytes: no Confluent wire format",
        b'{"id": 1}': "its first byte is 123: no Confluent wire format",
        good[:3]: "3 bytes: no Confluent wire format",
        good[:-1]: f"it does not fit schema {number}: ",
        good + b"!": f"it does not fit schema {number}: 1 bytes are left",
        b"\0\0\0\3\xe7"
        + good[5:]: f"schema 999: {registry.url}/schemas/ids/999: HTTP 404 Schema not found",
        alien: f"it does not fit schema {number + 1}: ",
    }
    path = log_of(tmp_path / "log", [good, *wrong, other])
    rows = read(options(registry, path, "avro", **{"value.schema.id": str(number)}))
    assert [row["id"] for row in rows] == [1, *[None] * len(wrong), 2]
    assert [row["valueBytes"] for row in rows] == [None, *wrong, None]
    for row, said in zip(rows[1:-1], wrong.values(), strict=True):
        assert row["valueError"].startswith(said), (row["valueError"], said)
    assert rows[0]["valueError"] is rows[-1]["valueError"] is None


def test_every_avro_type_has_a_column(registry: RegistryStandIn, tmp_path: Path) -> None:
    value = {
        "flag": True,
        "ratio": 0.5,
        "raw": b"\1\2",
        "kind": "B",
        "day": dt.date(2026, 11, 28),
        "at_ms": NOON,
        "at_us": NOON,
        "local": NOON.replace(tzinfo=None),
        "price": Decimal("12.34"),
        "uuid": "00000000-0000-0000-0000-000000000007",
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "either": 7,
        "wide": 1 << 40,
        "inner": {"at": NOON},
        "tree": {"v": 1, "next": {"v": 2, "next": None}},
        "offset": 3,
    }
    path = log_of(tmp_path / "log", avro(registry, EVERY_AVRO, value))
    (row,) = read(options(registry, path, "avro"))
    found = fields([row])[0]
    assert (found.pop("valueError"), found.pop("valueBytes")) == (None, None)
    assert found.pop("value_offset") == value.pop("offset")
    changed = {
        "counts": [("x", 1)],
        "either": "7",
        "tree": {"v": 1, "next": '{"v": 2, "next": null}'},
    }
    assert found == value | changed


def test_a_type_of_another_subject_is_fetched_as_a_reference(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [
        {"name": "cents", "type": "long"}]}  # fmt: skip
    registry.add("money", json.dumps(money))
    bill = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "shop.Money"}]}
    references = [{"name": "shop.Money", "subject": "money", "version": 1}]
    number = registry.add("t-value", json.dumps(bill), references=references)
    whole = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": money}]}
    value = avro(registry, whole, {"sum": {"cents": 5}}, part="key")[0]
    value = b"\0" + number.to_bytes(4, "big") + value[5:]
    path = log_of(tmp_path / "log", [value])
    assert read(options(registry, path, "avro"))[0]["sum"] == {"cents": 5}
    # The same from a directory, where the type lies beside it under its name.
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / f"{number}.avsc").write_text(json.dumps(bill))
    (schemas / "shop.Money.avsc").write_text(json.dumps(money))
    given = {"path": path, "value.format": "avro", "value.schema.id": str(number)}
    assert read(given | {"schema.directory": str(schemas)})[0]["sum"] == {"cents": 5}


def test_keys_too_and_a_schema_that_is_no_record(registry: RegistryStandIn, tmp_path: Path) -> None:
    keys = avro(registry, "string", "k", part="key")
    values = avro(registry, ORDER_1, {"id": 1, "customer": "Ada", "cents": 5})
    path = log_of(tmp_path / "log", values, keys)
    (row,) = read(options(registry, path, "avro", **{"key.format": "avro"}))
    assert list(row)[:4] == ["key", "keyBytes", "keyError", "id"]
    assert (row["key"], row["keyError"], row["id"]) == ("k", None, 1)
    keys = avro(registry, ORDER_1, {"id": 7, "customer": "x", "cents": 1}, part="key")
    path = log_of(tmp_path / "other", values, keys)
    (row,) = read(options(registry, path, "avro", **{"key.format": "avro"}), "key_id id topic")
    assert row == {"key_id": 7, "id": 1, "topic": "t"}


JSON_1 = {
    "type": "object",
    "title": "Order",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "customer": {"type": "string"}},
}
JSON_2 = {
    "type": "object",
    "title": "Order",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": ["string", "null"]},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
        "tree": {"$ref": "#/definitions/tree"},
    },
    "definitions": {
        "line": {"type": "object", "properties": {"sku": {"type": "string"}}},
        "tree": {"type": "object", "properties": {"next": {"$ref": "#/definitions/tree"}}},
    },
}


def json_values(registry: RegistryStandIn, schema: Any, *values: Any) -> list[bytes]:
    serialize = JSONSerializer(json.dumps(schema), client(registry))
    return [serialize(value, context()) for value in values]


def test_json_by_names_and_checked_by_its_schema(registry: RegistryStandIn, tmp_path: Path) -> None:
    old = json_values(registry, JSON_1, {"id": 1, "customer": "Ada", "other": True})
    value = {
        "id": 2.0,
        "price": 5,
        "lines": [{"sku": "a", "left": "out"}],
        "counts": {"x": 1},
        "any": [1, {"a": None}],
        "tree": {"next": {"next": {}}},
    }
    new = json_values(registry, JSON_2, value, {"id": 1 << 70})
    prefix = new[0][:5]
    wrong = {
        prefix + b'{"id": "seven"}': '$.id: "seven" is not of type "integer"',
        prefix + b"{}": '$: "id" is a required property',
        prefix + b"{": "Expecting property name",
        prefix + b'{"id": NaN}': "NaN is no JSON",
        prefix + b'{"id": 1, "customer": "\\ud800"}': "",
    }
    rows = fields(read(options(registry, log_of(tmp_path / "log", [*old, *new, *wrong]), "json")))
    nothing = dict.fromkeys(("price", "lines", "counts", "any", "tree", "valueBytes", "valueError"))
    assert rows[0] == {"id": 1, "customer": "Ada", **nothing}
    assert rows[1] == {
        "id": 2, "customer": None, "price": 5.0, "lines": [{"sku": "a"}], "counts": [("x", 1)],
        "any": '[1, {"a": null}]', "tree": {"next": '{"next": {}}'},
        "valueBytes": None, "valueError": None,
    }  # fmt: skip
    assert [row["valueBytes"] for row in rows[2:]] == [new[1], *wrong]
    for row, said in zip(rows[3:], wrong.values(), strict=True):
        assert said in row["valueError"], row["valueError"]


def test_json_refers_to_another_subject_and_to_nothing_else(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    registry.add("money", json.dumps(money), "JSON")
    bill = {"type": "object", "properties": {"sum": {"$ref": "shop/money.json"}}}
    references = [{"name": "shop/money.json", "subject": "money", "version": 1}]
    number = registry.add("t-value", json.dumps(bill), "JSON", references)
    values = [b'{"sum": {"cents": 5}}', b'{"sum": {"cents": "five"}}']
    path = log_of(tmp_path / "log", [b"\0" + number.to_bytes(4, "big") + each for each in values])
    first, second = read(options(registry, path, "json"), "sum valueError")
    assert first == {"sum": {"cents": 5}, "valueError": None}
    assert second["valueError"].endswith('$.sum.cents: "five" is not of type "integer"')
    registry.schemas[number] = {"schema": json.dumps(bill), "schemaType": "JSON"}
    from_registry.cache_clear()
    with pytest.raises(SchemaError, match=r"no JSON Schema: .*shop/money\.json"):
        read(options(registry, path, "json"))
