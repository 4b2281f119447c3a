"""One connection to one broker, from its first byte to its last; a task owns it.

    connect ── ApiVersions ──┬── writer: what is queued, in order, while few are in flight
                             ├── reader: the answer to the oldest in flight
                             └── watch:  the oldest is late, or nobody has said anything for long

Rule 1: a peer answers in the order in which it was asked. An answer to another question
than the oldest one ends the connection.

Rule 2: however it ends, everybody who waits is told, once. Whether the broker acted on what
it did not answer is not known.

Rule 3: who asked may be cancelled at any time. The answer is read all the same and belongs
to nobody; the connection lives on. (That is why the reader is not the caller, as it is in
`replication.net.rpc`.)

Rule 4: a broker that is throttling us is left alone for as long as it says (KIP-219).

(Kafka: NetworkClient, InFlightRequests, Selector.)
"""

import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio

from replication.client.errors import NO_ANSWER, UnsupportedVersionError
from replication.client.requests import PendingResponse, ask
from replication.errors import ErrorCode, PeerUnavailableError, ProtocolError
from replication.net.framing import FrameReader, send_parts
from replication.net.idle import idle_limit_seconds
from replication.net.sasl import VERSION as LOGIN_VERSION, renew_login
from replication.net.seams import Connection, NodeClock, Transport
from replication.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replication.wire.apis import API, ApiKey
from replication.wire.frames import decode_response, encode_request
from replication.wire.misfits import misfit
from replication.wire.schema import Part

SOFTWARE_NAME = "understudy"
SOFTWARE_VERSION = "0.1.0"
_MAX_CORRELATION_ID = 2**31 - 1

Versions = Mapping[int, tuple[int, int]]


@attrs.frozen
class Features:
    """What a whole cluster has, as of which state of its metadata (KIP-584)."""

    epoch: int = -1
    levels: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """What all connections of one client have in common."""

    client_id: str
    transport: Transport
    """It hands out connections ready to be used: see `replication.net.secure`."""
    clock: NodeClock
    max_in_flight: int
    max_frame_bytes: int
    request_timeout_ms: int
    max_idle_ms: int


@attrs.define(eq=False)
class BrokerConnection:
    """Queue with `send`; `run` is its task, and returns when the connection is gone."""

    host: str
    port: int
    settings: ConnectionSettings = attrs.field(kw_only=True)
    connect_timeout_ms: float = attrs.field(kw_only=True)
    on_ready: Callable[[], None] = attrs.field(kw_only=True)
    versions: Versions = attrs.field(init=False, factory=dict)
    """What the broker serves, once it has said so."""
    features: Features = attrs.field(init=False, factory=Features)
    ready: bool = attrs.field(init=False, default=False)
    lost: Exception | None = attrs.field(init=False, default=None)
    _connection: Connection | None = attrs.field(init=False, default=None)
    _queue: deque[PendingResponse] = attrs.field(init=False, factory=deque)
    _in_flight: deque[PendingResponse] = attrs.field(init=False, factory=deque)
    _last_correlation_id: int = attrs.field(init=False, default=-1)
    _to_write: trio.Event = attrs.field(init=False, factory=trio.Event)
    _to_watch: trio.Event = attrs.field(init=False, factory=trio.Event)
    _watched_until: float = attrs.field(init=False, default=0.0)
    _last_used: float = attrs.field(init=False, default=0.0)
    _throttled_until: float = attrs.field(init=False, default=0.0)

    @property
    def load(self) -> int:
        """Requests that have not been answered."""
        return len(self._queue) + len(self._in_flight)

    def send(self, pending: PendingResponse) -> None:
        assert self.lost is None, "a connection that is gone takes no requests"
        self._queue.append(pending)
        self._to_write.set()
        self._watch_for(pending)

    def close(self, why: Exception) -> None:
        """At once; `run` tells those who wait."""
        self.lost = self.lost or why
        if self._connection is not None:
            self._connection.close()

    # -- its task

    async def run(self) -> None:
        self._last_used = self._clock.now()
        try:
            await self._connect_and_carry()
        except NO_ANSWER as error:
            self.lost = self.lost or error
        finally:
            # Cancelled, it is the client that is going away.
            self.close(PeerUnavailableError("this client was closed"))
            self._tell_everybody()

    async def _connect_and_carry(self) -> None:
        transport = self.settings.transport
        with self._clock.move_on_after(self.connect_timeout_ms / 1000):
            self._connection = await transport.connect(self.host, self.port)
        if self._connection is None:
            raise PeerUnavailableError(
                f"no connection to {self._name} within {self.connect_timeout_ms:.0f} ms"
            )
        if self.lost is not None:
            raise PeerUnavailableError(f"given up while connecting to {self._name}")
        reader = FrameReader(self._connection, self.settings.max_frame_bytes)
        with self._clock.move_on_after(self.settings.request_timeout_ms / 1000):
            await self._ask_versions(reader)
        if not self.versions:
            raise PeerUnavailableError(f"{self._name} did not say in time what it serves")
        self.ready = True
        self.on_ready()
        async with trio.open_nursery() as nursery:
            for part in (self._write, lambda: self._read(reader), self._watch):
                nursery.start_soon(self._until_lost, part, nursery.cancel_scope)

    async def _until_lost(
        self, part: Callable[[], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        try:
            await part()
        except NO_ANSWER as error:
            self.lost = self.lost or error
            scope.cancel()

    def _tell_everybody(self) -> None:
        assert self.lost is not None, "a connection ends for a reason"
        for waiting in (*self._in_flight, *self._queue):
            if not waiting.done:
                waiting.fail(self.lost)
        self._in_flight.clear()
        self._queue.clear()

    # -- what it serves

    async def _ask_versions(self, reader: FrameReader) -> None:
        """KIP-511: the newest question first; a broker too old for it says what it knows."""
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        version = API[ApiKey.API_VERSIONS].max_version
        response = await self._exchange(reader, request, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
            older = known[0].max_version if known else 0
            response = await self._exchange(reader, request, max(min(older, version - 1), 0))
        if response.error_code != ErrorCode.NONE or not response.api_keys:
            error = ErrorCode.of(response.error_code)
            raise ProtocolError(f"{self._name} does not say what it serves: {error.name}")
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }
        self.features = Features(
            response.finalized_features_epoch,
            {each.name: each.max_version_level for each in response.finalized_features},
        )

    async def _exchange(
        self, reader: FrameReader, request: ApiVersionsRequest, version: int
    ) -> ApiVersionsResponse:
        sent = self._encoded(request, version)
        await send_parts(self._open, sent)
        frame = await self._frame(reader)
        correlation_id, response = decode_response(
            frame, api_key=ApiKey.API_VERSIONS, version=version
        )
        self._check_correlation(correlation_id, self._last_correlation_id)
        assert isinstance(response, ApiVersionsResponse)
        return response

    # -- writing

    async def _write(self) -> None:
        while True:
            while not self._queue or len(self._in_flight) >= self.settings.max_in_flight:
                self._to_write = trio.Event()
                await self._to_write.wait()
            if self._throttled_until > self._clock.now():
                await self._clock.sleep_until(self._throttled_until)
            await renew_login(self._open, self._ask_at_once)
            await self._write_one(self._queue[0])

    async def _write_one(self, pending: PendingResponse) -> None:
        request = pending.request
        try:
            pending.version = request.version_for(self.versions.get(request.api_key))
        except UnsupportedVersionError as error:
            self._queue.popleft()
            pending.fail(error)
            return
        message = request.build(pending.version)
        try:
            parts = self._encoded(message, pending.version)
        except (struct.error, TypeError, AttributeError) as error:
            wrong = misfit(message, pending.version)
            if not wrong:
                raise
            self._queue.popleft()
            pending.fail(TypeError(f"{type(message).__name__} cannot have {wrong}: {error}"))
            return
        pending.correlation_id = self._last_correlation_id
        self._queue.popleft()
        self._last_used = self._clock.now()
        if request.answered:
            self._in_flight.append(pending)
            await send_parts(self._open, parts)
            return
        try:
            await send_parts(self._open, parts)
        except BaseException:
            pending.fail(PeerUnavailableError(f"lost {self._name} while {pending} was sent"))
            raise
        pending.complete(None)

    async def _ask_at_once(self, message: object) -> object:
        """In front of all that is queued: what a login needs that has to be renewed."""
        deadline = self._clock.now() + self.settings.request_timeout_ms / 1000
        pending = PendingResponse(ask(message), deadline=deadline)
        pending.version = LOGIN_VERSION
        parts = self._encoded(message, LOGIN_VERSION)
        pending.correlation_id = self._last_correlation_id
        self._in_flight.append(pending)
        self._watch_for(pending)
        await send_parts(self._open, parts)
        return await pending.wait()

    def _encoded(self, message: object, version: int) -> list[Part]:
        """Its frame, under the next correlation id."""
        last = self._last_correlation_id
        self._last_correlation_id = 0 if last == _MAX_CORRELATION_ID else last + 1
        return encode_request(
            message,
            version=version,
            correlation_id=self._last_correlation_id,
            client_id=self.settings.client_id,
        )

    # -- reading

    async def _read(self, reader: FrameReader) -> None:
        """Also while nothing is in flight: that is how the end of a connection is heard."""
        while True:
            frame = await self._frame(reader)
            if not self._in_flight:
                raise ProtocolError(f"{self._name} answers what it was not asked")
            pending = self._in_flight[0]
            correlation_id, response = decode_response(
                frame, api_key=pending.request.api_key, version=pending.version
            )
            self._check_correlation(correlation_id, pending.correlation_id)
            self._in_flight.popleft()
            self._last_used = self._clock.now()
            throttled_ms = getattr(response, "throttle_time_ms", 0)
            if throttled_ms > 0:
                self._throttled_until = self._last_used + throttled_ms / 1000
            if self._queue:
                self._to_write.set()  # it may have waited for fewer to be in flight
            pending.complete(response)

    async def _frame(self, reader: FrameReader) -> memoryview:
        frame = await reader.receive_frame()
        if frame is None:
            raise PeerUnavailableError(f"{self._name} closed the connection")
        return frame

    def _check_correlation(self, answered: int, asked: int) -> None:
        if answered != asked:
            raise ProtocolError(f"{self._name} answered request {answered}, not {asked}")

    # -- being late

    def _watch_for(self, pending: PendingResponse) -> None:
        if pending.deadline < self._watched_until:
            self._to_watch.set()

    async def _watch(self) -> None:
        while True:
            self._to_watch = trio.Event()
            self._watched_until = self._next_deadline()
            with self._clock.move_on_after(self._watched_until - self._clock.now()):
                await self._to_watch.wait()
            self._check_late()

    def _next_deadline(self) -> float:
        deadlines = [each.deadline for each in (*self._in_flight, *self._queue)]
        idle_from = self._last_used + idle_limit_seconds(self.settings.max_idle_ms)
        # One that waits for long is not idle, and what it waits for has a deadline.
        if idle_from > self._clock.now() or not deadlines:
            deadlines.append(idle_from)
        return min(deadlines)

    def _check_late(self) -> None:
        now = self._clock.now()
        for pending in (*self._in_flight, *self._queue):
            if pending.deadline <= now:
                raise PeerUnavailableError(f"{self._name} did not answer {pending} in time")
        idle_ms = self.settings.max_idle_ms
        if not self.load and now >= self._last_used + idle_limit_seconds(idle_ms):
            raise PeerUnavailableError(f"nothing was asked of {self._name} for {idle_ms} ms")

    @property
    def _clock(self) -> NodeClock:
        return self.settings.clock

    @property
    def _open(self) -> Connection:
        assert self._connection is not None, "connected first"
        return self._connection

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}"
