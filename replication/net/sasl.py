"""Logging in to a peer before a connection is used for anything else.

    connect ── SaslHandshake 1 ── SaslAuthenticate 1, as often as the mechanism has tokens ── ready

Rule 1: it is asked in versions that every broker since Kafka 2.2 speaks, so that nothing has
to be negotiated first.

Rule 2: a login may be good for a while only (`connections.max.reauth.ms`). A connection of
ours is not used past nine tenths of that: its owner makes a new one, as when any is lost.
"""

import random
from collections.abc import Sequence

import attrs

from replication.config.security import Login
from replication.errors import (
    AuthenticationError,
    ErrorCode,
    PeerUnavailableError,
    ProtocolError,
)
from replication.net.framing import FrameReader, send_parts
from replication.net.seams import Connection, Listener, NodeClock, Transport
from replication.security.sasl import client_mechanism
from replication.security.scram import LoginFailedError
from replication.wire.apis import ApiKey
from replication.wire.frames import decode_response, encode_request
from replication.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replication.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from storage.file_region import FileRegion
from storage.types import Buffer

CLIENT_ID = "login"
VERSION = 1
MOST_BYTES = 512 * 1024  # sasl.server.max.receive.size: more than any token
NONCE_BYTES = 18
_USED_OF_LIFETIME = 0.9


def new_nonce(chance: random.Random) -> str:
    return chance.randbytes(NONCE_BYTES).hex()


@attrs.frozen(eq=False, kw_only=True)
class SaslTransport:
    """`Transport` whose connections have logged in."""

    inner: Transport
    login: Login
    clock: NodeClock
    chance: random.Random

    async def listen(self, host: str, port: int) -> Listener:
        return await self.inner.listen(host, port)

    async def connect(self, host: str, port: int) -> Connection:
        connection = await self.inner.connect(host, port)
        try:
            lifetime_ms = await _LogIn(connection, self.login, new_nonce(self.chance)).run()
        except BaseException:
            connection.close()
            raise
        if lifetime_ms <= 0:
            return connection
        until = self.clock.now() + lifetime_ms / 1000 * _USED_OF_LIFETIME
        return _ForAWhile(connection, self.clock, until)


@attrs.define(eq=False)
class _LogIn:
    """The first requests of a connection."""

    connection: Connection
    login: Login
    nonce: str
    _reader: FrameReader = attrs.field(init=False)
    _asked: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._reader = FrameReader(self.connection, MOST_BYTES)

    async def run(self) -> int:
        """For how many milliseconds it is good; 0: for as long as the connection."""
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
        answer = await self._ask(SaslHandshakeRequest(mechanism=self.login.mechanism))
        assert isinstance(answer, SaslHandshakeResponse)
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise self._refused(f"{self.login.mechanism} is not offered; {offered} is")
        if error is not ErrorCode.NONE:
            raise self._refused(error.name)

    async def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        answer = await self._ask(SaslAuthenticateRequest(auth_bytes=token))
        assert isinstance(answer, SaslAuthenticateResponse)
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            raise self._refused(answer.error_message or error.name)
        return answer

    async def _ask(self, request: SaslHandshakeRequest | SaslAuthenticateRequest) -> object:
        is_handshake = isinstance(request, SaslHandshakeRequest)
        key = ApiKey.SASL_HANDSHAKE if is_handshake else ApiKey.SASL_AUTHENTICATE
        self._asked += 1
        parts = encode_request(
            request, version=VERSION, correlation_id=self._asked, client_id=CLIENT_ID
        )
        await send_parts(self.connection, parts)
        frame = await self._reader.receive_frame()
        if frame is None:
            raise PeerUnavailableError(f"{self.connection.peer} closed the connection at login")
        answered, response = decode_response(frame, api_key=key, version=VERSION)
        if answered != self._asked:
            raise ProtocolError(f"{self.connection.peer} answered {answered}, not {self._asked}")
        return response

    def _refused(self, why: str) -> AuthenticationError:
        line = " ".join(why.split())
        return AuthenticationError(
            f"{self.connection.peer} did not let {self.login.username} in: {line}"
        )


@attrs.define(eq=False)
class _ForAWhile:
    """A connection that takes nothing more once its login is about to end."""

    inner: Connection
    clock: NodeClock
    until: float

    @property
    def peer(self) -> str:
        return self.inner.peer

    async def receive_into(self, buffer: memoryview) -> int:
        return await self.inner.receive_into(buffer)

    async def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        await self.inner.send_buffers(buffers)

    async def send_region(self, region: FileRegion) -> None:
        self._check()
        await self.inner.send_region(region)

    def close(self) -> None:
        self.inner.close()

    def _check(self) -> None:
        if self.clock.now() >= self.until:
            self.close()
            raise PeerUnavailableError(f"the login at {self.peer} is about to end")
