"""One client, several callers: each has its own answer, or all know that the line is cut."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NoReturn

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.clock import TrioClock
from replication.net.framing import FrameReader, send_parts
from replication.net.rpc import RpcClient
from replication.net.seams import Connection
from replication.net.tcp import TcpTransport
from replication.wire.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replication.wire.frames import RequestHeader, decode_request, encode_response
from replication.wire.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Answer = Callable[[Connection, RequestHeader, FindCoordinatorRequest], Awaitable[None]]


async def answer_with_its_key(
    connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
) -> None:
    response = FindCoordinatorResponse(host=request.key)
    parts = encode_response(
        response, version=header.api_version, correlation_id=header.correlation_id
    )
    await send_parts(connection, parts)


async def serve(connection: Connection, answer: Answer) -> None:
    """Answers one request after the other, as a broker does, until the line is cut."""
    reader = FrameReader(connection)
    try:
        while (frame := await reader.receive_frame()) is not None:
            header, request = decode_request(frame)
            assert isinstance(request, FindCoordinatorRequest)
            await answer(connection, header, request)
    except PeerUnavailableError:
        pass
    finally:
        connection.close()


@asynccontextmanager
async def client_of(answer: Answer, *, reuse_buffer: bool = False) -> AsyncIterator[RpcClient]:
    """Open a client of a peer that runs `answer`, over loopback TCP."""
    listener = await TcpTransport().listen("127.0.0.1", 0)
    client = await RpcClient.connect(
        TcpTransport(),
        "127.0.0.1",
        listener.port,
        client_id="c",
        clock=TrioClock(),
        timeout_ms=10_000,
        reuse_buffer=reuse_buffer,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, await listener.accept(), answer)
        listener.close()
        yield client
        client.close()


async def ask(client: RpcClient, key: str, *, timeout_ms: int = 60_000) -> str:
    request = FindCoordinatorRequest(key=key)
    response = await client.call(request, version=0, timeout_ms=timeout_ms)
    assert isinstance(response, FindCoordinatorResponse)
    return response.host


async def test_an_answer_comes_back() -> None:
    async with client_of(answer_with_its_key) as client:
        assert await ask(client, "one") == "one"
        assert await ask(client, "two") == "two"


async def test_callers_that_share_a_client_get_their_own_answers() -> None:
    async with client_of(answer_with_its_key) as client:

        async def caller(name: str) -> None:
            for i in range(20):
                assert await ask(client, f"{name}-{i}") == f"{name}-{i}"

        async with trio.open_nursery() as nursery:
            for name in "abcdefgh":
                nursery.start_soon(caller, name)


async def test_requests_are_pipelined() -> None:
    held: list[tuple[RequestHeader, FindCoordinatorRequest]] = []

    async def answer_in_threes(
        connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
    ) -> None:
        held.append((header, request))
        if len(held) == 3:
            for one in held:
                await answer_with_its_key(connection, *one)

    async with client_of(answer_in_threes) as client:
        answers: list[str] = []

        async def caller(name: str) -> None:
            answers.append(await ask(client, name))

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(caller, name)
        assert sorted(answers) == ["a", "b", "c"]
        assert answers == [request.key for _, request in held], "first come, first served"


async def never(_c: Connection, _h: RequestHeader, _r: FindCoordinatorRequest) -> None:
    await trio.lowlevel.checkpoint()


async def test_no_answer_in_time_closes_the_connection(autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.05  # real sockets are in play
    async with client_of(never) as client:
        start = client.clock.now()
        with pytest.raises(PeerUnavailableError, match="FIND_COORDINATOR v0 within 3000 ms"):
            await ask(client, "x", timeout_ms=3000)
        assert client.clock.now() - start == pytest.approx(3, abs=0.1)
        assert client.closed
        with pytest.raises(PeerUnavailableError, match="was closed"):
            await ask(client, "y")


async def test_a_cancelled_call_closes_the_connection_and_the_others_know() -> None:
    async with client_of(never) as client, trio.open_nursery() as nursery:
        cancelled, failed = trio.CancelScope(), []

        async def is_cancelled() -> None:
            with cancelled:
                await ask(client, "first")

        async def fails(name: str) -> None:
            with pytest.raises(PeerUnavailableError, match="was closed"):
                await ask(client, name)
            failed.append(name)

        nursery.start_soon(is_cancelled)
        await wait_all_tasks_blocked()
        nursery.start_soon(fails, "second")
        nursery.start_soon(fails, "third")
        await wait_all_tasks_blocked()
        cancelled.cancel()
        await wait_all_tasks_blocked()
        assert client.closed
        assert sorted(failed) == ["second", "third"]


async def test_cancelled_while_others_send_a_call_leaves_no_trace() -> None:
    go_on = trio.Event()

    async def answer_later(
        connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
    ) -> None:
        await go_on.wait()
        await answer_with_its_key(connection, header, request)

    async with client_of(answer_later) as client, trio.open_nursery() as nursery:
        big = "x" * 30_000
        answers: list[str] = []

        async def caller(key: str) -> None:
            answers.append(await ask(client, key))

        # The peer reads nothing yet, so that some caller is stuck in the middle of sending.
        for _ in range(400):
            nursery.start_soon(caller, big)
        await wait_all_tasks_blocked()
        assert client._sending.taken, "what was sent fills the socket"
        with trio.CancelScope() as waiting_to_send:
            waiting_to_send.cancel()
            await ask(client, "never sent")
        assert not client.closed
        go_on.set()
        await wait_all_tasks_blocked()
        assert await ask(client, "next") == "next"
    assert answers == [big] * 400


async def test_cancelled_in_the_middle_of_sending_the_connection_closes() -> None:
    listener = await TcpTransport().listen("127.0.0.1", 0)
    connection = await TcpTransport().connect("127.0.0.1", listener.port)
    client = RpcClient(connection, client_id="c", clock=TrioClock())
    size = 50_000_000
    partition = PartitionProduceData(records=bytes(size))
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.call, request, version=3, timeout_ms=60_000))
        await wait_all_tasks_blocked()
        assert client._sending.taken
        nursery.cancel_scope.cancel()
    assert client.closed
    peer = await listener.accept()
    with pytest.raises(PeerUnavailableError, match="closed the connection after"):
        await FrameReader(peer).receive_frame()
    listener.close()
    peer.close()


async def test_an_answer_to_another_question_is_not_the_protocol() -> None:
    async def answer_the_next(
        connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
    ) -> None:
        parts = encode_response(
            FindCoordinatorResponse(host=request.key),
            version=header.api_version,
            correlation_id=header.correlation_id + 1,
        )
        await send_parts(connection, parts)

    async with client_of(answer_the_next) as client:
        with pytest.raises(ProtocolError, match="answered request 1, not 0"):
            await ask(client, "x")
        assert client.closed


async def test_a_late_answer_is_never_the_next_callers() -> None:
    late = trio.Event()

    async def answer_late(
        connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
    ) -> None:
        await late.wait()
        await answer_with_its_key(connection, header, request)

    async with client_of(answer_late) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, client, "given up")
                await wait_all_tasks_blocked()
                scope.cancel()
        late.set()
        with pytest.raises(PeerUnavailableError):
            await ask(client, "next")


async def test_a_peer_that_hangs_up_is_unavailable() -> None:
    async def hang_up(connection: Connection, _h: RequestHeader, _r: object) -> None:
        await trio.lowlevel.checkpoint()
        connection.close()

    async with client_of(hang_up) as client:
        with pytest.raises(PeerUnavailableError, match="instead of answering FIND_COORDINATOR v0"):
            await ask(client, "x")


async def test_garbage_is_not_the_protocol() -> None:
    async def garbage(connection: Connection, header: RequestHeader, _r: object) -> None:
        await connection.send_buffers([b"\0\0\0\x05", bytes(3), bytes([header.correlation_id, 9])])

    async with client_of(garbage) as client:
        with pytest.raises(ProtocolError):
            await ask(client, "x")
        assert client.closed


async def test_a_request_without_a_response_takes_no_place_in_line() -> None:
    async def answer_some(
        connection: Connection, header: RequestHeader, request: FindCoordinatorRequest
    ) -> None:
        if request.key != "unanswered":
            await answer_with_its_key(connection, header, request)

    async with client_of(answer_some) as client:
        await client.send_unanswered(
            FindCoordinatorRequest(key="unanswered"), version=0, timeout_ms=1000
        )
        assert await ask(client, "asked") == "asked"


async def test_with_a_reused_buffer_one_call_at_a_time() -> None:
    async with client_of(never, reuse_buffer=True) as client, trio.open_nursery() as nursery:

        async def first() -> None:
            with pytest.raises(PeerUnavailableError):
                await ask(client, "first")

        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        with pytest.raises(AssertionError, match="overwrite"):
            await ask(client, "second")


async def test_no_connection_in_time(autojump_clock: MockClock) -> None:
    class Unreachable(TcpTransport):
        async def connect(self, host: str, port: int) -> NoReturn:
            await trio.sleep_forever()

    with pytest.raises(PeerUnavailableError, match="no connection to b9:1 within 5000 ms"):
        await RpcClient.connect(
            Unreachable(), "b9", 1, client_id="c", clock=TrioClock(), timeout_ms=5000
        )
