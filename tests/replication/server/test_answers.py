"""Requests that are answered later: the next ones are read meanwhile, and all answers keep their order."""

import socket
import struct
from collections.abc import Callable
from typing import Any

import attrs
import trio
import trio.testing

from replication.server.answers import MOST_IN_LINE, Later
from replication.server.server import CloseConnectionError, RequestContext
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response
from replication.wire.metadata import MetadataRequest, MetadataResponse
from replication.wire.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.replication.server.test_server import receive, request_bytes, serving

VERSION = 9
PIECE = 4 * 1024 * 1024


@attrs.define(eq=False)
class Producing:
    """Handlers whose produce requests are answered when the test says so."""

    begun: list[int] = attrs.field(factory=list)
    """The timeouts of the requests, which number them."""
    given_up: list[int] = attrs.field(factory=list)
    answer: dict[int, Callable[[Any], object]] = attrs.field(factory=dict)
    changed: trio.Event = attrs.field(factory=trio.Event)

    async def produce(self, _: RequestContext, request: ProduceRequest) -> Any:
        number = request.timeout_ms
        self.begun.append(number)
        self._change()
        if number < 0:
            raise CloseConnectionError("a negative number")
        if request.acks == 1:
            return ProduceResponse(throttle_time_ms=number)

        def start(respond: Callable[[Any], object]) -> Callable[[], None]:
            self.answer[number] = respond
            return lambda: self._give_up(number)

        return Later(start)

    async def metadata(self, _: RequestContext, request: MetadataRequest) -> MetadataResponse:
        self.begun.append(0)
        self._change()
        return MetadataResponse(cluster_id="cluster")

    def respond(self, number: int) -> None:
        self.answer[number](lambda: ProduceResponse(throttle_time_ms=number))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed.wait()

    def _give_up(self, number: int) -> None:
        self.given_up.append(number)
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def handlers(self) -> dict[ApiKey, Any]:
        return {ApiKey.PRODUCE: self.produce, ApiKey.METADATA: self.metadata}


def produce_bytes(number: int, *, acks: int = -1) -> bytes:
    request = ProduceRequest(acks=acks, timeout_ms=number, topic_data=[])
    return request_bytes(request, version=VERSION, correlation_id=number)


async def received(stream: trio.SocketStream) -> int:
    """Return the number of the request that the next frame answers."""
    frame = await receive(stream)
    assert frame is not None, "the connection is open"
    correlation_id, _ = decode_response(memoryview(frame), api_key=ApiKey.PRODUCE, version=VERSION)
    return correlation_id


async def test_the_next_produce_begins_before_the_last_is_answered() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        await stream.send_all(produce_bytes(1) + produce_bytes(2) + produce_bytes(3))
        await producing.until(lambda: producing.begun == [1, 2, 3])
        producing.respond(3)
        producing.respond(1)
        assert await received(stream) == 1
        producing.respond(2)
        assert [await received(stream) for _ in range(2)] == [2, 3]
        assert harness.server.metrics.counts["Produce"].times.count == 3
        assert producing.given_up == []


async def test_an_answer_that_is_there_waits_for_those_before_it() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        await stream.send_all(produce_bytes(1) + produce_bytes(2, acks=1) + produce_bytes(3))
        await producing.until(lambda: producing.begun == [1, 2, 3])
        producing.respond(3)
        producing.respond(1)
        assert [await received(stream) for _ in range(3)] == [1, 2, 3]


async def test_another_request_is_handled_when_all_before_it_are_answered() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        metadata = request_bytes(MetadataRequest(topics=[]), version=9, correlation_id=2)
        await stream.send_all(produce_bytes(1) + metadata)
        await producing.until(lambda: producing.begun == [1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert producing.begun == [1]
        producing.respond(1)
        assert await received(stream) == 1
        assert await receive(stream) is not None
        assert producing.begun == [1, 0]


async def test_no_more_than_so_many_are_in_line() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        numbers = range(1, MOST_IN_LINE + 2)
        await stream.send_all(b"".join(map(produce_bytes, numbers)))
        await producing.until(lambda: len(producing.begun) == MOST_IN_LINE)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(producing.begun) == MOST_IN_LINE
        producing.respond(1)
        await producing.until(lambda: len(producing.begun) == MOST_IN_LINE + 1)
        for number in numbers[1:]:
            producing.respond(number)
        assert [await received(stream) for _ in numbers] == list(numbers)


async def test_a_client_that_sends_no_more_gets_its_answers() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        await stream.send_all(produce_bytes(1))
        await stream.send_eof()
        await producing.until(lambda: producing.begun == [1])
        await trio.testing.wait_all_tasks_blocked(0.01)
        producing.respond(1)
        assert await received(stream) == 1
        assert await receive(stream) is None


async def test_a_request_that_closes_the_connection_does_so_behind_the_answers() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        await stream.send_all(produce_bytes(1) + produce_bytes(-1))
        await producing.until(lambda: producing.begun == [1, -1])
        producing.respond(1)
        assert await received(stream) == 1
        assert await receive(stream) is None


async def test_a_lost_connection_gives_its_waits_up() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness:
        stream = await harness.connect()
        await stream.send_all(produce_bytes(1) + produce_bytes(2))
        await producing.until(lambda: producing.begun == [1, 2])
        reset(stream)
        await producing.until(lambda: producing.given_up == [1, 2])
        assert harness.bugs == []


async def test_a_bug_in_an_answer_closes_that_connection_alone() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as other:
        async with await harness.connect() as stream:
            await stream.send_all(produce_bytes(1))
            await other.send_all(produce_bytes(2))
            await producing.until(lambda: sorted(producing.begun) == [1, 2])
            producing.answer[1](lambda: ProduceResponse(throttle_time_ms=2**40))
            assert await receive(stream) is None
        assert len(harness.bugs) == 1
        producing.respond(2)
        assert await received(other) == 2


async def test_a_large_answer_is_sent_by_a_task_and_keeps_its_place() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness, await harness.connect() as stream:
        await stream.send_all(produce_bytes(1) + produce_bytes(2))
        await producing.until(lambda: producing.begun == [1, 2])
        producing.answer[1](long_response)
        producing.respond(2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert harness.server.metrics.counts["Produce"].times.count == 0, "it does not fit"
        assert [await received(stream) for _ in range(2)] == [1, 2]
        await trio.testing.wait_all_tasks_blocked()
        assert harness.server.metrics.counts["Produce"].times.count == 2


async def test_a_client_that_reads_no_answer_is_not_served_further() -> None:
    producing = Producing()
    async with serving(producing.handlers()) as harness:
        stream = await harness.connect()
        await stream.send_all(produce_bytes(1) + produce_bytes(2))
        await producing.until(lambda: producing.begun == [1, 2])
        producing.answer[1](long_response)
        await trio.testing.wait_all_tasks_blocked(0.01)
        reset(stream)
        await producing.until(lambda: 2 in producing.given_up)
        assert harness.bugs == []


def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def long_response() -> ProduceResponse:
    """Return a response that no socket takes at once."""
    topic = TopicProduceResponse(name="t", partition_responses=[])
    topic.partition_responses = [
        PartitionProduceResponse(
            index=index, error_code=0, base_offset=0, error_message="x" * 30_000
        )
        for index in range(PIECE // 10_000)
    ]
    return ProduceResponse(responses=[topic])
