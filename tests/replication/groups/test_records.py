"""The records of groups and offsets are Apache Kafka's, byte for byte."""

import struct

import pytest

from replication.coordinator.rules import partition_for
from replication.errors import ProtocolError
from replication.groups.rules.group import subscribed_topics
from replication.groups.rules.offsets import CommittedOffset
from replication.groups.rules.records import (
    GroupEntry,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitValue,
    OffsetEntry,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    parse,
)
from storage.types import TopicPartition

TP = TopicPartition("orders", 7)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def sized(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=3, metadata="note", commit_timestamp=99)
    record = offset_record("g", TP, value)
    assert record.key == struct.pack(">h", 1) + text("g") + text("orders") + struct.pack(">i", 7)
    assert record.value == struct.pack(">hqi", 3, 42, 3) + text("note") + struct.pack(">q", 99)
    assert parse(*record) == OffsetEntry("g", TP, value)
    assert parse(*offset_tombstone("g", TP)) == OffsetEntry("g", TP, None)


def test_an_offset_that_expires_by_itself_is_written_in_the_version_that_can_say_so() -> None:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, expire_timestamp=3)
    record = offset_record("g", TP, value)
    assert record.value == struct.pack(">hq", 1, 1) + text("") + struct.pack(">qq", 2, 3)
    assert parse(*record) == OffsetEntry("g", TP, value)
    assert CommittedOffset.of(value).value() == value


def test_a_group_is_written_as_kafka_writes_it() -> None:
    member = GroupMetadataMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"sub",
        assignment=b"ass",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=8,
        members=[member],
    )
    record = group_record("g", value)
    assert record.key == struct.pack(">h", 2) + text("g")
    assert record.value == b"".join(
        (
            struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 4),
            text("range") + text("m") + struct.pack(">qi", 8, 1),
            text("m") + struct.pack(">h", -1) + text("c") + text("/h"),
            struct.pack(">ii", 5, 6) + sized(b"sub") + sized(b"ass"),
        )
    )
    assert parse(*record) == GroupEntry("g", value)
    assert parse(*group_tombstone("g")) == GroupEntry("g", None)


def test_the_oldest_group_had_one_timeout_for_both() -> None:
    key = struct.pack(">h", 2) + text("g")
    value = struct.pack(">h", 0) + text("consumer") + struct.pack(">i", 1) + text("p") + text("m")
    value += struct.pack(">i", 1) + text("m") + text("c") + text("/h") + struct.pack(">i", 77)
    value += sized(b"") + sized(b"")
    entry = parse(key, value)
    assert isinstance(entry, GroupEntry)
    assert entry.value is not None
    assert entry.value.members[0].rebalance_timeout == 77


def test_the_flexible_version_is_read_with_unknown_tags() -> None:
    key = struct.pack(">h", 1) + text("g") + text("orders") + struct.pack(">i", 7)
    value = struct.pack(">hqi", 4, 42, 3) + b"\x01" + struct.pack(">q", 99) + b"\x01\x00\x02hi"
    entry = parse(key, value)
    assert entry == OffsetEntry(
        "g", TP, OffsetCommitValue(offset=42, leader_epoch=3, metadata="", commit_timestamp=99)
    )


def test_records_of_other_protocols_are_passed_over_and_damage_is_refused() -> None:
    assert parse(struct.pack(">h", 3) + b"a group of KIP-848", b"anything") is None
    key = offset_tombstone("g", TP).key
    for value in (b"", struct.pack(">h", 5) + bytes(40), struct.pack(">h", 3) + b"short"):
        with pytest.raises(ProtocolError):
            parse(key, value)
    for broken in (None, b"", b"\0", struct.pack(">h", 1) + b"x"):
        with pytest.raises(ProtocolError):
            parse(broken, None)


def test_a_group_that_no_coordinator_could_have_written_is_refused() -> None:
    one = GroupMetadataMember(member_id="m")
    for value in (
        GroupMetadataValue(protocol_type="consumer", generation=1, members=[one]),
        GroupMetadataValue(
            protocol_type="consumer", generation=1, protocol="p", members=[one, one]
        ),
    ):
        with pytest.raises(ProtocolError, match="a group"):
            parse(*group_record("g", value))


def test_a_group_lives_where_kafka_looks_for_it() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (b"\0\1\0\0\0\2\0\1a\0\2bc\xff\xff\xff\xff and more", frozenset({"a", "bc"})),
        (b"\0\0\0\0\0\0\xff\xff\xff\xff", frozenset()),
        (b"\0\0\0\0\0\0", None),
        (b"", None),
        (b"\0\0\0\0\0\7\0\1a", None),
        (b"\xff\xff\0\0\0\0", None),
    ],
)
def test_a_coordinator_reads_the_topics_of_a_subscription(
    metadata: bytes, topics: frozenset[str] | None
) -> None:
    assert subscribed_topics(metadata) == topics
