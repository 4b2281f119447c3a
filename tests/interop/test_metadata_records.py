"""Our metadata records are Kafka's: its own MetadataRecordSerde reads them and writes the same bytes."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from replication.wire.metadata_records import API_KEYS, HIGHEST_VERSIONS, encode_record
from replication.wire.schema import Kind, Wire, fields_of
from tests.interop import tools
from tests.replication.wire.samples import sample
from tests.replication.wire.test_metadata_records import EVERY_VERSION

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("MetadataRecords.java")


def as_json(message: Any, version: int) -> dict[str, object]:
    """Return a message as Kafka's JSON converters write it."""
    kind: type = type(message)
    shown = {}
    for field in fields_of(kind):
        value = getattr(message, field.name)
        if version not in field.wire.versions:
            continue
        if version in field.wire.tagged and value == getattr(kind(), field.name):
            continue  # one that is not written
        shown[_camel_case(field.name)] = _value(value, field.wire, version)
    return shown


def _camel_case(name: str) -> str:
    first, *others = name.rstrip("_").split("_")
    return first + "".join(each.capitalize() for each in others)


def _value(value: Any, wire: Wire, version: int) -> object:
    if value is None:
        return None
    kind = wire.items if wire.kind is Kind.ARRAY else wire.kind
    every = [_item(each, kind, version) for each in (value if wire.kind is Kind.ARRAY else [value])]
    return every if wire.kind is Kind.ARRAY else every[0]


def _item(value: Any, kind: Kind | type | None, version: int) -> object:
    if isinstance(kind, type):
        return as_json(value, version)
    if kind is Kind.UUID:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if kind is Kind.BYTES:
        return base64.b64encode(value).decode()
    return value


def test_kafka_reads_our_records_and_writes_the_same(tmp_path: Path) -> None:
    # An empty one of each, with every default, and a full one.
    made = [(each, version) for kind, version in EVERY_VERSION for each in (kind(), sample(kind))]
    encoded = [encode_record(*each) for each in made]
    file = tmp_path / "records"
    file.write_text("".join(f"{each.hex()}\n" for each in encoded))
    read = [line.split(" ", 1) for line in tools.run_tool(str(PROGRAM), str(file)).splitlines()]
    assert [bytes.fromhex(again) for again, _ in read] == encoded
    assert [json.loads(shown) for _, shown in read] == [as_json(*each) for each in made]


def test_every_record_of_kafka_is_declared() -> None:
    said = [line.split() for line in tools.run_tool(str(PROGRAM)).splitlines()]
    theirs = {name: (int(key), int(highest)) for key, name, highest in said}
    assert theirs == {
        kind.__name__: (key, HIGHEST_VERSIONS[kind]) for kind, key in API_KEYS.items()
    }
