"""Frames: headers, lengths, and what is answered to a request we do not serve."""

import struct

import attrs
import pytest

from replication.errors import ErrorCode, ProtocolError
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import API, ApiKey
from replication.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from replication.wire.frames import (
    RequestHeader,
    UnsupportedApiVersionError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    refusal,
)
from replication.wire.metadata import MetadataRequest
from replication.wire.schema import Part


@attrs.frozen
class Region:
    """Stands for a stretch of a file."""

    size: int


def joined(parts: list[Part]) -> bytes:
    return b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))


def body(frame: bytes) -> memoryview:
    """A frame without its length, which must be right."""
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    return memoryview(frame)[4:]


@pytest.mark.parametrize("version", range(5))
def test_a_request_comes_back_with_its_header(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="understudy" if version >= 3 else "")
    frame = joined(encode_request(request, version=version, correlation_id=7, client_id="broker-1"))
    header, message = decode_request(body(frame))
    assert header == RequestHeader(
        api_key=18, api_version=version, correlation_id=7, client_id="broker-1"
    )
    assert message == request


def test_a_client_may_leave_out_its_id() -> None:
    frame = joined(encode_request(MetadataRequest(), version=12, correlation_id=1, client_id=None))
    header, message = decode_request(body(frame))
    assert header.client_id is None
    assert message == MetadataRequest()


def test_tags_in_a_request_header_are_skipped() -> None:
    frame = struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x05\x02xy" + b"\x01\x01\x00\x00"
    _, message = decode_request(memoryview(frame))
    assert message == MetadataRequest(topics=[])


def test_the_response_to_api_versions_has_the_old_header() -> None:
    response = ApiVersionsResponse(throttle_time_ms=3)
    frame = joined(encode_response(response, version=3, correlation_id=9))
    assert frame.hex() == "0000000c000000090000010000000300"
    assert decode_response(body(frame), api_key=ApiKey.API_VERSIONS, version=3) == (9, response)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    frame = struct.pack(">hhih", 18, 99, 4, 2) + b"me" + b"\xff\xff what was it?"
    with pytest.raises(UnsupportedApiVersionError) as caught:
        decode_request(memoryview(frame))
    answer = refusal(caught.value.header)
    assert answer is not None
    assert joined(answer).hex() == "0000001000000004002300000001001200000005"


def test_a_client_reads_the_downgraded_answer_at_any_version() -> None:
    header = RequestHeader(api_key=18, api_version=4, correlation_id=2, client_id=None)
    answer = refusal(header)
    assert answer is not None
    correlation_id, response = decode_response(
        body(joined(answer)), api_key=ApiKey.API_VERSIONS, version=4
    )
    assert correlation_id == 2
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(0, 2, id="a version of Produce that is advertised but not served"),
        pytest.param(1, 3, id="a version below the first"),
        pytest.param(1, 99, id="a version above the last"),
        pytest.param(1, -1, id="a negative version"),
        pytest.param(4242, 0, id="an API nobody has"),
        pytest.param(-7, 0, id="a negative API"),
    ],
)
def test_an_unserved_request_carries_its_header_and_has_no_answer(
    api_key: int, version: int
) -> None:
    frame = struct.pack(">hhih", api_key, version, 5, 1) + b"c"
    with pytest.raises(UnsupportedApiVersionError) as caught:
        decode_request(memoryview(frame))
    assert isinstance(caught.value, ProtocolError)
    assert caught.value.header == RequestHeader(
        api_key=api_key, api_version=version, correlation_id=5, client_id="c"
    )
    assert refusal(caught.value.header) is None


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert (API[ApiKey.PRODUCE].advertised_from, API[ApiKey.PRODUCE].min_version) == (0, 3)
    others = [api for api in API.values() if api.key is not ApiKey.PRODUCE]
    assert all(api.advertised_from == api.min_version for api in others)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\x12\0\0\0\0", id="half a header"),
        pytest.param(
            struct.pack(">hhih", 18, 0, 1, 30000) + b"short", id="a client id that ends early"
        ),
        pytest.param(struct.pack(">hhih", 18, 0, 1, -2), id="a client id of length -2"),
        pytest.param(
            struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xfe", id="a client id that is not UTF-8"
        ),
        pytest.param(struct.pack(">hhih", 18, 3, 1, 0), id="a flexible header without tags"),
        pytest.param(struct.pack(">hhih", 18, 3, 1, 0) + b"\xff" * 9, id="tags without end"),
    ],
)
def test_a_broken_header_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(memoryview(frame))


def test_a_response_shorter_than_its_header_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_response(memoryview(b"\0\0"), api_key=ApiKey.FETCH, version=17)


def test_records_in_a_file_stay_there_and_records_in_memory_are_not_copied() -> None:
    in_memory = memoryview(bytearray(1 << 20))
    in_file = Region(size=2 << 20)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="test",
                partitions=[
                    PartitionData(partition_index=0, records=in_memory),
                    PartitionData(partition_index=1, records=b""),
                    PartitionData(partition_index=2, records=in_file),
                ],
            )
        ]
    )
    parts = encode_response(response, version=11, correlation_id=1)
    assert [type(part) for part in parts] == [bytes, memoryview, bytes, Region]
    assert parts[1] is in_memory
    assert parts[3] is in_file
    assert isinstance(parts[0], bytes)
    (length,) = struct.unpack_from(">i", parts[0])
    assert length == len(joined(parts)) - 4 + in_file.size


def test_records_are_read_as_views_of_the_frame() -> None:
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="test", partitions=[PartitionData(partition_index=0, records=b"batch")]
            )
        ]
    )
    frame = bytearray(joined(encode_response(response, version=11, correlation_id=1)))
    _, message = decode_response(memoryview(frame)[4:], api_key=ApiKey.FETCH, version=11)
    assert isinstance(message, FetchResponse)
    records = message.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    # Writable, so that a leader can stamp offsets and epoch in place.
    records[:] = b"BATCH"
    assert b"BATCH" in frame


def fetch(*, partitions: int, replica_id: int, session: tuple[int, int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=7, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    return FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(
            replica_id=replica_id, replica_epoch=-1 if replica_id < 0 else 3
        ),
        max_wait_ms=500,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="test", partitions=wanted)] if wanted else [],
    )


@pytest.mark.parametrize(
    ("version", "partitions", "replica_id", "size"),
    [
        pytest.param(6, 500, 2, 12_031, id="v6, 500 partitions"),
        pytest.param(7, 500, 2, 12_043, id="v7, 500 partitions, full"),
        pytest.param(7, 0, 2, 33, id="v7, incremental, nothing to say"),
        pytest.param(12, 0, 2, 29, id="v12, incremental"),
        pytest.param(13, 0, 2, 29, id="v13, incremental"),
        pytest.param(14, 0, 2, 29, id="v14, incremental"),
        pytest.param(15, 0, 2, 40, id="v15, incremental, follower"),
        pytest.param(17, 0, 2, 40, id="v17, incremental, follower"),
        pytest.param(15, 0, -1, 25, id="v15, incremental, consumer"),
        pytest.param(17, 0, -1, 25, id="v17, incremental, consumer"),
    ],
)
def test_a_fetch_request_has_the_size_kafka_gives_it(
    version: int, partitions: int, replica_id: int, size: int
) -> None:
    request = fetch(partitions=partitions, replica_id=replica_id, session=(1, 1))
    frame = joined(encode_request(request, version=version, correlation_id=1, client_id="c"))
    header_size = 4 + 2 + 2 + 4 + 2 + len("c") + (1 if version >= 12 else 0)
    assert len(frame) - header_size == size


@pytest.mark.parametrize("version", range(4, 18))
def test_the_follower_of_a_fetch_is_read_back_at_any_version(version: int) -> None:
    request = fetch(partitions=0, replica_id=2, session=(1, 1))
    frame = joined(encode_request(request, version=version, correlation_id=1, client_id="c"))
    _, message = decode_request(body(frame))
    assert isinstance(message, FetchRequest)
    assert message.replica == ReplicaState(replica_id=2, replica_epoch=3 if version >= 15 else -1)
