"""Which responses name brokers, what is offered to clients, and which requests have a response."""

from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from replication.proxy.rules.addresses import (
    PLACES,
    UNKNOWN_WITHOUT_ADDRESSES,
    cut_versions,
    has_addresses,
    id_of,
    is_answered,
    may_pass,
    named_brokers,
)
from replication.wire.api_versions import ApiVersion, ApiVersionsResponse
from replication.wire.apis import API, ApiKey
from replication.wire.describe_cluster import DescribeClusterBroker
from replication.wire.find_coordinator import Coordinator, FindCoordinatorResponse
from replication.wire.frames import RequestHeader, encode_request, request_header
from replication.wire.metadata import MetadataResponseBroker, NodeEndpoint
from replication.wire.produce import ProduceRequest, TopicProduceData
from replication.wire.schema import fields_of

OF_CONTROLLERS = {
    *("VOTE", "BEGIN_QUORUM_EPOCH", "END_QUORUM_EPOCH", "FETCH_SNAPSHOT"),
    *("UPDATE_RAFT_VOTER", "DESCRIBE_QUORUM"),
}
SHARE_FETCH = 78


def addresses_in(kind: type, path: str = "") -> Iterator[str]:
    """Yield the place of each structure with a host and a port, by walking the schema."""
    fields = fields_of(kind)
    if {"host", "port"} <= {each.name for each in fields}:
        yield path
    for field in fields:
        if isinstance(field.wire.items, type):
            yield from addresses_in(field.wire.items, f"{path}.{field.name}".strip("."))


def test_every_address_in_a_response_is_known() -> None:
    found = {
        key: {place or "host" for place in addresses_in(api.response)} for key, api in API.items()
    }
    with_addresses = {key: places for key, places in found.items() if places}
    assert {key.name for key in with_addresses} - {key.name for key in PLACES} == OF_CONTROLLERS
    assert {key: set(places) for key, places in PLACES.items()} == {
        key: places for key, places in with_addresses.items() if key.name not in OF_CONTROLLERS
    }


@pytest.mark.parametrize(
    ("key", "since"),
    [
        (ApiKey.PRODUCE, 10),
        (ApiKey.FETCH, 16),
        (ApiKey.METADATA, 0),
        (ApiKey.FIND_COORDINATOR, 0),
        (ApiKey.DESCRIBE_CLUSTER, 0),
    ],
)
def test_older_versions_name_no_brokers(key: ApiKey, since: int) -> None:
    versions = range(API[key].min_version, API[key].max_version + 1)
    assert [has_addresses(key, each) for each in versions] == [each >= since for each in versions]


def test_a_coordinator_that_is_not_there_is_no_broker() -> None:
    response = FindCoordinatorResponse(
        coordinators=[
            Coordinator(key="a", node_id=0, host="h", port=9092),
            Coordinator(key="b", node_id=-1, host="", port=-1, error_code=15),
        ]
    )
    assert [each.key for each in named_brokers(ApiKey.FIND_COORDINATOR, response)] == ["a"]
    old = FindCoordinatorResponse(node_id=3, host="h", port=9092)
    assert named_brokers(ApiKey.FIND_COORDINATOR, old) == [old]


@pytest.mark.parametrize(
    "named",
    [
        DescribeClusterBroker(broker_id=0, host="h", port=1),
        MetadataResponseBroker(node_id=0, host="h", port=1),
        NodeEndpoint(node_id=0, host="h", port=1),
    ],
)
def test_a_broker_may_have_the_id_0(named: object) -> None:
    assert id_of(named) == 0


def offered(*apis: tuple[int, int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, least, most in apis
        ]
    )


@pytest.mark.parametrize(
    ("given_", "left"),
    [
        pytest.param((ApiKey.FETCH, 4, 99), [(1, 4, 18)], id="a newer version is cut"),
        pytest.param((ApiKey.FETCH, 0, 11), [(1, 4, 11)], id="an older broker keeps what it has"),
        pytest.param((ApiKey.FETCH, 0, 3), [], id="versions that cannot be read are left out"),
        pytest.param((ApiKey.PRODUCE, 0, 13), [(0, 0, 13)], id="KAFKA-18659 keeps Produce from 0"),
        pytest.param((72, 0, 0), [(72, 0, 0)], id="telemetry has no addresses"),
        pytest.param((SHARE_FETCH, 1, 2), [], id="ShareFetch names brokers"),
        pytest.param((4711, 0, 0), [], id="an API of the future is left out"),
    ],
)
def test_versions_are_cut_to_those_that_can_be_rewritten(
    given_: tuple[int, int, int], left: list[tuple[int, int, int]]
) -> None:
    response = cut_versions(offered(given_))
    assert [
        (each.api_key, each.min_version, each.max_version) for each in response.api_keys
    ] == left


def header(key: int, version: int) -> RequestHeader:
    return RequestHeader(key, version, 1, "c")


@pytest.mark.parametrize(
    ("key", "version", "passes"),
    [
        (ApiKey.HEARTBEAT, 99, True),
        (ApiKey.FETCH, 99, False),
        (72, 0, True),
        (SHARE_FETCH, 1, False),
        (4711, 0, False),
    ],
)
def test_a_request_that_cannot_be_read_passes_only_without_addresses(
    key: int, version: int, *, passes: bool
) -> None:
    assert may_pass(header(key, version)) is passes


def test_no_api_is_both_known_and_unknown() -> None:
    assert not UNKNOWN_WITHOUT_ADDRESSES & {int(key) for key in ApiKey}


@given(
    version=st.integers(API[ApiKey.PRODUCE].min_version, API[ApiKey.PRODUCE].max_version),
    transactional_id=st.none() | st.text(max_size=200),
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=st.integers(0, 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
)
def test_produce_without_acks_has_no_response(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, client_id: str | None
) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name="t")],
    )
    parts = encode_request(request, version=version, correlation_id=7, client_id=client_id)
    frame = memoryview(b"".join(parts))[4:]  # type: ignore[arg-type] # nothing lies in a file
    found, body = request_header(frame)
    assert body is not None
    assert (found.client_id, found.api_version) == (client_id, version)
    assert is_answered(found, frame, body) == (acks != 0)
