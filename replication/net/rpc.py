"""Requests and their responses over one connection, read by the callers themselves.

    A: call ──send──┐                    ┌──receive──> A's answer
    B: call ────────┴──send──┐           │  then it is B's turn
    C: call ─────────────────┴──send──   └──receive──> B's answer, then C's

Rule 1: a peer answers in the order in which it was asked, so the caller that asked first reads
first. A client needs no task of its own, and a fetcher may have one buffer for all responses.

Rule 2: an answer without a caller would be read as the next caller's. So a
call that fails, is cancelled or runs out of time once its first byte may have been sent
closes the connection, and every other caller learns that it is lost. A call that is cancelled
before that, while it waits for others to send, has no effect.

Numbers, frames and versions are those of every connection (`replication.net.exchange`).
"""

from collections import deque
from functools import partial
from typing import Any, NoReturn, Self

import attrs
import trio

from replication.errors import PeerUnavailableError, UnansweredError
from replication.net.exchange import Exchange, SentRequest
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES, FrameReader, send_parts
from replication.net.pace import Turns, in_steps
from replication.net.sasl import VERSION as LOGIN_VERSION, SaslConnection, renew_login
from replication.net.seams import Connection, NodeClock, Transport
from replication.wire.schema import Part
from storage.attributes import define


@define(eq=False)
class _Waiting:
    """A call whose response is awaited."""

    call: SentRequest
    turn: trio.Event | None = None
    """Set when the caller is the first in line; None while it does not wait for that."""
    out_of_time: bool = False

    def wake(self) -> None:
        if self.turn is not None:
            self.turn.set()


@define(eq=False)
class RpcClient:
    """Calls to one peer; several callers at once are answered in the order in which they asked.

    With `reuse_buffer` a response is valid until the next call, so only one may be in flight.
    """

    connection: Connection
    client_id: str = attrs.field(kw_only=True)
    clock: NodeClock = attrs.field(kw_only=True)
    max_frame_bytes: int = attrs.field(default=DEFAULT_MAX_FRAME_BYTES, kw_only=True)
    reuse_buffer: bool = attrs.field(default=False, kw_only=True)
    closed: bool = attrs.field(init=False, default=False)
    _reader: FrameReader = attrs.field(init=False)
    _sending: Turns = attrs.field(init=False, factory=Turns)
    _exchange: Exchange = attrs.field(init=False)
    _in_flight: deque[_Waiting] = attrs.field(init=False, factory=deque)
    _logs_in: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._logs_in = isinstance(self.connection, SaslConnection)
        self._exchange = Exchange(self.connection.peer, self.client_id)
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
        """Return a client over a new connection; PeerUnavailableError if there is none in time."""
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
        """Return the response to `request`.

        PeerUnavailableError if the connection is lost or the time is up, ProtocolError
        if what came is not the response; the client is closed then.
        """
        call, parts = await self._encode(request, version=version)
        waiting = _Waiting(call)
        alarm = self.clock.alarm(
            self.clock.now() + timeout_ms / 1000, partial(self._close_for_want_of, waiting)
        )
        try:
            await self._send(parts, waiting)
            return await self._receive(waiting)
        except PeerUnavailableError:
            if waiting.out_of_time:
                raise self._out_of_time(call, timeout_ms) from None
            raise
        finally:
            alarm.call_off()

    async def send_unanswered(self, request: object, *, version: int, timeout_ms: int) -> None:
        """Send a request that has no response: Produce with acks=0."""
        call, parts = await self._encode(request, version=version)
        with self.clock.move_on_after(timeout_ms / 1000) as scope:
            await self._send(parts, None)
        if scope.cancelled_caught:
            raise self._out_of_time(call, timeout_ms)

    def close(self) -> None:
        """Close the connection and wake every caller that waits. Twice is harmless."""
        self.closed = True
        self.connection.close()
        for waiting in self._in_flight:
            waiting.wake()

    async def _encode(self, request: object, *, version: int) -> tuple[SentRequest, list[Part]]:
        call = self._exchange.number(request, version)
        parts = self._exchange.short_frame(call, request)
        if parts is None:
            parts = await in_steps(self._exchange.frame_in_steps(call, request))
        return call, parts

    async def _send(self, parts: list[Part], waiting: _Waiting | None) -> None:
        async with self._sending:
            self._check_open()
            try:
                if self._logs_in:
                    await renew_login(self.connection, self._ask_at_once)
                if waiting is not None:
                    self._take_place_in_line(waiting)
                await send_parts(self.connection, parts)
            except BaseException:
                self.close()
                raise

    async def _ask_at_once(self, request: object) -> object:
        """Return the response to a request of the login; the caller has the turn to send."""
        call, parts = await self._encode(request, version=LOGIN_VERSION)
        waiting = _Waiting(call)
        self._take_place_in_line(waiting)
        await send_parts(self.connection, parts)
        return await self._receive(waiting)

    def _take_place_in_line(self, waiting: _Waiting) -> None:
        assert not (self.reuse_buffer and self._in_flight), (
            "a second call would overwrite the first one's response"
        )
        self._in_flight.append(waiting)

    async def _receive(self, waiting: _Waiting) -> object:
        try:
            self._check_open()
            if self._in_flight[0] is not waiting:
                await self._wait_for_turn(waiting)
            frame = await self._reader.receive_frame()
            if frame is None:
                self._fail_unanswered(waiting.call)
            response = await self._exchange.read_in_turns(waiting.call, frame)
        except BaseException:
            self.close()
            raise
        self._in_flight.popleft()
        if self._in_flight:
            self._in_flight[0].wake()
        return response

    async def _wait_for_turn(self, waiting: _Waiting) -> None:
        waiting.turn = trio.Event()
        await waiting.turn.wait()
        self._check_open()
        assert self._in_flight[0] is waiting, "the first in line reads first"

    def _fail_unanswered(self, call: SentRequest) -> NoReturn:
        raise UnansweredError(
            f"{self.connection.peer} closed the connection instead of answering {call}"
        )

    def _check_open(self) -> None:
        if self.closed:
            raise PeerUnavailableError(f"the connection to {self.connection.peer} was closed")

    def _close_for_want_of(self, waiting: _Waiting) -> None:
        """Close the connection because no answer to `waiting` has come in its time."""
        waiting.out_of_time = True
        self.close()

    def _out_of_time(self, call: SentRequest, timeout_ms: int) -> PeerUnavailableError:
        self.close()
        return PeerUnavailableError(
            f"{self.connection.peer} did not answer {call} within {timeout_ms} ms"
        )
