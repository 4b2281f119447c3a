"""Kafka's requests on a listener: a task for each connection, answers in the order of requests.

    bytes ── frame ── header ── request ── (faults) ── handler ── answer
               │        │         │                       ├ Later: the answer gets in line (answers)
               │        │         │                       └ None: acks=0, and nothing is sent
               │        │         └ not decodable: closed
               │        └ an API or a version not served: closed;
               │          but ApiVersions is answered, at version 0 (KIP-511)
               └ over socket.request.max.bytes: closed

Rule 1: a connection's next request is read when the last one has been answered, or waits for its
answer in the line of this connection (`replication.server.answers`). That bounds a connection to
one frame. If a peer does not
read its answers, nothing more is read from it, and it is closed once it is idle too long. Other
tasks run before its next request, even if that has come with the last one: a kilobyte may hold 40
of them.

Rule 2: what a peer sends can only close that peer's connection. A bug of ours does no more: it
goes to `on_bug`, and the one connection is closed.

Rule 3: a server advertises exactly the versions that it serves, with one exception: Produce from
version 0, because librdkafka stops compressing if the lowest is 3 (KAFKA-18659). A request of
version 0 to 2 closes the connection.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

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
from replication.metadata.rules.image import MetadataImage
from replication.metadata.rules.levels import FEATURES, SUPPORTED_FEATURES
from replication.net.framing import DEFAULT_MAX_FRAME_BYTES, LENGTH_SIZE, FrameReader, send_parts
from replication.net.idle import IdleWatch
from replication.net.pace import WORK, RequestWork, in_steps
from replication.net.seams import Listener, NodeClock
from replication.security.rules.principal import ANONYMOUS
from replication.security.rules.scram import LoginFailedError
from replication.server.answers import MOST_IN_LINE, AnswerLine, Later, present
from replication.server.authentication import Gate, Session
from replication.server.connection_quotas import ConnectionQuotas, ConnectionSlot
from replication.server.request_metrics import Counts, RequestMetrics, Stopwatch, header_size
from replication.wire.api_versions import (
    ANY_NODE,
    KRAFT_VERSION,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from replication.wire.apis import API, ApiKey
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
from storage.attributes import define, frozen
from storage.errors import RegionAbortedError

# ApiVersionsRequest.isValid
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_CLIENT_SOFTWARE_SINCE = 3
_LEVEL_0_SINCE = 4
_NAMES_NODE_SINCE = 5  # KIP-1242


_ALWAYS_SERVED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


@frozen
class RequestContext:
    """The facts about a request that a handler gets besides the body."""

    api_key: ApiKey
    version: int
    client_id: str | None
    peer: str
    listener: str
    principal: str = ANONYMOUS


@frozen(kw_only=True)
class AdvertisedFeatures:
    """The feature levels that this release supports, and those of the cluster (KIP-584)."""

    supported: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    levels: Mapping[str, int] = attrs.field(factory=dict)
    epoch: int = -1
    """The metadata offset of the levels; a client prefers the answer with the greater one."""

    @classmethod
    def of(cls, image: MetadataImage, kraft_version: int) -> "AdvertisedFeatures":
        """Return the features of a node with this image, and this level of `kraft.version`."""
        return cls(
            supported=SUPPORTED_FEATURES,
            levels={name: image.feature(name) for name in FEATURES}
            | {KRAFT_VERSION: kraft_version},
            epoch=image.offset,
        )

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


@define(eq=False)
class ServedConnection:
    """A connection that is served, and what its next request most likely has in common with the last."""

    session: Session
    slot: ConnectionSlot
    line: AnswerLine
    header_size: int = attrs.field(init=False, default=0)
    """The bytes of the last request's header."""
    _context: RequestContext | None = attrs.field(init=False, default=None)

    def context_of(self, header: RequestHeader) -> RequestContext:
        context = self._context
        if (
            context is None
            or context.api_key != header.api_key
            or context.version != header.api_version
            or context.client_id != header.client_id
            or not self.session.is_open  # then the principal may have changed
        ):
            self.header_size = header_size(header)
            context = self._context = RequestContext(
                ApiKey(header.api_key),
                header.api_version,
                header.client_id,
                self.session.connection.peer,
                self.slot.listener,
                self.session.principal,
            )
        return context


@define(eq=False, repr=False, kw_only=True)
class Server:
    """Serves `handlers`, and ApiVersions for them, on any number of listeners."""

    handlers: Mapping[ApiKey, Handler]
    clock: NodeClock
    sink: EventSink
    on_bug: OnBug
    max_request_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_idle_seconds: float = 600.0
    features: Callable[[], AdvertisedFeatures] = AdvertisedFeatures
    identity: tuple[str, int] | None = None
    """The cluster and the node, with which ApiVersions compares what its client expects here."""
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
                        nursery.start_soon(self._serve_connection, slot, gate, nursery)
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

    async def _serve_connection(
        self, slot: ConnectionSlot, gate: Gate, nursery: trio.Nursery
    ) -> None:
        connection = slot.connection
        self.metrics.connections += 1
        idle = IdleWatch(connection, self.clock, self.max_idle_seconds)
        line = AnswerLine(
            connection, self.clock.now, idle, self.metrics, nursery.start_soon, self.on_bug
        )
        served = ServedConnection(gate.session(connection), slot, line)
        try:
            try:
                await self._answer_requests(served, idle)
            except (ProtocolError, CloseConnectionError):
                await line.wait_until_shorter_than(1)
                raise
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
            line.close()

    async def _answer_requests(self, served: ServedConnection, idle: IdleWatch) -> None:
        """Answer all requests of a connection; keep no reference to one that was answered."""
        session, line = served.session, served.line
        watch = Stopwatch(self.clock.now, Waited())
        # The frame's buffer is in use until the answer is sent: its records are in the log then.
        reader = FrameReader(
            session.connection,
            max_frame_bytes=session.most_bytes(self.max_request_bytes),
            reuse_buffer=True,
        )
        WAITED.set(watch.waited)  # for this task, and for those that its handlers start
        work = RequestWork()
        WORK.set(work)
        try:
            while (frame := await reader.receive_frame()) is not None:
                idle.answering += 1
                watch.start()
                served.slot.last_used = watch.received
                counts, parts = await self._answer(frame, served, watch)
                idle.answering -= 1
                idle.since = watch.sending
                if parts is not None and line.places:
                    line.add_ready(parts, counts=counts, watch=watch)
                elif counts or parts is not None:  # else it is answered later
                    if parts is not None:
                        await send_parts(session.connection, parts)
                    idle.since = watch.sent = self.clock.now()
                    self.metrics.answered(counts, watch.moments)
                if session.failure is not None:
                    raise CloseConnectionError(session.failure)
                if not session.is_open:
                    reader.max_frame_bytes = session.most_bytes(self.max_request_bytes)
                del frame, parts
                if work.pauses:
                    work.ended()
                if len(line.places) >= MOST_IN_LINE:
                    await line.wait_until_shorter_than(MOST_IN_LINE)
                if reader.has_more:
                    await trio.lowlevel.checkpoint()
            await line.wait_until_shorter_than(1)
        finally:
            work.ended()

    async def _answer(
        self, frame: memoryview, served: ServedConnection, watch: Stopwatch
    ) -> tuple[Sequence[Counts], Sequence[Part] | None]:
        """Return the counts for a request that could be read, and what to send, if anything.

        A request that is answered later is counted when its answer is sent.
        """
        session, line = served.session, served.line
        if session.takes_tokens:
            return (), await _answer_token(frame, session)
        try:
            if frame.nbytes <= AT_ONCE_BYTES:
                header, request = decode_request(frame)
            else:
                header, request = await in_steps(decode_request_in_steps(frame))
                watch.handler = self.clock.now()
        except UnsupportedApiVersionError as error:
            if (parts := refusal(error.header)) is None:
                raise
            return (), parts
        context = served.context_of(header)
        version, number = header.api_version, header.correlation_id
        counts = self.metrics.received(
            request, version=version, size=frame.nbytes, header_size=served.header_size
        )
        if line.places:
            await line.wait_for_turn(context.api_key)
        if self.faults is None or not self.faults.rules:
            response = await self._respond(context, session, watch, request)
        else:
            await line.wait_until_shorter_than(1)
            respond = partial(self._present, context, session, watch)
            response = await self.faults.answer(header, request, session.connection, respond)
        watch.answer = watch.sending = self.clock.now()
        if response is None:
            return counts, None
        if type(response) is Later:
            line.add(
                response,
                key=context.api_key,
                version=version,
                correlation_id=number,
                counts=counts,
                watch=watch,
            )
            return (), None
        if context.api_key is ApiKey.API_VERSIONS:
            version = _version_of(version, response)
        parts = encode_short_response(response, version=version, correlation_id=number)
        if parts is None:
            parts = await in_steps(
                encode_response_in_steps(response, version=version, correlation_id=number)
            )
            watch.sending = self.clock.now()
        return counts, parts

    def _respond(
        self, context: RequestContext, session: Session, watch: Stopwatch, request: object
    ) -> Awaitable[Any]:
        handler = self.handlers.get(context.api_key)
        if handler is None or not session.is_open:
            return self._admit(context, session, watch, request)
        return handler(context, request)

    async def _present(
        self, context: RequestContext, session: Session, watch: Stopwatch, request: object
    ) -> Any:
        return await present(self._respond(context, session, watch, request))

    async def _admit(
        self, context: RequestContext, session: Session, watch: Stopwatch, request: object
    ) -> Any:
        """Return the response to a request that is no handler's, or that a login has to allow."""
        answer = await session.admit(request, version=context.version)
        watch.handler = self.clock.now()
        if answer is not None:
            return answer
        if isinstance(request, ApiVersionsRequest):
            return self.api_versions(request, version=context.version)
        if (handler := self.handlers.get(context.api_key)) is None:
            raise ProtocolError(f"{context.api_key.name} is not served on {context.listener}")
        return await handler(context, request)

    def api_versions(self, request: ApiVersionsRequest, *, version: int) -> ApiVersionsResponse:
        """Return what this listener serves, in the order of the API keys."""
        names = (request.client_software_name, request.client_software_version)
        if version >= _CLIENT_SOFTWARE_SINCE and not all(map(_CLIENT_SOFTWARE.fullmatch, names)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if version >= _NAMES_NODE_SINCE:
            expected = (request.cluster_id, request.node_id)
            if (request.cluster_id is None) != (request.node_id == ANY_NODE):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if request.cluster_id is not None and self.identity not in (None, expected):
                return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
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


def _version_of(version: int, response: object) -> int:
    """Return the version of an answer to ApiVersions: 0 for UNSUPPORTED_VERSION (KIP-511)."""
    if (
        isinstance(response, ApiVersionsResponse)
        and response.error_code == ErrorCode.UNSUPPORTED_VERSION
    ):
        return 0
    return version
