"""Bytes that are not the protocol: ProtocolError, at once, and nothing allocated for them."""

import struct
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from replication.errors import ProtocolError
from replication.wire.apis import API, Api
from replication.wire.codec import decode, encode
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.frames import decode_request, decode_response
from replication.wire.metadata import MetadataRequest
from replication.wire.schema import fields_of
from tests.replication.wire.samples import EVERY_VERSION, parameters, sample, turns

FULL = [
    (api, message, version)
    for api, message, version in EVERY_VERSION
    if any(version in field.wire.versions for field in fields_of(message))
]
MESSAGES = parameters(FULL)


def newest(messages: Iterable[tuple[Api, type, int]]) -> list[Any]:
    """Return the messages as parameters of a test that takes long: all but the newest are `deep`."""
    return [
        pytest.param(
            *(api, message, version),
            id=f"{message.__name__} v{version}",
            marks=[] if version == api.max_version else [pytest.mark.deep],
        )
        for api, message, version in messages
    ]


LIED = newest(FULL)
# To watch every allocation takes longer.
MEASURED = newest(each for each in FULL if turns(each[0], each[2]))

# What two billion looks like in front of an array, as an int32 and as a varint; a length
# of minus two; a byte that is no UTF-8.
TWO_BILLION = struct.pack(">i", 2_000_000_000)
TWO_BILLION_COMPACT = bytes.fromhex("80a8d6b907")
NEGATIVE = struct.pack(">i", -2)
# The first two ask for much, wherever they stand.
GREEDY = [TWO_BILLION, TWO_BILLION_COMPACT]
OTHERS = [NEGATIVE, b"\xff" * 5, b"\xff", b"\0"]


def encoded(api: Api, message: type, version: int, *, length: int = 2) -> bytes:
    full = sample(message, length=length)
    parts = encode(full, version=version, flexible=api.is_flexible(version))
    return b"".join(part for part in parts if isinstance(part, bytes))


def refused(api: Api, message: type, version: int, body: bytes) -> bool:
    """Return whether `body` is refused; any exception but ProtocolError goes through."""
    try:
        decode(message, memoryview(body), version=version, flexible=api.is_flexible(version))
    except ProtocolError:
        return True
    return False


def lying(body: bytes, lies: Sequence[bytes]) -> Iterator[bytes]:
    for lie in lies:
        for position in range(len(body)):
            yield body[:position] + lie + body[position + len(lie) :]


@pytest.mark.parametrize(("api", "message", "version"), LIED)
def test_a_body_that_ends_early_is_refused_wherever_it_ends(
    api: Api, message: type, version: int
) -> None:
    body = encoded(api, message, version)
    assert not refused(api, message, version, body)
    assert all(refused(api, message, version, body[:size]) for size in range(len(body)))


@pytest.mark.parametrize(("api", "message", "version"), LIED)
def test_a_lie_anywhere_is_read_or_refused(api: Api, message: type, version: int) -> None:
    for bad in lying(encoded(api, message, version), GREEDY + OTHERS):
        refused(api, message, version, bad)


@pytest.mark.parametrize(
    "lies", [GREEDY, pytest.param(OTHERS, marks=pytest.mark.deep)], ids=["greedy", "others"]
)
@pytest.mark.parametrize("length", [1, pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.parametrize(("api", "message", "version"), MEASURED)
def test_a_lie_anywhere_costs_no_more_than_the_frame_carries(
    api: Api, message: type, version: int, length: int, lies: Sequence[bytes]
) -> None:
    body = encoded(api, message, version, length=length)
    refused(api, message, version, body)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for bad in lying(body, lies):
            tracemalloc.reset_peak()
            refused(api, message, version, bad)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message", "version", "body"),
    [
        pytest.param(MetadataRequest, 1, TWO_BILLION, id="two billion topics in four bytes"),
        pytest.param(MetadataRequest, 12, TWO_BILLION_COMPACT, id="two billion topics in a varint"),
        pytest.param(MetadataRequest, 1, NEGATIVE, id="minus two topics"),
        pytest.param(MetadataRequest, 0, b"\xff\xff\xff\xff", id="null before null was allowed"),
        pytest.param(MetadataRequest, 1, b"\0\0\0\x01\xff\xff", id="a name that may not be null"),
        pytest.param(MetadataRequest, 1, b"\0\0\0\x01\xff\xfex", id="a name of length -2"),
        pytest.param(
            MetadataRequest, 1, b"\0\0\0\x01\0\x02\xc3\x28", id="a name that is not UTF-8"
        ),
        pytest.param(MetadataRequest, 12, b"\xff" * 6, id="a varint without end"),
        pytest.param(MetadataRequest, 12, b"\xff\xff\xff\xff\x1f", id="a varint over 32 bits"),
        pytest.param(MetadataRequest, 12, b"\x01\0\0\xff\xff\xff\xff\x0f", id="four billion tags"),
        pytest.param(
            MetadataRequest, 12, b"\x01\0\0\x01\x07\x7fxy", id="a tag that ends after the frame"
        ),
    ],
)
def test_bad_bodies_are_refused(message: type, version: int, body: bytes) -> None:
    flexible = version >= 9
    with pytest.raises(ProtocolError):
        decode(message, memoryview(body), version=version, flexible=flexible)


# Tag 1 of FetchRequest v17 is replica_state: thirteen bytes.
@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x01\x01\x0c" + bytes(13), id="more content than size"),
        pytest.param(b"\x01\x01\x0f" + bytes(15), id="more size than content"),
        pytest.param(b"\x01\x00\x03\x09xyz" + bytes(9), id="a string beyond its tag"),
    ],
)
def test_a_tagged_field_must_fill_the_size_it_announces(tags: bytes) -> None:
    untagged = bytes(21) + b"\x01\x01\x01"
    right = b"\x01\x01\x0d" + bytes(13)
    decode(FetchRequest, memoryview(untagged + right), version=17, flexible=True)
    with pytest.raises(ProtocolError):
        decode(FetchRequest, memoryview(untagged + tags), version=17, flexible=True)


def test_unknown_tags_are_skipped_at_every_level() -> None:
    unknown = b"\x02\x63\x02xy\x64\x00"  # tags 99 and 100
    partition = bytes(32) + unknown
    topic = bytes(16) + b"\x02" + partition + unknown
    body = bytes(21) + b"\x02" + topic + b"\x01\x01" + unknown
    request = decode(FetchRequest, memoryview(body), version=17, flexible=True)
    assert len(request.topics[0].partitions) == 1


def test_an_unknown_tag_beside_a_known_one_does_not_hide_it() -> None:
    body = bytes(21) + b"\x01\x01\x01"
    tags = b"\x03" + b"\x00\x03\x03me" + b"\x01\x0d" + bytes(12) + b"\x00" + b"\x63\x01z"
    request = decode(FetchRequest, memoryview(body + tags), version=17, flexible=True)
    assert request.cluster_id == "me"
    assert request.replica_state.replica_id == 0


@pytest.mark.parametrize(("api", "message", "version"), MESSAGES)
def test_bytes_after_the_last_field_are_ignored(api: Api, message: type, version: int) -> None:
    body = encoded(api, message, version)
    flexible = api.is_flexible(version)
    expected: object = decode(message, memoryview(body), version=version, flexible=flexible)
    longer = memoryview(body + b"what a newer peer knows")
    assert decode(message, longer, version=version, flexible=flexible) == expected


def test_error_codes_we_have_no_name_for_are_kept() -> None:
    parts = encode(FetchResponse(error_code=31_000), version=17, flexible=True)
    body = b"".join(part for part in parts if isinstance(part, bytes))
    assert decode(FetchResponse, memoryview(body), version=17, flexible=True).error_code == 31_000


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(
    api=st.sampled_from(list(API.values())),
    version=st.integers(-1, 20),
    rest=st.binary(max_size=300),
    framed=st.booleans(),
)
def test_garbage_is_read_or_refused_and_nothing_else(
    api: Api, version: int, rest: bytes, framed: bool
) -> None:
    header = struct.pack(">hhihx", api.key, version, 1, 0) if framed else b""
    with suppress(ProtocolError):
        decode_request(memoryview(header + rest))
    if api.serves(version):
        try:
            decode_response(memoryview(rest), api_key=api.key, version=version)
        except ProtocolError:
            return


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(
    case=st.sampled_from(EVERY_VERSION),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
)
def test_a_valid_body_with_bytes_changed_is_read_or_refused(
    case: tuple[Api, type, int], changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encoded(*case))
    for position, value in changes:
        if body:
            body[position % len(body)] = value
    refused(*case, bytes(body))
