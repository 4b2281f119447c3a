"""Who is at the other end of a connection that we have accepted.

    a listener's Gate ── session(connection) ──> Session, one for each connection
                                                   │ admit(request) -> an answer, or None: go on
                                                   └ principal: User:alice

A listener without SASL lets everybody in; who they are is what their certificate says, where
TLS has asked for one. With SASL, `replication.security.rules.sasl` decides; a login that fails is
answered after a while (`connection.failed.authentication.delay.ms`), and the end.
"""

from collections.abc import Callable, Mapping
from math import inf

import attrs

from replication.config import BrokerConfig
from replication.config.security import ListenerSecurity, uses_sasl
from replication.errors import ErrorCode, ProtocolError
from replication.net.sasl import MOST_BYTES, new_nonce
from replication.net.seams import Connection, NodeClock, Seams
from replication.net.tls import TlsConnection
from replication.security.rules.principal import (
    ANONYMOUS,
    USER,
    MappingRule,
    mapping_rules,
    principal_of_subject,
)
from replication.security.rules.sasl import (
    SaslServer,
    SaslState,
    ServerMechanism,
    server_mechanisms,
)
from replication.security.rules.scram import LoginFailedError, ScramCredential
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replication.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Of a name and a mechanism."""
_BETWEEN_LOGINS_SECONDS = 1.0  # KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS


@attrs.frozen(eq=False, kw_only=True)
class Gate:
    """What one listener asks of those who connect; by default nothing."""

    clock: NodeClock
    mechanisms: Mapping[str, Callable[[], ServerMechanism]] = attrs.field(factory=dict)
    """None: everybody is let in."""
    rules: tuple[MappingRule, ...] = ()
    lifetime_ms: int = 0
    failure_delay_ms: int = 0

    def session(self, connection: Connection) -> "Session":
        return Session(self, connection)


def gate(
    security: ListenerSecurity, config: BrokerConfig, *, seams: Seams, credential_of: CredentialOf
) -> Gate:
    """The one of a listener."""
    mechanisms: Mapping[str, Callable[[], ServerMechanism]] = {}
    if uses_sasl(security.protocol):
        mechanisms = server_mechanisms(
            security.keys.sasl_enabled_mechanisms,
            plain_users=security.plain_users,
            credential_of=credential_of,
            new_nonce=lambda: new_nonce(seams.chance),
        )
    return Gate(
        clock=seams.clock,
        mechanisms=mechanisms,
        rules=mapping_rules(config.ssl_principal_mapping_rules),
        lifetime_ms=security.keys.connections_max_reauth_ms,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
    )


@attrs.define(eq=False)
class Session:
    """One connection: who it is, as far as is known."""

    gate: Gate
    connection: Connection
    failure: str | None = attrs.field(init=False, default=None)
    """Why the connection is closed once the answer is sent."""
    takes_tokens: bool = attrs.field(init=False, default=False)
    """Whether frames are bare tokens now: it asked in version 0 of SaslHandshake."""
    _sasl: SaslServer = attrs.field(init=False)
    _ends_at: float | None = attrs.field(init=False, default=None)
    _renewed_at: float = attrs.field(init=False, default=-inf)
    _by_certificate: str | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._sasl = SaslServer(self.gate.mechanisms)

    @property
    def let_in(self) -> bool:
        return not self.gate.mechanisms or self._sasl.state is SaslState.DONE

    @property
    def principal(self) -> str:
        if self.gate.mechanisms:
            return ANONYMOUS if self._sasl.username is None else USER + self._sasl.username
        if self._by_certificate is None:
            self._by_certificate = self._named_by_certificate()
        return self._by_certificate

    def most_bytes(self, limit: int) -> int:
        """How long a request may be: who is not let in yet has little to say."""
        return limit if self.let_in else min(limit, MOST_BYTES)

    async def admit(self, request: object, *, version: int) -> object | None:
        """The answer to what is part of a login; None for what is for the handlers.

        ProtocolError for what may not be asked now.
        """
        if isinstance(request, SaslHandshakeRequest):
            response = await self._handshake(request)
            self.takes_tokens = version == 0 and self._sasl.state is SaslState.TOKENS
            return response
        if isinstance(request, SaslAuthenticateRequest):
            return await self._authenticate(request)
        if not self.let_in and not (
            isinstance(request, ApiVersionsRequest) and self._sasl.state is SaslState.START
        ):
            raise ProtocolError(f"{type(request).__name__} before the login is done")
        if self._ends_at is not None and self.gate.clock.now() >= self._ends_at:
            raise ProtocolError("the login has ended: it was good for so long, and not renewed")
        return None

    async def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        offered = sorted(self.gate.mechanisms)
        if not self._may_begin():
            return SaslHandshakeResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=offered
            )
        if self._sasl.handshake(request.mechanism):
            return SaslHandshakeResponse(mechanisms=offered)
        known = request.mechanism in self.gate.mechanisms
        error = ErrorCode.ILLEGAL_SASL_STATE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await self._fail(f"a login by {request.mechanism!r} is refused: {error.name}")
        return SaslHandshakeResponse(error_code=error, mechanisms=offered)

    def _may_begin(self) -> bool:
        """Not without SASL; again where a login ends at all, and not twice within a second."""
        if not self.gate.mechanisms:
            return False
        if self._sasl.state is not SaslState.DONE:
            return True
        now = self.gate.clock.now()
        if self._ends_at is None or now < self._renewed_at + _BETWEEN_LOGINS_SECONDS:
            return False
        self._renewed_at = now
        return True

    async def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        if self._sasl.state is not SaslState.TOKENS:
            if not self.let_in:
                raise ProtocolError("SaslAuthenticate before SaslHandshake")
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        try:
            token = await self.respond(request.auth_bytes)
        except LoginFailedError as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
        return SaslAuthenticateResponse(
            auth_bytes=token, session_lifetime_ms=self.gate.lifetime_ms if self.let_in else 0
        )

    async def respond(self, token: bytes) -> bytes:
        """The token that answers one; LoginFailedError, after a while, where it is over."""
        try:
            answer = self._sasl.authenticate(token)
        except LoginFailedError as error:
            await self._fail(f"a login by {self._sasl.mechanism} failed: {error}")
            raise
        if self.let_in:
            self._begin()
        return answer

    def _begin(self) -> None:
        self.takes_tokens = False
        if self.gate.lifetime_ms > 0:
            self._ends_at = self.gate.clock.now() + self.gate.lifetime_ms / 1000

    async def _fail(self, why: str) -> None:
        self.failure = why
        await self.gate.clock.sleep(self.gate.failure_delay_ms / 1000)

    def _named_by_certificate(self) -> str:
        if not isinstance(self.connection, TlsConnection):
            return ANONYMOUS
        return principal_of_subject(self.connection.peer_subject, self.gate.rules)
