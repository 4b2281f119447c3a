"""Requests and their responses over one connection.

    A: call ──send──┐                    ┌──receive──> A's answer
    B: call ────────┴──send──┐           │  then it is B's turn
    C: call ─────────────────┴──send──   └──receive──> B's answer, then C's

Rule 1: a peer answers in the order in which it was asked, so whoever asked first reads
first. The reader is the caller itself: a client needs no task of its own, and when nobody
asks, nobody reads.

Rule 2: an answer that nobody waits for any more would be read as the next caller's. So a
call that fails, is cancelled or runs out of time once its first byte may have been sent
closes the connection, and every other caller learns that it is lost. Cancelled before
that, while it waits for others to send, it leaves no trace.

Rule 3: the correlation id is checked all the same. A peer that answers another question
than the one asked first does not speak the protocol.
"""

from collections import deque
from functools import partial
from typing import Any, Self

import attrs
import trio

from replication.errors import PeerUnavailableError, ProtocolError
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES, LENGTH_SIZE, FrameReader, send_parts
from replication.net.pace import in_steps
from replication.net.sasl import VERSION as LOGIN_VERSION, renew_login
from replication.net.seams import Connection, NodeClock, Transport
from replication.net.turns import Turns
from replication.wire.apis import ApiKey, api_of
from replication.wire.frames import (
    AT_ONCE_BYTES,
    decode_response,
    decode_response_in_steps,
    encode_request_in_steps,
    total_size,
)
from replication.wire.schema import Part

_MAX_CORRELATION_ID = 2**31 - 1


@attrs.define
class SentRequests:
    """What this client has sent of one API; bytes without the four of the length."""

    count: int = 0
    bytes: int = 0
    last_bytes: int = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.bytes += size
        self.last_bytes = size


@attrs.define(eq=False)
class _Call:
    """A request that has been sent, or is about to be."""

    api_key: ApiKey
    version: int
    correlation_id: int
    turn: trio.Event = attrs.field(factory=trio.Event)
    out_of_time: bool = False

    def __str__(self) -> str:
        return f"{self.api_key.name} v{self.version}"


@attrs.define(eq=False)
class RpcClient:
    """Asks one peer; several callers at once are answered first come, first served.

    With `reuse_buffer` a response is valid until the next call, so only one may be under way.
    """

    connection: Connection
    client_id: str = attrs.field(kw_only=True)
    clock: NodeClock = attrs.field(kw_only=True)
    max_frame_bytes: int = attrs.field(default=DEFAULT_MAX_FRAME_BYTES, kw_only=True)
    reuse_buffer: bool = attrs.field(default=False, kw_only=True)
    request_bytes: dict[ApiKey, SentRequests] = attrs.field(init=False, factory=dict)
    closed: bool = attrs.field(init=False, default=False)
    _reader: FrameReader = attrs.field(init=False)
    _sending: Turns = attrs.field(init=False, factory=Turns)
    _in_flight: deque[_Call] = attrs.field(init=False, factory=deque)
    _last_correlation_id: int = attrs.field(init=False, default=-1)

    def __attrs_post_init__(self) -> None:
        self._reader = FrameReader(
            self.connection, self.max_frame_bytes, reuse_buffer=self.reuse_buffer
        )

    @classmethod
    async def connect(
        cls,
        transport: Transport,
        host: str,
        port: int,
        *,
        client_id: str,
        clock: NodeClock,
        timeout_ms: int,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        reuse_buffer: bool = False,
    ) -> Self:
        """A client over a new connection; PeerUnavailableError where there is none in time."""
        connection: Connection | None = None
        with clock.move_on_after(timeout_ms / 1000):
            connection = await transport.connect(host, port)
        if connection is None:
            raise PeerUnavailableError(f"no connection to {host}:{port} within {timeout_ms} ms")
        return cls(
            connection,
            client_id=client_id,
            clock=clock,
            max_frame_bytes=max_frame_bytes,
            reuse_buffer=reuse_buffer,
        )

    async def call(self, request: object, *, version: int, timeout_ms: int) -> Any:
        """The response to `request`.

        PeerUnavailableError where the connection is lost or the time is up, ProtocolError
        where what came is not the answer; the client is closed then.
        """
        call, parts = await self._encode(request, version=version)
        alarm = self.clock.alarm(
            self.clock.now() + timeout_ms / 1000, partial(self._close_for_want_of, call)
        )
        try:
            await self._send(call, parts, answered=True)
            return await self._receive(call)
        except PeerUnavailableError:
            if call.out_of_time:
                raise self._out_of_time(call, timeout_ms) from None
            raise
        finally:
            alarm.call_off()

    async def tell(self, request: object, *, version: int, timeout_ms: int) -> None:
        """Send a request that has no response: Produce with acks=0."""
        call, parts = await self._encode(request, version=version)
        with self.clock.move_on_after(timeout_ms / 1000) as scope:
            await self._send(call, parts, answered=False)
        if scope.cancelled_caught:
            raise self._out_of_time(call, timeout_ms)

    def close(self) -> None:
        """Close the connection and tell whoever waits for an answer. Twice is harmless."""
        self.closed = True
        self.connection.close()
        for waiting in self._in_flight:
            waiting.turn.set()

    async def _encode(self, request: object, *, version: int) -> tuple[_Call, list[Part]]:
        last = self._last_correlation_id
        self._last_correlation_id = 0 if last == _MAX_CORRELATION_ID else last + 1
        call = _Call(api_of(type(request)).key, version, self._last_correlation_id)
        parts = await in_steps(
            encode_request_in_steps(
                request,
                version=version,
                correlation_id=call.correlation_id,
                client_id=self.client_id,
            )
        )
        return call, parts

    async def _send(self, call: _Call, parts: list[Part], *, answered: bool) -> None:
        async with self._sending:
            self._check_open()
            try:
                await renew_login(self.connection, self._ask_at_once)
                if answered:
                    self._take_place_in_line(call)
                await send_parts(self.connection, parts)
            except BaseException:
                self.close()
                raise
        size = total_size(parts) - LENGTH_SIZE
        self.request_bytes.setdefault(call.api_key, SentRequests()).add(size)

    async def _ask_at_once(self, request: object) -> object:
        """Of whoever has the turn to send, in front of what it means to send."""
        call, parts = await self._encode(request, version=LOGIN_VERSION)
        self._take_place_in_line(call)
        await send_parts(self.connection, parts)
        return await self._receive(call)

    def _take_place_in_line(self, call: _Call) -> None:
        assert not (self.reuse_buffer and self._in_flight), (
            "a second call would overwrite the first one's response"
        )
        self._in_flight.append(call)
        if len(self._in_flight) == 1:
            call.turn.set()

    async def _receive(self, call: _Call) -> object:
        try:
            response = await self._receive_in_turn(call)
        except BaseException:
            self.close()
            raise
        self._in_flight.popleft()
        if self._in_flight:
            self._in_flight[0].turn.set()
        return response

    async def _receive_in_turn(self, call: _Call) -> object:
        if not call.turn.is_set():
            await call.turn.wait()
        self._check_open()
        assert self._in_flight[0] is call, "the first in line reads first"
        frame = await self._reader.receive_frame()
        if frame is None:
            raise PeerUnavailableError(
                f"{self.connection.peer} closed the connection instead of answering {call}"
            )
        return await self._decode(frame, call)

    async def _decode(self, frame: memoryview, call: _Call) -> object:
        if len(frame) <= AT_ONCE_BYTES:
            correlation_id, response = decode_response(
                frame, api_key=call.api_key, version=call.version
            )
        else:
            correlation_id, response = await in_steps(
                decode_response_in_steps(frame, api_key=call.api_key, version=call.version)
            )
        if correlation_id != call.correlation_id:
            raise ProtocolError(
                f"{self.connection.peer} answered request {correlation_id},"
                f" not {call.correlation_id} ({call})"
            )
        return response

    def _check_open(self) -> None:
        if self.closed:
            raise PeerUnavailableError(f"the connection to {self.connection.peer} was closed")

    def _close_for_want_of(self, call: _Call) -> None:
        """Its time is up, and no answer has come: whoever waits on the connection learns of it."""
        call.out_of_time = True
        self.close()

    def _out_of_time(self, call: _Call, timeout_ms: int) -> PeerUnavailableError:
        self.close()
        return PeerUnavailableError(
            f"{self.connection.peer} did not answer {call} within {timeout_ms} ms"
        )
