"""The login of a client on an accepted connection.

    a listener's Gate ── session(connection) ──> Session, one for each connection
                                                   │ admit(request) -> an answer, or None: go on
                                                   └ principal: User:alice

A listener without SASL lets every client in; the principal comes from the client's certificate,
if TLS has asked for one. With SASL, `replication.security.rules.sasl` decides. A login that fails
is answered after `connection.failed.authentication.delay.ms`, and the connection is closed.
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
from storage.attributes import define, frozen

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Returns the credential for a user name and a mechanism, if there is one."""
_BETWEEN_LOGINS_SECONDS = 1.0  # KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS


@frozen(eq=False, kw_only=True)
class Gate:
    """The logins that one listener requires; by default none."""

    clock: NodeClock
    mechanisms: Mapping[str, Callable[[], ServerMechanism]] = attrs.field(factory=dict)
    """SASL mechanisms by name; if there are none, every client is let in."""
    rules: tuple[MappingRule, ...] = ()
    lifetime_ms: int = 0
    failure_delay_ms: int = 0

    def session(self, connection: Connection) -> "Session":
        return Session(self, connection)


def gate(
    security: ListenerSecurity, config: BrokerConfig, *, seams: Seams, credential_of: CredentialOf
) -> Gate:
    """Return the gate of a listener with this security."""
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


@define(eq=False)
class Session:
    """One connection, and the principal of its client."""

    gate: Gate
    connection: Connection
    failure: str | None = attrs.field(init=False, default=None)
    """The reason to close the connection once the answer is sent."""
    takes_tokens: bool = attrs.field(init=False, default=False)
    """Whether frames are bare tokens now, after a SaslHandshake of version 0."""
    is_open: bool = attrs.field(init=False)
    """Whether there is no login: requests to handlers need not be admitted one by one."""
    _sasl: SaslServer = attrs.field(init=False)
    _ends_at: float | None = attrs.field(init=False, default=None)
    _renewed_at: float = attrs.field(init=False, default=-inf)
    _by_certificate: str | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.is_open = not self.gate.mechanisms
        self._sasl = SaslServer(self.gate.mechanisms)

    @property
    def let_in(self) -> bool:
        return self.is_open or self._sasl.state is SaslState.DONE

    @property
    def principal(self) -> str:
        if not self.is_open:
            return ANONYMOUS if self._sasl.username is None else USER + self._sasl.username
        if self._by_certificate is None:
            self._by_certificate = self._named_by_certificate()
        return self._by_certificate

    def most_bytes(self, limit: int) -> int:
        """Return how long a request may be: less before the login is done."""
        return limit if self.let_in else min(limit, MOST_BYTES)

    async def admit(self, request: object, *, version: int) -> object | None:
        """Return the answer to a request of the login; None for a request to the handlers.

        Raises ProtocolError for a request that is not allowed now.
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
            raise ProtocolError("the login has expired and was not renewed")
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
        """Return whether a login may begin.

        It needs SASL. A second one needs logins that expire, and a second since the last one.
        """
        if self.is_open:
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
        """Return the answer to a token; raise LoginFailedError, after a delay, if it is refused."""
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
