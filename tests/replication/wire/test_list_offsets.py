"""ListOffsets 0, which no library we compare with still has: vectors written by hand."""

import pytest

from replication.wire.codec import decode, encode
from replication.wire.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

REQUEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name="test",
            partitions=[
                ListOffsetsPartition(partition_index=3, timestamp=LATEST, max_num_offsets=15)
            ],
        )
    ],
)
REQUEST_BYTES = (
    "ffffffff"  # replica id
    "00000001"  # one topic
    "0004 74657374"  # "test"
    "00000001"  # one partition
    "00000003"  # index
    "ffffffffffffffff"  # timestamp
    "0000000f"  # max num offsets
)

RESPONSE = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name="test",
            partitions=[
                ListOffsetsPartitionResponse(partition_index=3, old_style_offsets=[20, 18, 3]),
                ListOffsetsPartitionResponse(partition_index=4, error_code=3),
            ],
        )
    ]
)
RESPONSE_BYTES = (
    "00000001"  # one topic
    "0004 74657374"  # "test"
    "00000002"  # two partitions
    "00000003 0000"  # index, no error
    "00000003 0000000000000014 0000000000000012 0000000000000003"  # three offsets
    "00000004 0003"  # index, UNKNOWN_TOPIC_OR_PARTITION
    "00000000"  # none
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(REQUEST, REQUEST_BYTES, id="request"),
        pytest.param(RESPONSE, RESPONSE_BYTES, id="response"),
    ],
)
def test_version_0_is_written_and_read_as_it_was(message: object, expected: str) -> None:
    body = bytes.fromhex(expected)
    assert encode(message, version=0, flexible=False) == [body]
    assert decode(type(message), memoryview(body), version=0, flexible=False) == message


def test_version_0_requests_one_offset_by_default() -> None:
    assert ListOffsetsPartition().max_num_offsets == 1
