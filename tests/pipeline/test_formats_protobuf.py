"""Protobuf values in the Confluent wire format as columns, without Spark."""

import importlib.util
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark extra is not installed: understudy[spark]")
pytest.importorskip("grpc_tools", reason="the formats extra is not installed: understudy[formats]")
pytest.importorskip("httpx2", reason="Confluent's serializers need it")

from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

from pipeline.formats.schemas import SchemaError
from tests.pipeline.logs import read
from tests.pipeline.registry import RegistryStandIn
from tests.pipeline.wire_format import NOON, client, context, fields, log_of, options

PROTO_1 = """
syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  string customer = 2;
}
message Other { int64 id = 1; }
"""
PROTO_2 = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  string buyer = 2;
  optional string note = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.StringValue wrapped = 5;
  repeated Line lines = 6;
  map<string, uint64> counts = 7;
  Kind kind = 8;
  Order parent = 9;
  message Line { uint32 sku = 1; }
  enum Kind { NONE = 0; ONLINE = 1; }
}
message Other { int64 id = 1; }
"""


def generated(directory: Path, text: str, name: str) -> Any:
    """Return the module that protoc generates for a text."""
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.proto").write_text(text)
    google = Path(importlib.import_module("grpc_tools").__file__ or "").parent / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", f"-I{google}"]
    subprocess.run([*command, f"--python_out={directory}", f"{name}.proto"], check=True)
    spec = importlib.util.spec_from_file_location(f"{name}_pb2", directory / f"{name}_pb2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def protobuf(registry: RegistryStandIn, message: Any) -> bytes:
    serialize = ProtobufSerializer(
        type(message), client(registry), {"use.deprecated.format": False}
    )
    found: bytes = serialize(message, context())
    return found


def test_protobuf_by_the_numbers_of_its_fields(registry: RegistryStandIn, tmp_path: Path) -> None:
    unique = f"shop_{tmp_path.name.replace('-', '_')}"
    first = generated(tmp_path / "1", PROTO_1.replace("shop", f"{unique}.old"), "old")
    second = generated(tmp_path / "2", PROTO_2.replace("shop", f"{unique}.new"), "new")
    order = second.Order(
        id=2, buyer="Bo", note="", kind=1, lines=[{"sku": 9}], counts={"a": 1 << 63}
    )
    order.at.FromDatetime(NOON)
    order.wrapped.value = "w"
    order.parent.id = 1
    values = [
        protobuf(registry, first.Order(id=1, customer="Ada")),
        protobuf(registry, order),
        protobuf(registry, second.Other(id=3)),
    ]
    old, new = (int.from_bytes(value[1:5], "big") for value in values[:2])
    # As a registry answers: the text, whatever the serializer has registered.
    registry.schemas[old]["schema"], registry.schemas[new]["schema"] = PROTO_1, PROTO_2
    bytes_of = [*values, values[1][:-3], b"\0" + new.to_bytes(4, "big") + b"\x0c\x02"]
    path = log_of(tmp_path / "log", bytes_of)
    rows = fields(read(options(registry, path, "protobuf", **{"value.schema.id": str(new)})))
    empty = {"note": None, "at": None, "wrapped": None, "parent": None}
    assert rows[0] == {
        "id": 1, "buyer": "Ada", **empty, "lines": [], "counts": [], "kind": "NONE",
        "valueBytes": None, "valueError": None,
    }  # fmt: skip
    assert rows[1] == {
        "id": 2, "buyer": "Bo", "note": "", "at": NOON, "wrapped": "w", "lines": [{"sku": 9}],
        "counts": [("a", Decimal(1 << 63))], "kind": "ONLINE", "parent": '{"id": "1"}',
        "valueBytes": None, "valueError": None,
    }  # fmt: skip
    assert rows[2]["valueError"] == (
        f"it does not fit schema {new}: it is a message shop.Other, not shop.Order"
    )
    assert [row["valueBytes"] for row in rows[2:]] == bytes_of[2:]
    assert all(row["valueError"].startswith(f"it does not fit schema {new}: ") for row in rows[3:])
    given = options(registry, path, "protobuf", **{"value.schema.id": str(new)})
    others = read(given | {"value.message": "shop.Other"}, "id valueError")
    assert [row["id"] for row in others] == [None, None, 3, None, None]
    line = read(given | {"value.message": "shop.Order.Line"}, "sku")
    assert [row["sku"] for row in line] == [None] * 5


def test_protobuf_as_descriptors_and_as_files_with_imports(
    registry: RegistryStandIn, tmp_path: Path
) -> None:
    unique = f"shop_{tmp_path.name.replace('-', '_')}"
    module = generated(tmp_path / "1", PROTO_2.replace("shop", unique), "whole")
    value = protobuf(registry, module.Order(id=5, buyer="Ada"))
    path = log_of(tmp_path / "log", [value])
    # The serializer registers the file's descriptor in base64, which the stand-in returns as it is.
    assert read(options(registry, path, "protobuf"), "id buyer") == [{"id": 5, "buyer": "Ada"}]
    schemas, number = tmp_path / "schemas", int.from_bytes(value[1:5], "big")
    (schemas / "shop").mkdir(parents=True)
    text = f'syntax = "proto3"; package {unique}; import "shop/id.proto"; message Order {{ int64 id = 1; Id inner = 9; }}'
    (schemas / f"{number}.proto").write_text(text)
    inner = f'syntax = "proto3"; package {unique}; message Id {{ int64 number = 1; }}'
    (schemas / "shop" / "id.proto").write_text(inner)
    given = {"path": path, "value.format": "protobuf", "value.schema.id": str(number)}
    given |= {"schema.directory": str(schemas)}
    assert read(given, "id inner valueError") == [{"id": 5, "inner": None, "valueError": None}]
    (schemas / "shop" / "id.proto").unlink()
    with pytest.raises(SchemaError, match=r"no \.proto: .*shop/id\.proto: File not found"):
        read(given)
