"""The control records of a metadata log: Kafka's bytes, byte for byte beside kio's."""

import importlib
from typing import Any

import pytest
from hypothesis import given, settings

from replication.errors import MetadataError
from replication.wire.codec import decode, encode_whole
from replication.wire.control_records import (
    ControlRecord,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VoterEndpoint,
    VotersRecord,
    VotersRecordVoter,
    control_batch_of,
    control_records_in,
)
from storage.batch.record_batch import check_crc, read_header
from storage.batch.records import Record, decode_batch, encode_batch, read_marker
from tests.replication.wire.kio_oracle import entities, kio_bytes, kio_entity, ours

IN_KIO = {
    LeaderChangeMessage: "leader_change_message",
    SnapshotHeaderRecord: "snapshot_header_record",
    SnapshotFooterRecord: "snapshot_footer_record",
    VotersRecord: "voters_record",
}
EVERY_RECORD: list[ControlRecord] = [
    LeaderChangeMessage(
        leader_id=3001,
        voters=[LeaderChangeVoter(voter_id=3001), LeaderChangeVoter(voter_id=3002)],
        granting_voters=[LeaderChangeVoter(voter_id=3002)],
    ),
    SnapshotHeaderRecord(last_contained_log_timestamp=1_700_000_000_000),
    KRaftVersionRecord(kraft_version=1),
    VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=3001,
                voter_directory_id=bytes(range(16)),
                endpoints=[VoterEndpoint(name="CONTROLLER", host="127.0.0.1", port=65_535)],
                kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
            )
        ]
    ),
    SnapshotFooterRecord(),
]


@pytest.mark.parametrize(
    ("kind", "version"), [*((kind, 0) for kind in IN_KIO), (LeaderChangeMessage, 1)]
)
def test_our_bytes_are_kios_bytes(kind: type[ControlRecord], version: int) -> None:
    module = importlib.import_module(f"kio.schema.{IN_KIO[kind]}.v{version}.data")
    theirs = getattr(module, kind.__name__)

    @settings(max_examples=settings().max_examples // 4)
    @given(entities(theirs))
    def check(entity: Any) -> None:
        message = ours(entity, kind, version)
        data = encode_whole(message, version=version, flexible=True)
        assert data == kio_bytes(entity)
        assert kio_entity(theirs, data) == entity
        assert decode(kind, memoryview(data), version=version, flexible=True) == message

    check()


def test_a_control_batch_is_read_as_it_was_written() -> None:
    batch = control_batch_of(EVERY_RECORD, wall_ms=5, base_offset=7, leader_epoch=3)
    header = read_header(batch)

    assert (header.is_control, header.is_transactional, header.has_producer) == (True, False, False)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (7, 11, 3)
    assert check_crc(batch)
    assert [record.key for record in decode_batch(batch)] == [
        bytes([0, 0, 0, kind]) for kind in (2, 3, 5, 6, 4)
    ]
    assert control_records_in(batch) == EVERY_RECORD
    assert read_marker(batch) is None, "it ends no transaction"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"\0\0\0\1", bytes(6), "type 1 at offset 0"),
        (b"\0\0\0\7", b"", "type 7 at offset 0"),
        (b"\0\0\0\2", b"\0\0\0", "offset 0: not a LeaderChangeMessage"),
        (b"\0\0\0\6", None, "offset 0: not a VotersRecord"),
    ],
)
def test_a_control_record_that_has_no_place_here_is_named(
    key: bytes, value: bytes | None, said: str
) -> None:
    batch = encode_batch([Record(key=key, value=value)], control=True)
    with pytest.raises(MetadataError, match=said):
        control_records_in(batch)
