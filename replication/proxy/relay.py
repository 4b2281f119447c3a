"""One connection of a client, and the connection behind it to a broker.

    client ── request ──┬── no rule for it ──────────────────── its bytes ──> broker
                        └── a rule: wait until all is answered
                            ── the gate of `replication.faults` ── encoded ──> broker
    client <── bytes ───┬── names no broker ─────────────────────── response ── broker
           <── encoded ─┴── names brokers: their addresses replaced ──┘

Rule 1: two tasks, one for each direction. Each holds one frame, no longer than
`socket.request.max.bytes`, and reads the next one when that is sent: a peer that does not read
stops the other one's sender.

Rule 2: a broker answers in the order of the requests, so `_expected` says what each response is.
Correlation ids are the client's own.

Rule 3: a request that a rule is about waits until the earlier ones are answered, and the next one
waits for its answer, as at our own brokers (`replication.server.server`).

Rule 4: when one of the two connections ends, the other is closed.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import attrs
import trio

from replication.errors import ErrorCode, ProtocolError
from replication.faults.node_faults import FaultGate
from replication.net.framing import LENGTH_SIZE, FrameReader, send_parts
from replication.net.pace import in_steps
from replication.net.raising import raising_the_first
from replication.net.seams import Connection
from replication.proxy.links import ClientLinks
from replication.proxy.rules.addresses import (
    cut_versions,
    has_addresses,
    is_answered,
    may_pass,
    version_of_answer,
)
from replication.proxy.rules.sessions import SeenSessions
from replication.wire.apis import ApiKey
from replication.wire.fetch import FetchRequest, FetchResponse
from replication.wire.frames import (
    AT_ONCE_BYTES,
    RequestHeader,
    decode_request_in_steps,
    decode_response,
    decode_response_in_steps,
    encode_request_in_steps,
    encode_response_in_steps,
    refusal,
    request_header,
)
from replication.wire.schema import Part
from storage.attributes import define

MOST_UNANSWERED: Final = 1_000
"""The requests of one connection that may wait for their responses."""

Readdress: TypeAlias = Callable[[ApiKey, Any], Awaitable[bool]]
"""Replaces the addresses in a response, and returns whether there were any."""


@define(eq=False)
class _Expected:
    """A response that is to come from the broker."""

    header: RequestHeader
    is_read: bool
    """Whether it is decoded on its way."""
    response: Any = None
    """The response to a request that a rule is about."""
    arrived: trio.Event | None = None
    used: trio.Event | None = None
    """Set when the response, which lies in the frame's buffer, is no longer needed."""


@define(eq=False, kw_only=True)
class Relay:
    """The frames of one connection, both ways."""

    client: Connection
    broker: Connection
    gate: FaultGate
    links: ClientLinks
    sessions: SeenSessions
    readdress: Readdress | None
    """None relays addresses and versions as they are."""
    max_frame_bytes: int
    client_id: str | None = attrs.field(init=False, default=None)
    """The client id of the last request."""
    _expected: deque[_Expected] = attrs.field(init=False, factory=deque)
    _fewer: trio.Event | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        """Relay until one side has closed.

        PeerUnavailableError if a connection is lost, ProtocolError for what is not Kafka's protocol,
        FaultInjectedError if a rule closes the connection.
        """
        try:
            with raising_the_first():
                async with trio.open_nursery() as nursery:
                    for direction in (self._requests, self._responses):
                        nursery.start_soon(self._until_closed, direction, nursery.cancel_scope)
        finally:
            self.client.close()
            self.broker.close()

    async def _until_closed(
        self, direction: Callable[[], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        await direction()
        scope.cancel()

    # -- requests

    async def _requests(self) -> None:
        reader = self._reader(self.client)
        while (frame := await reader.receive_frame()) is not None:
            header, body = request_header(frame)
            self.client_id = header.client_id
            if self.links.cuts:
                await self._passed(is_request=True)
            if len(self._expected) >= MOST_UNANSWERED:
                await self._wait_until_fewer_than(MOST_UNANSWERED)
            if body is None:
                await self._pass_unknown(header, frame)
            elif self.gate.faults.concern(ApiKey(header.api_key)):
                await self._pass_gate(header, frame)
            else:
                await self._pass(header, frame, body)

    async def _pass(self, header: RequestHeader, frame: memoryview, body: int) -> None:
        if header.api_key == ApiKey.FETCH:
            self.sessions.forget_all()
        if is_answered(header, frame, body):
            self._expected.append(_Expected(header, self._is_read(header)))
        await self._send_frame(self.broker, frame)

    async def _pass_unknown(self, header: RequestHeader, frame: memoryview) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            await self._wait_until_fewer_than(1)
            parts = refusal(header)
            assert parts is not None, "ApiVersions is always answered"
            await send_parts(self.client, parts)
            return
        if self.readdress is not None and not may_pass(header):
            raise ProtocolError(
                f"API {header.api_key} version {header.api_version} may name brokers,"
                " and cannot be read here"
            )
        self._expected.append(_Expected(header, is_read=False))
        await self._send_frame(self.broker, frame)

    async def _pass_gate(self, header: RequestHeader, frame: memoryview) -> None:
        await self._wait_until_fewer_than(1)
        _, request = await in_steps(decode_request_in_steps(frame))
        response = self.sessions.refusal(request) if isinstance(request, FetchRequest) else None
        used = trio.Event()
        try:
            if response is None:

                async def respond(wanted: Any) -> Any:
                    return await self._asked(header, wanted, used)

                response = await self.gate.answer(header, request, self.client, respond)
            if response is not None:
                await self._send_message(header, response)
        finally:
            used.set()

    async def _asked(self, header: RequestHeader, request: Any, used: trio.Event) -> Any:
        """Return the broker's response to a request; None if it has none."""
        parts = await in_steps(
            encode_request_in_steps(
                request,
                version=header.api_version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
            )
        )
        if getattr(request, "acks", None) == 0:
            await send_parts(self.broker, parts)
            return None
        expected = _Expected(header, is_read=True, arrived=trio.Event(), used=used)
        self._expected.append(expected)
        await send_parts(self.broker, parts)
        assert expected.arrived is not None
        await expected.arrived.wait()
        response = expected.response
        if isinstance(response, FetchResponse) and response.error_code == ErrorCode.NONE:
            self.sessions.note(request, response)
        return response

    # -- responses

    async def _responses(self) -> None:
        reader = self._reader(self.broker)
        while (frame := await reader.receive_frame()) is not None:
            if not self._expected:
                raise ProtocolError(f"{self.broker.peer} sent a response to no request")
            expected = self._expected[0]
            if self.links.cuts:
                await self._passed(is_request=False)
            if not expected.is_read:
                await self._send_frame(self.client, frame)
            else:
                await self._pass_read(expected, frame)
            self._expected.popleft()
            if self._fewer is not None:
                self._fewer.set()

    async def _pass_read(self, expected: _Expected, frame: memoryview) -> None:
        header = expected.header
        key, version = ApiKey(header.api_key), header.api_version
        if frame.nbytes <= AT_ONCE_BYTES:
            _, response = decode_response(frame, api_key=key, version=version)
        else:
            _, response = await in_steps(
                decode_response_in_steps(frame, api_key=key, version=version)
            )
        changed = await self._changed(key, version, response)
        if expected.arrived is not None and expected.used is not None:
            expected.response = response
            expected.arrived.set()
            await expected.used.wait()
        elif changed:
            await self._send_message(header, response)
        else:
            await self._send_frame(self.client, frame)

    async def _changed(self, key: ApiKey, version: int, response: Any) -> bool:
        """Change what a client must not see of a response; return whether there was anything."""
        if self.readdress is None:
            return False
        if key is ApiKey.API_VERSIONS:
            cut_versions(response)
            return True
        return has_addresses(key, version) and await self.readdress(key, response)

    def _is_read(self, header: RequestHeader) -> bool:
        if self.readdress is None:
            return False
        key = ApiKey(header.api_key)
        return key is ApiKey.API_VERSIONS or has_addresses(key, header.api_version)

    # -- both

    def _reader(self, connection: Connection) -> FrameReader:
        return FrameReader(connection, self.max_frame_bytes, reuse_buffer=True)

    async def _passed(self, *, is_request: bool) -> None:
        await self.links.passed(self.client_id, self.gate.node_id, is_request=is_request)

    async def _wait_until_fewer_than(self, number: int) -> None:
        while len(self._expected) >= number:
            self._fewer = trio.Event()
            await self._fewer.wait()

    async def _send_message(self, header: RequestHeader, response: Any) -> None:
        parts = await in_steps(
            encode_response_in_steps(
                response,
                version=version_of_answer(response, header.api_version),
                correlation_id=header.correlation_id,
            )
        )
        await send_parts(self.client, parts)

    async def _send_frame(self, to: Connection, frame: memoryview) -> None:
        parts: list[Part] = [frame.nbytes.to_bytes(LENGTH_SIZE, "big"), frame]
        await send_parts(to, parts)
