"""Our metadata records are Kafka's: its own MetadataRecordSerde reads them and writes the same bytes."""

import json
from pathlib import Path

import pytest

from replication.wire.as_json import message_json
from replication.wire.metadata_records import API_KEYS, HIGHEST_VERSIONS, encode_record
from tests.interop import tools
from tests.replication.wire.samples import sample
from tests.replication.wire.test_metadata_records import EVERY_VERSION

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).with_name("MetadataRecords.java")


def test_kafka_reads_our_records_and_writes_the_same(tmp_path: Path) -> None:
    # An empty one of each, with every default, and a full one.
    made = [(each, version) for kind, version in EVERY_VERSION for each in (kind(), sample(kind))]
    encoded = [encode_record(*each) for each in made]
    file = tmp_path / "records"
    file.write_text("".join(f"{each.hex()}\n" for each in encoded))
    read = [line.split(" ", 1) for line in tools.run_tool(str(PROGRAM), str(file)).splitlines()]
    assert [bytes.fromhex(again) for again, _ in read] == encoded
    assert [json.loads(shown) for _, shown in read] == [message_json(*each) for each in made]


def test_every_record_of_kafka_is_declared() -> None:
    said = [line.split() for line in tools.run_tool(str(PROGRAM)).splitlines()]
    theirs = {name: (int(key), int(highest)) for key, name, highest in said}
    assert theirs == {
        kind.__name__: (key, HIGHEST_VERSIONS[kind]) for kind, key in API_KEYS.items()
    }
