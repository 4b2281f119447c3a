"""What a server makes of requests, good and bad. Over real loopback sockets."""

import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.events import ConnectionRefused, Event
from replication.net.clock import TrioClock
from replication.net.idle import idle_limit_seconds
from replication.net.tcp import TcpTransport
from replication.server.server import (
    AdvertisedFeatures,
    CloseConnectionError,
    Handler,
    RequestContext,
    Server,
)
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response, encode_request
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from replication.wire.produce import ProduceRequest, ProduceResponse

HOST = "127.0.0.1"
CLOCK = TrioClock()


async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(cluster_id=f"{context.listener}/{context.client_id}")


@attrs.define
class Harness:
    port: int
    server: Server
    events: list[Event]
    bugs: list[BaseException]

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(HOST, self.port)


@asynccontextmanager
async def serving(
    handlers: dict[ApiKey, Handler] | None = None, **options: Any
) -> AsyncIterator[Harness]:
    events: list[Event] = []
    bugs: list[BaseException] = []
    server = Server(
        handlers={ApiKey.METADATA: metadata} if handlers is None else handlers,
        clock=TrioClock(),
        sink=events.append,
        on_bug=bugs.append,
        **options,
    )
    listener = await TcpTransport().listen(HOST, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.serve(listener, name="PLAINTEXT"))
        yield Harness(listener.port, server, events, bugs)
        nursery.cancel_scope.cancel()


def request_bytes(request: object, *, version: int, correlation_id: int = 1) -> bytes:
    parts = encode_request(
        request, version=version, correlation_id=correlation_id, client_id="test"
    )
    return b"".join(cast("list[bytes]", parts))


async def receive(stream: trio.SocketStream) -> bytes | None:
    """One frame, or None where the server has closed the connection."""
    length = await receive_exactly(stream, 4)
    return None if length is None else await receive_exactly(stream, *struct.unpack(">i", length))


async def receive_exactly(stream: trio.SocketStream, size: int) -> bytes | None:
    received = b""
    while len(received) < size:
        try:
            more = await stream.receive_some(size - len(received))
        except trio.BrokenResourceError:  # closed with our bytes unread: a reset
            return None
        if not more:
            return None
        received += more
    return received


async def ask(stream: trio.SocketStream, request: object, key: ApiKey, *, version: int) -> Any:
    await stream.send_all(request_bytes(request, version=version))
    frame = await receive(stream)
    assert frame is not None, "the server closed the connection"
    _, response = decode_response(memoryview(frame), api_key=key, version=version)
    return response


async def test_a_handler_gets_the_principal_and_the_listener() -> None:
    async with serving() as harness, await harness.connect() as stream:
        answer = await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)
        assert answer.cluster_id == "PLAINTEXT/test"


@pytest.mark.parametrize(("version", "lowest"), [(3, 1), (4, 0)])
async def test_features_are_answered_as_the_client_can_read_them(version: int, lowest: int) -> None:
    features = AdvertisedFeatures(
        supported={"a": (0, 2), "b": (1, 1)}, levels={"a": 2, "b": 0}, epoch=7
    )
    async with serving(features=lambda: features) as harness, await harness.connect() as stream:
        asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        answer = await ask(stream, asked, ApiKey.API_VERSIONS, version=version)
        supported = [
            (each.name, each.min_version, each.max_version) for each in answer.supported_features
        ]
        assert supported == [("a", lowest, 2), ("b", 1, 1)]
        finalized = [(each.name, each.max_version_level) for each in answer.finalized_features]
        assert finalized == [("a", 2)], "level 0 is as if it were not there"
        assert answer.finalized_features_epoch == 7


async def test_what_is_served_is_advertised_and_produce_from_version_0() -> None:
    async def produce(_: RequestContext, __: ProduceRequest) -> ProduceResponse:
        return ProduceResponse()

    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: metadata, ApiKey.PRODUCE: produce}
    async with serving(handlers) as harness, await harness.connect() as stream:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1.0")
        answer = await ask(stream, request, ApiKey.API_VERSIONS, version=3)
    served = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    logins = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    expected = [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS, *logins]
    assert list(served) == sorted(expected)
    assert served[ApiKey.PRODUCE] == (0, 13)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("c", 1, ErrorCode.NONE),
        ("d", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("c", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("c", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_reached_another_node_is_told_so(
    cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    async with serving(identity=("c", 1)) as harness, await harness.connect() as stream:
        asked = ApiVersionsRequest(
            client_software_name="c",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        answer = await ask(stream, asked, ApiKey.API_VERSIONS, version=5)
        assert answer.error_code == error
        assert bool(answer.api_keys) == (error is ErrorCode.NONE)


async def test_api_versions_in_an_unknown_version_is_answered_at_version_0() -> None:
    async with serving() as harness, await harness.connect() as stream:
        body = struct.pack(">hhih4s", ApiKey.API_VERSIONS, 99, 7, 4, b"test") + b"\xff" * 9
        await stream.send_all(struct.pack(">i", len(body)) + body)
        frame = await receive(stream)
        assert frame is not None
        correlation_id, answer = decode_response(
            memoryview(frame), api_key=ApiKey.API_VERSIONS, version=0
        )
        assert correlation_id == 7
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [api.api_key for api in answer.api_keys] == [ApiKey.API_VERSIONS]
        # And the connection is still good for asking again.
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        again = await ask(stream, request, ApiKey.API_VERSIONS, version=3)
        assert again.error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-x", "spaced out", "x\n"])
async def test_a_client_software_name_that_is_none_is_an_invalid_request(name: str) -> None:
    async with serving() as harness, await harness.connect() as stream:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        answer = await ask(stream, request, ApiKey.API_VERSIONS, version=3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_answers_come_in_the_order_of_the_requests() -> None:
    release = trio.Event()

    async def wait_for_the_first(_: RequestContext, request: MetadataRequest) -> MetadataResponse:
        if request.allow_auto_topic_creation:
            await release.wait()
        return MetadataResponse()

    async with (
        serving({ApiKey.METADATA: wait_for_the_first}) as harness,
        await harness.connect() as stream,
    ):
        slow = MetadataRequest(topics=[], allow_auto_topic_creation=True)
        fast = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        await stream.send_all(request_bytes(slow, version=9, correlation_id=1))
        await stream.send_all(request_bytes(fast, version=9, correlation_id=2))
        async with await harness.connect() as other:  # which need not wait
            await ask(other, fast, ApiKey.METADATA, version=9)
        release.set()
        frames = [await receive(stream), await receive(stream)]
        assert [frame and struct.unpack_from(">i", frame)[0] for frame in frames] == [1, 2]


async def test_other_tasks_run_between_requests_that_come_together() -> None:
    turn, asked_in = 0, list[int]()

    async def note_turn(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        asked_in.append(turn)
        return MetadataResponse()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await trio.lowlevel.checkpoint()
            turn += 1

    many = request_bytes(MetadataRequest(topics=[]), version=9) * 20
    async with (
        serving({ApiKey.METADATA: note_turn}) as harness,
        await harness.connect() as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(count_turns)
        await stream.send_all(many)
        for _ in range(20):
            await receive(stream)
        nursery.cancel_scope.cancel()
    # trio runs the tasks of a turn in any order, so one turn may seem to have two.
    assert max(Counter(asked_in).values()) <= 2


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


_METADATA_9 = request_bytes(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), version=9)
_HEADER_1 = struct.pack(">hhih4s", ApiKey.METADATA, 1, 1, 4, b"test")


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="a frame of 2 GiB"),
        pytest.param(struct.pack(">i", -1), id="a frame of negative length"),
        pytest.param(_frame(b""), id="an empty frame"),
        pytest.param(_frame(_METADATA_9[4:-3]), id="a truncated body"),
        pytest.param(_frame(_HEADER_1 + struct.pack(">i", 2_000_000_000)), id="a huge count"),
        pytest.param(_frame(struct.pack(">hhih", 999, 0, 1, -1)), id="an unknown API"),
        pytest.param(_frame(struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1)), id="a version"),
        pytest.param(_frame(struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1)), id="Produce 2"),
        pytest.param(
            request_bytes(ProduceRequest(), version=9), id="an API that is not served here"
        ),
    ],
)
async def test_what_is_not_the_protocol_costs_that_connection_only(garbage: bytes) -> None:
    async with (
        serving() as harness,
        await harness.connect() as stream,
        await harness.connect() as other,
    ):
        await stream.send_all(garbage)
        assert await receive(stream) is None
        answer = await ask(other, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)
        assert answer.cluster_id == "PLAINTEXT/test"
        refused = [event for event in harness.events if isinstance(event, ConnectionRefused)]
        assert len(refused) == 1
        assert refused[0].cause
        assert harness.bugs == []


async def test_an_unknown_tag_is_skipped() -> None:
    async with serving() as harness, await harness.connect() as stream:
        # The body's tag section said "none"; now it says one of number 77, 3 bytes long.
        body = _METADATA_9[4:-1] + b"\x01\x4d\x03abc"
        await stream.send_all(_frame(body))
        assert await receive(stream) is not None


async def test_our_own_mistake_goes_to_on_bug_and_closes_that_connection_only() -> None:
    async def broken(_: RequestContext, request: MetadataRequest) -> MetadataResponse:
        if request.allow_auto_topic_creation:
            raise ZeroDivisionError
        return MetadataResponse()

    async with (
        serving({ApiKey.METADATA: broken}) as harness,
        await harness.connect() as stream,
        await harness.connect() as other,
    ):
        await stream.send_all(request_bytes(MetadataRequest(topics=[]), version=9))
        assert await receive(stream) is None
        assert [type(bug) for bug in harness.bugs] == [ZeroDivisionError]
        fine = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        await ask(other, fine, ApiKey.METADATA, version=9)


async def test_a_handler_may_hang_up() -> None:
    async def hang_up(_: RequestContext, __: MetadataRequest) -> MetadataResponse:
        raise CloseConnectionError("there is nothing to say")

    async with serving({ApiKey.METADATA: hang_up}) as harness, await harness.connect() as stream:
        await stream.send_all(request_bytes(MetadataRequest(topics=[]), version=9))
        assert await receive(stream) is None
        (event,) = harness.events
        assert isinstance(event, ConnectionRefused)
        assert event.cause == "there is nothing to say"


async def test_a_request_without_an_answer_does_not_delay_the_next() -> None:
    async def produce(_: RequestContext, __: ProduceRequest) -> ProduceResponse | None:
        return None

    handlers: dict[ApiKey, Handler] = {ApiKey.PRODUCE: produce, ApiKey.METADATA: metadata}
    async with serving(handlers) as harness, await harness.connect() as stream:
        await stream.send_all(request_bytes(ProduceRequest(acks=0), version=9))
        await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)


async def test_a_frame_over_the_limit_is_refused_before_it_is_received() -> None:
    async with serving(max_request_bytes=100) as harness, await harness.connect() as stream:
        await stream.send_all(struct.pack(">i", 101))
        assert await receive(stream) is None


async def test_a_request_is_counted_with_its_header_and_without() -> None:
    async with serving() as harness, await harness.connect() as stream:
        for version in (1, 9):
            await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=version)
        metrics = harness.server.metrics
    counts = metrics.counts["Metadata"]
    whole, body = counts.bytes, counts.body_bytes
    assert (whole.count, body.count) == (2, 2)
    assert body.total == 4 + 5  # a count; then a compact count, three booleans and no tags
    assert (body.smallest, body.largest, body.last, body.mean) == (4, 5, 5, 4.5)
    assert whole.total - body.total == (10 + 4) + (10 + 4 + 1)
    assert metrics.connections == 0


async def test_a_connection_without_requests_for_too_long_is_closed(
    autojump_clock: MockClock,
) -> None:
    async with serving(max_idle_seconds=600) as harness, await harness.connect() as stream:
        for _ in range(3):
            await CLOCK.sleep(599)
            answer = await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)
            assert answer.cluster_id == "PLAINTEXT/test"
        asked_last = CLOCK.now()
        assert await receive(stream) is None
        assert CLOCK.now() == asked_last + 600
        assert (harness.events, harness.bugs) == ([], [])


async def test_a_negative_limit_is_none(autojump_clock: MockClock) -> None:
    limit = idle_limit_seconds(-1)
    async with serving(max_idle_seconds=limit) as harness, await harness.connect() as stream:
        await CLOCK.sleep(10_000_000)
        answer = await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)
        assert answer.cluster_id == "PLAINTEXT/test"


LARGE_ANSWER = 32 << 20
"""More than the kernel's buffers hold."""


async def large(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    answer = await metadata(context, request)
    return attrs.evolve(answer, cluster_id="x" * LARGE_ANSWER)


async def test_a_connection_that_never_reads_its_answer_is_closed(
    autojump_clock: MockClock,
) -> None:
    """It is asked for nothing more meanwhile: one answer is all that it costs."""
    asked = request_bytes(MetadataRequest(topics=[]), version=9)
    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: large}
    async with (
        serving(handlers, max_idle_seconds=600) as harness,
        await harness.connect() as stream,
    ):
        await stream.send_all(2 * asked)
        await CLOCK.sleep(599)
        assert harness.server.metrics.connections == 1
        assert harness.server.metrics.counts["Metadata"].bytes.count == 1
        # What the kernel took at first has moved since the watch began: twice the limit at most.
        await CLOCK.sleep(602)
        assert harness.server.metrics.connections == 0
        assert harness.server.metrics.counts["Metadata"].bytes.count == 1
        assert (harness.events, harness.bugs) == ([], [])


async def test_a_connection_that_reads_or_sends_slowly_stays(autojump_clock: MockClock) -> None:
    """Each byte that moves counts (Selector.pollSelectionKeys)."""
    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: large}
    async with (
        serving(handlers, max_idle_seconds=600) as harness,
        await harness.connect() as stream,
    ):
        for byte in request_bytes(MetadataRequest(topics=[]), version=9):
            await CLOCK.sleep(500)
            await stream.send_all(bytes([byte]))
        left = LARGE_ANSWER
        while left > 0:
            await CLOCK.sleep(500)
            received = await receive_exactly(stream, min(left, LARGE_ANSWER // 4))
            assert received is not None
            left -= len(received)


async def test_a_request_may_take_longer_than_a_connection_may_idle(
    autojump_clock: MockClock,
) -> None:
    async def slowly(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        await CLOCK.sleep(1000)
        return await metadata(context, request)

    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: slowly}
    async with (
        serving(handlers, max_idle_seconds=600) as harness,
        await harness.connect() as stream,
    ):
        answer = await ask(stream, MetadataRequest(topics=[]), ApiKey.METADATA, version=9)
        assert answer.cluster_id == "PLAINTEXT/test"
