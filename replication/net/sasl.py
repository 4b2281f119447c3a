"""Logging in to a peer before a connection is used for anything else, and again while it is.

    connect ── SaslHandshake 1 ── SaslAuthenticate 1, as often as the mechanism has tokens ── ready
                                                                                                │
                    renewed, by the same two requests, before the login ends <──────────────────┘

Rule 1: the requests have versions that every broker since Kafka 2.2 supports, so that nothing has
to be negotiated first.

Rule 2: a login may be good for a while only (`connections.max.reauth.ms`, KIP-368). A sender renews
it first if it is due, among its other requests: earlier requests are answered before. It is due
when 85 to 95 percent of its time are over, at another moment for each connection
(SaslClientAuthenticator).

Rule 3: a peer that refuses a second login (it takes none within a second of the last) ends the
connection, and a new one is made, as after any loss.
"""

import random
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeAlias

import attrs

from replication.config.security import Login
from replication.errors import AuthenticationError, ErrorCode, PeerUnavailableError
from replication.net.exchange import Exchange
from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection, Listener, NodeClock, Transport
from replication.net.wrapped import WrappedConnection
from replication.security.rules.sasl import client_mechanism
from replication.security.rules.scram import LoginFailedError
from replication.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replication.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from storage.attributes import define, frozen

CLIENT_ID = "login"
VERSION = 1
MOST_BYTES = 512 * 1024  # sasl.server.max.receive.size: more than any token
NONCE_BYTES = 18
_LEAST_OF_LIFETIME, _SPREAD_OF_LIFETIME = 0.85, 0.10


def new_nonce(chance: random.Random) -> str:
    return chance.randbytes(NONCE_BYTES).hex()


@frozen(eq=False, kw_only=True)
class SaslTransport:
    """A `Transport` whose connections have logged in."""

    inner: Transport
    login: Login
    clock: NodeClock
    chance: random.Random

    async def listen(self, host: str, port: int) -> Listener:
        return await self.inner.listen(host, port)

    async def connect(self, host: str, port: int) -> Connection:
        inner = await self.inner.connect(host, port)
        connection = SaslConnection(inner, self.login, self.clock, self.chance)
        try:
            await connection.log_in(_FirstRequests(inner).ask)
        except BaseException:
            connection.close()
            raise
        return connection


LoginRequest: TypeAlias = SaslHandshakeRequest | SaslAuthenticateRequest
Ask: TypeAlias = Callable[[LoginRequest], Awaitable[object]]
"""Sends a request to the peer in `VERSION`, and returns the response."""


@define(eq=False)
class SaslConnection(WrappedConnection):
    """A connection that has logged in, with the moment of the next login."""

    login: Login
    clock: NodeClock
    chance: random.Random
    _renewed_from: float = attrs.field(init=False, default=inf)

    @property
    def login_due(self) -> bool:
        return self.clock.now() >= self._renewed_from

    async def log_in(self, ask: Ask) -> None:
        """Log in, for the first time or again; AuthenticationError if it is refused."""
        again = self._renewed_from != inf
        log_in = LogIn(self.peer, self.login, ask, new_nonce(self.chance), again)
        if (lifetime_ms := await log_in.run()) > 0:
            used = _LEAST_OF_LIFETIME + self.chance.random() * _SPREAD_OF_LIFETIME
            self._renewed_from = self.clock.now() + lifetime_ms / 1000 * used


async def renew_login(connection: Connection, ask: Ask) -> None:
    """Renew the login of `connection` if it is due; a sender calls this before it sends."""
    if isinstance(connection, SaslConnection) and connection.login_due:
        await connection.log_in(ask)


@define(eq=False)
class _FirstRequests:
    """The requests over a connection that has no other user yet."""

    connection: Connection
    _reader: FrameReader = attrs.field(init=False)
    _exchange: Exchange = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = FrameReader(self.connection, MOST_BYTES)
        self._exchange = Exchange(self.connection.peer, CLIENT_ID)

    async def ask(self, request: LoginRequest) -> object:
        call = self._exchange.number(request, VERSION)
        await send_parts(self.connection, self._exchange.frame(call, request))
        frame = await self._reader.receive_frame()
        if frame is None:
            raise PeerUnavailableError(f"{self.connection.peer} closed the connection at login")
        return self._exchange.read(call, frame)


@define(eq=False)
class LogIn:
    """One login, from the mechanism to the last token; it waits for nothing but `ask`."""

    peer: str
    login: Login
    ask: Ask
    nonce: str
    again: bool

    async def run(self) -> int:
        """Log in; return the lifetime in milliseconds, 0 for that of the connection."""
        login = self.login
        await self._agree_on_mechanism()
        mechanism = client_mechanism(
            login.mechanism, username=login.username, password=login.password, nonce=self.nonce
        )
        token = mechanism.first()
        try:
            while True:
                answer = await self._authenticate(token)
                token = mechanism.respond(answer.auth_bytes)
                if mechanism.done:
                    return answer.session_lifetime_ms
        except LoginFailedError as error:
            raise self._refused(str(error)) from error

    async def _agree_on_mechanism(self) -> None:
        answer = await self.ask(SaslHandshakeRequest(mechanism=self.login.mechanism))
        assert isinstance(answer, SaslHandshakeResponse)
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise self._refused(f"{self.login.mechanism} is not offered; {offered} is")
        if error is ErrorCode.ILLEGAL_SASL_STATE and self.again:
            raise PeerUnavailableError(f"{self.peer} does not renew the login now")
        if error is not ErrorCode.NONE:
            raise self._refused(error.name)

    async def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(answer, SaslAuthenticateResponse)
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            raise self._refused(answer.error_message or error.name)
        return answer

    def _refused(self, why: str) -> AuthenticationError:
        line = " ".join(why.split())
        return AuthenticationError(f"{self.peer} did not let {self.login.username} in: {line}")
