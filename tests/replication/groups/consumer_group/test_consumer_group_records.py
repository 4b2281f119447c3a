"""The records of consumer groups are Apache Kafka's, byte for byte.

The golden bytes were written by the generated classes of Kafka 4.4.0.
"""

import pytest

from replication.errors import ProtocolError
from replication.groups.rules.consumer_group.records import (
    KEY_VERSIONS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupEntry,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupValue,
    CurrentTopicPartitions,
    RacksOfPartition,
    SubscribedTopicMetadata,
    TargetTopicPartitions,
    parse,
    record_of,
    tombstone_of,
)

ID = bytes(range(16))
RAW_ID = ID.hex()

GOLDEN: list[tuple[ConsumerGroupValue, str, str, str]] = [
    (ConsumerGroupMetadataValue(epoch=7), "", "0003000167", "00000000000700"),
    (
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=-2),
        "",
        "0003000167",
        "000000000007010008fffffffffffffffe",
    ),
    (
        ConsumerGroupPartitionMetadataValue(
            topics=[
                SubscribedTopicMetadata(
                    topic_id=ID,
                    topic_name="orders",
                    num_partitions=2,
                    partition_metadata=[RacksOfPartition(partition=1, racks=["r1", "r2"])],
                )
            ]
        ),
        "",
        "0004000167",
        f"000002{RAW_ID}076f726465727300000002020000000103037231037232000000",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["a", "b"],
            subscribed_topic_regex="x.*",
            rebalance_timeout_ms=5,
            server_assignor="uniform",
        ),
        "m",
        "000500016700016d",
        "00000002720263032f68030261026204782e2a0000000508756e69666f726d00",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id="one",
            client_id="consumer-grouped-one",
            client_host="/127.0.0.1",
            subscribed_topic_names=["grouped"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=300_000,
            classic_member_metadata=None,
        ),
        "m",
        "000500016700016d",
        # As a broker of 4.4.0 left it, for a member with the new protocol.
        "0000046f6e650015636f6e73756d65722d67726f757065642d6f6e650b2f3132372e302e302e3102"
        "0867726f757065640100" + "0493e000" + "01000100",
    ),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id="i",
            client_id="c",
            client_host="/h",
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=9,
                supported_protocols=[ClassicProtocol(name="range", metadata=b"\1\2")],
            ),
        ),
        "m",
        "000500016700016d",
        "00000269000263032f680100ffffffff000100110100000009020672616e67650301020000",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=8),
        "",
        "0006000167",
        "00000000000800",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=8, assignment_timestamp=99),
        "",
        "0006000167",
        "0000000000080100080000000000000063",
    ),
    (
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetTopicPartitions(topic_id=ID, partitions=[0, 300])]
        ),
        "m",
        "000700016700016d",
        f"000002{RAW_ID}03000000000000012c0000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=8,
            previous_member_epoch=7,
            state=1,
            assigned_partitions=[CurrentTopicPartitions(topic_id=ID, partitions=[0])],
            partitions_pending_revocation=[CurrentTopicPartitions(topic_id=ID, partitions=[1])],
        ),
        "m",
        "000800016700016d",
        f"000000000008000000070102{RAW_ID}02000000000002{RAW_ID}02000000010000",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=8,
            previous_member_epoch=7,
            assigned_partitions=[
                CurrentTopicPartitions(topic_id=ID, partitions=[0, 2], assignment_epochs=[6, 8])
            ],
        ),
        "m",
        "000800016700016d",
        f"000000000008000000070002{RAW_ID}0300000000000000020100090300000006000000080100",
    ),
    (
        ConsumerGroupRegularExpressionValue(topics=["xa", "xb"], version=5, timestamp=6),
        "x.*",
        "00100001670003782e2a",
        "0000030378610378620000000000000005000000000000000600",
    ),
]


@pytest.mark.parametrize(("value", "name", "key_bytes", "value_bytes"), GOLDEN)
def test_a_record_is_written_and_read_as_kafka_does(
    value: ConsumerGroupValue, name: str, key_bytes: str, value_bytes: str
) -> None:
    record = record_of("g", value, name)
    assert record.key.hex() == key_bytes
    assert record.value is not None
    assert record.value.hex() == value_bytes
    assert parse(*record) == ConsumerGroupEntry("g", type(value), name, value)


@pytest.mark.parametrize("kind", KEY_VERSIONS)
def test_a_tombstone_has_the_key_and_no_value(kind: type[ConsumerGroupValue]) -> None:
    whole = tombstone_of("g", kind)
    entry = parse(*whole)
    assert entry is not None
    assert entry.value is None
    assert entry.kind is kind


def test_keys_of_other_protocols_are_passed_over() -> None:
    assert parse(b"\0\2\0\1g", b"a classic group") is None
    assert parse(b"\0\x0b\0\1g", b"a share group") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", None),
        (b"\0\3\0", None),
        (b"\0\5\0\1g", None),
        (b"\0\3\0\1g", b""),
        (b"\0\3\0\1g", b"\0\1\0\0\0\1\0"),
        (b"\0\3\0\1g", b"\0\0\0\0"),
    ],
)
def test_bytes_that_no_coordinator_has_written_are_refused(
    key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(ProtocolError):
        parse(key, value)
