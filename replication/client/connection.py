"""One connection to one broker, from its first byte to its last; a task owns it.

    connect ── ApiVersions ──┬── writer: what is queued, in order, while few are in flight
                             ├── reader: the answer to the oldest in flight
                             └── watch:  the oldest is late, or the connection has been idle for long

Rule 1: a peer answers in the order in which it was asked. A response to another request than
the oldest one ends the connection.

Rule 2: however the connection ends, every request that waits fails, once. Whether the broker
acted on a request that it did not answer is not known.

Rule 3: a caller may be cancelled at any time. The response is read all the same and dropped;
the connection lives on. That is why a task reads here, and not the caller as in
`replication.net.rpc`. The task also notices at once that an idle connection has ended.

Rule 4: nothing is sent to a broker that throttles us for as long as it says (KIP-219).

Numbers, frames and versions are those of every connection (`replication.net.exchange`).
(Kafka: NetworkClient, InFlightRequests, Selector.)
"""

import struct
from collections import deque
from collections.abc import Awaitable, Callable

import attrs
import trio

from replication.client.config import ClientConfig
from replication.client.errors import UnsupportedVersionError
from replication.client.requests import PendingResponse, ask
from replication.errors import NO_ANSWER, PeerUnavailableError, ProtocolError
from replication.net.exchange import Exchange, Features, Versions, ask_versions
from replication.net.framing import FrameReader, send_parts
from replication.net.idle import idle_limit_seconds
from replication.net.sasl import VERSION as LOGIN_VERSION, renew_login
from replication.net.seams import Connection, NodeClock, Seams
from replication.wire.misfits import misfit
from storage.attributes import define


@define(eq=False)
class BrokerConnection:
    """A connection and its queue; `run` is its task, and returns when the connection is gone."""

    host: str
    port: int
    config: ClientConfig = attrs.field(kw_only=True)
    seams: Seams = attrs.field(kw_only=True)
    """Seams whose connections are secured and logged in (`replication.net.secure`)."""
    max_in_flight: int = attrs.field(kw_only=True)
    connect_timeout_ms: float = attrs.field(kw_only=True)
    on_ready: Callable[[], None] = attrs.field(kw_only=True)
    versions: Versions = attrs.field(init=False, factory=dict)
    """The versions that the broker serves; empty until it has said so."""
    features: Features = attrs.field(init=False, factory=Features)
    ready: bool = attrs.field(init=False, default=False)
    lost: Exception | None = attrs.field(init=False, default=None)
    _connection: Connection | None = attrs.field(init=False, default=None)
    _queue: deque[PendingResponse] = attrs.field(init=False, factory=deque)
    _in_flight: deque[PendingResponse] = attrs.field(init=False, factory=deque)
    _exchange: Exchange = attrs.field(init=False)
    _to_write: trio.Event = attrs.field(init=False, factory=trio.Event)
    _to_watch: trio.Event = attrs.field(init=False, factory=trio.Event)
    _watched_until: float = attrs.field(init=False, default=0.0)
    _last_used: float = attrs.field(init=False, default=0.0)
    _throttled_until: float = attrs.field(init=False, default=0.0)

    def __attrs_post_init__(self) -> None:
        self._exchange = Exchange(self._name, self.config.client_id)

    @property
    def load(self) -> int:
        """The number of requests that have not been answered."""
        return len(self._queue) + len(self._in_flight)

    def send(self, pending: PendingResponse) -> None:
        assert self.lost is None, "a connection that is gone takes no requests"
        self._queue.append(pending)
        self._to_write.set()
        self._watch_for(pending)

    def close(self, why: Exception) -> None:
        """Close the connection at once; `run` fails the requests that wait."""
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
            # Without an error it was cancelled: the client is being closed.
            self.close(PeerUnavailableError("this client was closed"))
            self._fail_waiting()

    async def _connect_and_carry(self) -> None:
        transport = self.seams.transport
        with self._clock.move_on_after(self.connect_timeout_ms / 1000):
            self._connection = await transport.connect(self.host, self.port)
        if self._connection is None:
            raise PeerUnavailableError(
                f"no connection to {self._name} within {self.connect_timeout_ms:.0f} ms"
            )
        if self.lost is not None:
            raise PeerUnavailableError(f"given up while connecting to {self._name}")
        reader = FrameReader(self._connection)
        with self._clock.move_on_after(self.config.request_timeout_ms / 1000):
            await self._learn_versions(reader)
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

    def _fail_waiting(self) -> None:
        assert self.lost is not None, "a connection ends for a reason"
        for waiting in (*self._in_flight, *self._queue):
            if not waiting.done:
                waiting.fail(self.lost)
        self._in_flight.clear()
        self._queue.clear()

    async def _learn_versions(self, reader: FrameReader) -> None:
        async def ask_now(message: object, version: int) -> object:
            call = self._exchange.number(message, version)
            await send_parts(self._open, self._exchange.frame(call, message))
            return self._exchange.read(call, await self._frame(reader))

        self.versions, self.features = await ask_versions(self._name, ask_now)

    # -- writing

    async def _write(self) -> None:
        while True:
            while not self._queue or len(self._in_flight) >= self.max_in_flight:
                self._to_write = trio.Event()
                await self._to_write.wait()
            if self._throttled_until > self._clock.now():
                await self._clock.sleep_until(self._throttled_until)
            await renew_login(self._open, self._ask_at_once)
            await self._write_one(self._queue[0])

    async def _write_one(self, pending: PendingResponse) -> None:
        request = pending.request
        try:
            version = request.version_for(self.versions.get(request.api_key))
        except UnsupportedVersionError as error:
            self._queue.popleft()
            pending.fail(error)
            return
        message = request.build(version)
        call = self._exchange.number(message, version)
        try:
            parts = self._exchange.frame(call, message)
        except (struct.error, TypeError, AttributeError) as error:
            wrong = misfit(message, version)
            if not wrong:
                raise
            self._queue.popleft()
            pending.fail(TypeError(f"{type(message).__name__} cannot have {wrong}: {error}"))
            return
        pending.call = call
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
        """Return the response to a request that renews the login, ahead of all that is queued."""
        deadline = self._clock.now() + self.config.request_timeout_ms / 1000
        pending = PendingResponse(ask(message), deadline=deadline)
        pending.call = self._exchange.number(message, LOGIN_VERSION)
        self._in_flight.append(pending)
        self._watch_for(pending)
        await send_parts(self._open, self._exchange.frame(pending.call, message))
        return await pending.wait()

    # -- reading

    async def _read(self, reader: FrameReader) -> None:
        """Read responses; also while nothing is in flight, to notice that the peer has closed."""
        while True:
            frame = await self._frame(reader)
            if not self._in_flight:
                raise ProtocolError(f"{self._name} sent a response to no request")
            pending = self._in_flight[0]
            assert pending.call is not None, "what is in flight was sent"
            response = await self._exchange.read_in_turns(pending.call, frame)
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
        idle_from = self._last_used + idle_limit_seconds(self.config.connections_max_idle_ms)
        # A connection that waits for a response is not idle, and the response has a deadline.
        if idle_from > self._clock.now() or not deadlines:
            deadlines.append(idle_from)
        return min(deadlines)

    def _check_late(self) -> None:
        now = self._clock.now()
        for pending in (*self._in_flight, *self._queue):
            if pending.deadline <= now:
                raise PeerUnavailableError(f"{self._name} did not answer {pending} in time")
        idle_ms = self.config.connections_max_idle_ms
        if not self.load and now >= self._last_used + idle_limit_seconds(idle_ms):
            raise PeerUnavailableError(f"{self._name} was not used for {idle_ms} ms")

    @property
    def _clock(self) -> NodeClock:
        return self.seams.clock

    @property
    def _open(self) -> Connection:
        assert self._connection is not None, "connected first"
        return self._connection

    @property
    def _name(self) -> str:
        return f"{self.host}:{self.port}"
