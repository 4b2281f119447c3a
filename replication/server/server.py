"""Kafka's requests on a listener: a task for each connection, answers in the order of requests.

    bytes ── frame ── header ── request ── (faults) ── handler ── answer
               │        │         │                       │
               │        │         │                       └ None: acks=0, and nothing is sent
               │        │         └ not decodable: closed
               │        └ an API or a version not served: closed;
               │          but ApiVersions is answered, at version 0 (KIP-511)
               └ over socket.request.max.bytes: closed

Rule 1: a connection's next request is read when the last one has been answered. That is
Kafka's order (SocketServer mutes the channel), and it bounds a connection to one frame. If a peer
does not read its answer, nothing more is read from it, and it is closed once it is idle too long.

Rule 2: what a peer sends can only close that peer's connection. A bug of ours does no more: it
goes to `on_bug`, and the one connection is closed.

Rule 3: a server advertises exactly the versions that it serves, with one exception: Produce from
version 0, because librdkafka stops compressing if the lowest is 3 (KAFKA-18659). A request of
version 0 to 2 closes the connection.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import attrs
import trio

from replication.errors import (
    AuthenticationError,
    ErrorCode,
    OnBug,
    PeerUnavailableError,
    ProtocolError,
    TooManyConnectionsError,
)
from replication.events import ConnectionRefused, EventSink
from replication.faults.node_faults import FaultGate, FaultInjectedError
from replication.leader.purgatory import WAITED, Waited
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES, LENGTH_SIZE, FrameReader, send_parts
from replication.net.idle import IdleWatch
from replication.net.pace import WORK, RequestWork, in_steps
from replication.net.seams import Listener, NodeClock
from replication.security.rules.principal import ANONYMOUS
from replication.security.rules.scram import LoginFailedError
from replication.server.authentication import Gate, Session
from replication.server.connection_quotas import ConnectionQuotas, ConnectionSlot
from replication.server.request_metrics import RequestMetrics, Stopwatch
from replication.wire.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from replication.wire.apis import API, ApiKey, api_numbered
from replication.wire.frames import (
    AT_ONCE_BYTES,
    RequestHeader,
    UnsupportedApiVersionError,
    decode_request,
    decode_request_in_steps,
    encode_response_in_steps,
    encode_short_response,
    refusal,
)
from replication.wire.schema import Part
from storage.errors import RegionAbortedError
from storage.log.file_region import FileRegion
from storage.types import Buffer

# ApiVersionsRequest.isValid
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_CLIENT_SOFTWARE_SINCE = 3
_LEVEL_0_SINCE = 4


_ALWAYS_SERVED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


@attrs.frozen
class RequestContext:
    """The facts about a request that a handler gets besides the body."""

    api_key: ApiKey
    version: int
    client_id: str | None
    peer: str
    listener: str
    principal: str = ANONYMOUS


@attrs.frozen(kw_only=True)
class AdvertisedFeatures:
    """The feature levels that this release supports, and those of the cluster (KIP-584)."""

    supported: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    levels: Mapping[str, int] = attrs.field(factory=dict)
    epoch: int = -1
    """The metadata offset of the levels; a client prefers the answer with the greater one."""

    def add_to(self, response: ApiVersionsResponse, *, version: int) -> None:
        # Older clients cannot read that a feature may have level 0 (KAFKA-17492).
        least = 0 if version >= _LEVEL_0_SINCE else 1
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=max(first, least), max_version=last)
            for name, (first, last) in sorted(self.supported.items())
        ]
        response.finalized_features_epoch = self.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in sorted(self.levels.items())
            if level > 0
        ]


Handler: TypeAlias = Callable[[RequestContext, Any], Awaitable[Any]]
"""Each handler is typed by its own request and answer; only the table of all of them is not."""


class CloseConnectionError(Exception):
    """A handler's request to close the connection without an answer; the message says why."""


@attrs.define(eq=False, repr=False, kw_only=True)
class Server:
    """Serves `handlers`, and ApiVersions for them, on any number of listeners."""

    handlers: Mapping[ApiKey, Handler]
    clock: NodeClock
    sink: EventSink
    on_bug: OnBug
    max_request_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_idle_seconds: float = 600.0
    features: Callable[[], AdvertisedFeatures] = AdvertisedFeatures
    metrics: RequestMetrics = attrs.field(factory=RequestMetrics)
    faults: FaultGate | None = None
    quotas: ConnectionQuotas = attrs.field(
        default=attrs.Factory(
            lambda self: ConnectionQuotas(clock=self.clock, sink=self.sink), takes_self=True
        )
    )

    async def serve(self, listener: Listener, *, name: str, gate: Gate | None = None) -> None:
        """Accept connections until cancelled, and close all of them then.

        Without a `gate` every client is let in.
        """
        gate = gate or Gate(clock=self.clock)
        async with trio.open_nursery() as nursery:
            try:
                while True:
                    try:
                        slot = await self._accept(listener, name)
                    except TooManyConnectionsError as error:
                        self.metrics.connections_refused += 1
                        self.quotas.refuse(error, name)
                    else:
                        nursery.start_soon(self._serve_connection, slot, gate)
            except PeerUnavailableError:
                pass  # the listener was closed; its connections stay
            finally:
                listener.close()

    async def _accept(self, listener: Listener, name: str) -> ConnectionSlot:
        connection = await listener.accept()
        try:
            await self.quotas.wait_for_slot(name)
            return self.quotas.take(connection, name)
        except BaseException:
            connection.close()
            raise

    async def _serve_connection(self, slot: ConnectionSlot, gate: Gate) -> None:
        connection = slot.connection
        self.metrics.connections += 1
        idle = IdleWatch(connection, self.clock, self.max_idle_seconds)
        try:
            await self._answer_requests(gate.session(connection), slot, idle)
        except AuthenticationError as error:
            self.sink(ConnectionRefused(peer=connection.peer, cause=str(error)))
        except (PeerUnavailableError, RegionAbortedError):
            pass  # the peer left; or its answer has been truncated, and it fetches again
        except (ProtocolError, CloseConnectionError, FaultInjectedError) as error:
            self.sink(ConnectionRefused(peer=connection.peer, cause=str(error)))
        except Exception as error:  # noqa: BLE001 - one of the three boundaries
            error.add_note(f"serving the connection from {connection.peer}")
            self.on_bug(error)
        finally:
            self.metrics.connections -= 1
            idle.stop()
            self.quotas.free(slot)
            connection.close()

    async def _answer_requests(
        self, session: Session, slot: ConnectionSlot, idle: IdleWatch
    ) -> None:
        # The frame's buffer is in use until the answer is sent: its records are in the log then.
        reader = FrameReader(
            session.connection, max_frame_bytes=self.max_request_bytes, reuse_buffer=True
        )
        watch = Stopwatch(self.clock.now, Waited())
        WAITED.set(watch.waited)  # for this task, and for those that its handlers start
        work = RequestWork()
        WORK.set(work)
        try:
            while await self._answer_next(reader, session, slot, idle, watch):
                work.ended()
        finally:
            work.ended()

    async def _answer_next(
        self,
        reader: FrameReader,
        session: Session,
        slot: ConnectionSlot,
        idle: IdleWatch,
        watch: Stopwatch,
    ) -> bool:
        """Answer one request and return whether there was one; keep no reference to it."""
        reader.max_frame_bytes = session.most_bytes(self.max_request_bytes)
        idle.wait_for_peer()
        frame = await reader.receive_frame()
        if frame is None:
            return False
        idle.answer()
        watch.start()
        slot.last_used = watch.received
        request, parts = await self._answer(frame, session, watch, listener=slot.listener)
        idle.wait_for_peer()
        if parts is not None:
            # The only regions in an answer are those of a log's files.
            await send_parts(session.connection, cast("Sequence[Buffer | FileRegion]", parts))
        if request is not None:
            self.metrics.answered(request, watch)
        if session.failure is not None:
            raise CloseConnectionError(session.failure)
        return True

    async def _answer(
        self, frame: memoryview, session: Session, watch: Stopwatch, *, listener: str
    ) -> tuple[object | None, Sequence[Part] | None]:
        """Return the request, None if it could not be read, and what to send, if anything."""
        if session.takes_tokens:
            return None, await _answer_token(frame, session)
        try:
            if len(frame) <= AT_ONCE_BYTES:
                header, request = decode_request(frame)
            else:
                header, request = await in_steps(decode_request_in_steps(frame))
        except UnsupportedApiVersionError as error:
            if (parts := refusal(error.header)) is None:
                raise
            return None, parts
        self.metrics.add(header, request, frame_size=len(frame))
        if self.faults is None or self.faults.is_open:
            response = await self._respond(header, session, watch, listener, request)
        else:
            respond = partial(self._respond, header, session, watch, listener)
            response = await self.faults.answer(header, request, session.connection, respond)
        watch.answer = watch.sending = self.clock.now()
        if response is None:
            return request, None
        version, number = _version_of(header, response), header.correlation_id
        parts = encode_short_response(response, version=version, correlation_id=number)
        if parts is None:
            parts = await in_steps(
                encode_response_in_steps(response, version=version, correlation_id=number)
            )
        watch.sending = self.clock.now()
        return request, parts

    async def _respond(
        self,
        header: RequestHeader,
        session: Session,
        watch: Stopwatch,
        listener: str,
        request: object,
    ) -> Any:
        api = api_numbered(header.api_key)
        assert api is not None, "a decoded request has a known API"
        answer = await session.admit(request, version=header.api_version)
        watch.handler = self.clock.now()
        if answer is not None:
            return answer
        if isinstance(request, ApiVersionsRequest):
            return self.api_versions(request, version=header.api_version)
        if (handler := self.handlers.get(api.key)) is None:
            raise ProtocolError(f"{api.key.name} is not served on {listener}")
        context = RequestContext(
            api.key,
            header.api_version,
            header.client_id,
            session.connection.peer,
            listener,
            session.principal,
        )
        return await handler(context, request)

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        """Return what this listener serves, in the order of the API keys."""
        names = (request.client_software_name, request.client_software_version)
        if version >= _CLIENT_SOFTWARE_SINCE and not all(map(_CLIENT_SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=API[key].advertised_from,
                    max_version=API[key].max_version,
                )
                for key in sorted({*_ALWAYS_SERVED, *self.handlers})
            ]
        )
        self.features().add_to(response, version=version)
        return response


async def _answer_token(frame: memoryview, session: Session) -> Sequence[Part] | None:
    """Return the answer to a bare token, a bare token too; None refuses it, without an answer."""
    try:
        token = await session.respond(bytes(frame))
    except LoginFailedError:
        return None
    return [len(token).to_bytes(LENGTH_SIZE, "big") + token]


def _version_of(header: RequestHeader, response: object) -> int:
    """Return the version of the answer: 0 for UNSUPPORTED_VERSION of ApiVersions (KIP-511)."""
    if (
        isinstance(response, ApiVersionsResponse)
        and response.error_code == ErrorCode.UNSUPPORTED_VERSION
    ):
        return 0
    return header.api_version
