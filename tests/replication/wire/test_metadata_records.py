"""The records of KIP-631: what is written is read back, and what is unknown is refused."""

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from replication.errors import MetadataError
from replication.wire.metadata_records import (
    API_KEYS,
    HIGHEST_VERSIONS,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from replication.wire.schema import Kind, Wire, fields_of
from tests.replication.wire.samples import sample

EVERY_VERSION = [
    (kind, version) for kind in API_KEYS for version in range(HIGHEST_VERSIONS[kind] + 1)
]
INTEGERS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


def values(items: Kind | type | None) -> st.SearchStrategy[Any]:
    if isinstance(items, type):
        return messages(items)
    match items:
        case Kind.BOOL:
            return st.booleans()
        case Kind.UINT16:
            return st.integers(0, 2**16 - 1)
        case Kind.FLOAT64:
            return st.floats(allow_nan=False)
        case Kind.UUID:
            return st.binary(min_size=16, max_size=16)
        case Kind.STRING:
            return st.text(max_size=200)
        case Kind.BYTES:
            return st.binary(max_size=200)
        case _:
            assert items is not None
            bits = INTEGERS[items]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def field(wire: Wire) -> st.SearchStrategy[Any]:
    one = values(wire.items if wire.kind is Kind.ARRAY else wire.kind)
    every = st.lists(one, max_size=3) if wire.kind is Kind.ARRAY else one
    return st.none() | every if wire.nullable.lowest <= wire.nullable.highest else every


def messages(kind: type) -> st.SearchStrategy[Any]:
    """Any message of a class, with every field of every version set."""
    return st.builds(kind, **{each.name: field(each.wire) for each in fields_of(kind)})


def as_in(record: MetadataRecord, version: int) -> MetadataRecord:
    """Return the record without the fields that the version does not have."""
    kind: type = type(record)
    absent = [each.name for each in fields_of(kind) if version not in each.wire.versions]
    defaults = kind()
    return attrs.evolve(record, **{name: getattr(defaults, name) for name in absent})


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_record_is_read_as_it_was_written(kind: type[MetadataRecord], version: int) -> None:
    @given(messages(kind))
    def check(record: MetadataRecord) -> None:
        assert decode_record(encode_record(record, version)) == as_in(record, version)

    check()


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
def test_a_record_cut_short_or_too_long_is_refused(
    kind: type[MetadataRecord], version: int
) -> None:
    whole = encode_record(sample(kind), version)
    for damaged in [whole + b"\0", *(whole[:length] for length in range(len(whole)))]:
        with pytest.raises(MetadataError):
            decode_record(damaged)


def test_the_bytes_of_a_record() -> None:
    topic = TopicRecord(name="logs", topic_id=bytes(range(16)))
    assert encode_record(topic, 0) == bytes.fromhex(
        "01 02 00"  # frame, type, version
        "05 6c6f6773"
        "000102030405060708090a0b0c0d0e0f"
        "00"  # no tagged fields
    )
    change = PartitionChangeRecord(partition_id=7, topic_id=bytes(range(16)), isr=[1, 2], leader=2)
    assert encode_record(change, 2) == bytes.fromhex(
        "01 05 02"
        "00000007"
        "000102030405060708090a0b0c0d0e0f"
        "02"
        "00 09 03 00000001 00000002"  # tag, size, the ISR
        "01 04 00000002"  # tag, size, the leader
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a metadata record"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x06\x00", "unknown metadata record 6: a newer version"),
        (b"\x01\xac\x02\x00", "unknown metadata record 300: a newer version"),
        (b"\x01\x03\x03", "PartitionRecord of version 3, but this release reads only 0 to 2"),
        (encode_record(NoOpRecord(), 0) + b"\0", "1 bytes behind a NoOpRecord v0"),
    ],
)
def test_an_unknown_record_is_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        decode_record(data)


def test_a_removed_key_is_null() -> None:
    record = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None)
    read = decode_record(encode_record(record, 0))
    assert isinstance(read, ConfigRecord)
    assert read.value is None
