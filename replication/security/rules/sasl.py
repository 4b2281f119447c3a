"""The SASL login, both sides, token by token (SaslServerAuthenticator, KIP-43, 152, 368).

    START ── SaslHandshake ──> TOKENS ── SaslAuthenticate ... ──> DONE
      │                           │                                │ SaslHandshake again: the same
      └── another mechanism ──────┴──> FAILED: answered, closed    └── mechanism and user (KIP-368)

Rule 1: before DONE only these two requests and ApiVersions are accepted. Any other request breaks
the protocol: the connection is closed without a response.

Rule 2: after a failure there is a response, and the connection is closed. The response does not say
whether the name or the password was wrong.
"""

import enum
import hmac
from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from replication.security.rules.scram import (
    LoginFailedError,
    ScramClient,
    ScramCredential,
    ScramServer,
)
from storage.attributes import define

PLAIN = "PLAIN"


class ServerMechanism(Protocol):
    username: str
    proved: bool

    def respond(self, token: bytes, /) -> bytes: ...


@define
class PlainServer:
    """PLAIN (RFC 4616): `authorization NUL name NUL password` in one token."""

    users: Mapping[str, str] = attrs.field(repr=False)
    username: str = attrs.field(init=False, default="")
    proved: bool = attrs.field(init=False, default=False)

    def respond(self, token: bytes) -> bytes:
        try:
            authorization, name, password = token.decode().split("\0")
        except ValueError as error:  # of UTF-8 too
            raise LoginFailedError("PLAIN: expected a name and a password") from error
        if not name or not password:
            raise LoginFailedError("PLAIN: expected a name and a password")
        if authorization and authorization != name:
            raise LoginFailedError("Client requested an authorization id that is not its username")
        known = self.users.get(name)
        same = hmac.compare_digest((known or password + "?").encode(), password.encode())
        if known is None or not same:
            raise LoginFailedError("Authentication failed: Invalid username or password")
        self.username, self.proved = name, True
        return b""


class SaslState(enum.Enum):
    START = "start"
    TOKENS = "tokens"
    DONE = "done"
    FAILED = "failed"


@define
class SaslServer:
    """The logins of one connection."""

    mechanisms: Mapping[str, Callable[[], ServerMechanism]]
    state: SaslState = attrs.field(init=False, default=SaslState.START)
    username: str | None = attrs.field(init=False, default=None)
    """The user who has logged in; None before that."""
    mechanism: str | None = attrs.field(init=False, default=None)
    _under_way: ServerMechanism | None = attrs.field(init=False, default=None)

    def handshake(self, mechanism: str) -> bool:
        """Begin a login with `mechanism`; return False if that is not possible, which ends it."""
        known = self.mechanisms.get(mechanism)
        again = self.username is not None
        if (
            self.state is SaslState.TOKENS
            or known is None
            or (again and mechanism != self.mechanism)
        ):
            self.state = SaslState.FAILED
            return False
        self.mechanism, self._under_way = mechanism, known()
        self.state = SaslState.TOKENS
        return True

    def authenticate(self, token: bytes) -> bytes:
        """Return the token that answers `token`; raise LoginFailedError if the login has failed."""
        assert self.state is SaslState.TOKENS, "a handshake comes first"
        assert self._under_way is not None, "the handshake has created the mechanism"
        try:
            answer = self._under_way.respond(token)
            if self._under_way.proved:
                self._logged_in(self._under_way.username)
        except LoginFailedError:
            self.state = SaslState.FAILED
            raise
        return answer

    def _logged_in(self, username: str) -> None:
        if self.username not in (None, username):
            raise LoginFailedError(
                f"Cannot change principals during re-authentication from {self.username}"
            )
        self.username = username
        self.state, self._under_way = SaslState.DONE, None


def server_mechanisms(
    enabled: tuple[str, ...],
    *,
    plain_users: Mapping[str, str],
    credential_of: Callable[[str, str], ScramCredential | None],
    new_nonce: Callable[[], str],
) -> dict[str, Callable[[], ServerMechanism]]:
    """Return the mechanisms of a listener; `credential_of` takes a name and a mechanism."""

    def maker(mechanism: str) -> Callable[[], ServerMechanism]:
        if mechanism == PLAIN:
            return lambda: PlainServer(plain_users)
        return lambda: ScramServer(
            mechanism, lambda name: credential_of(name, mechanism), new_nonce()
        )

    return {mechanism: maker(mechanism) for mechanism in enabled}


class ClientMechanism(Protocol):
    done: bool

    def first(self) -> bytes: ...

    def respond(self, token: bytes, /) -> bytes: ...


@define
class PlainClient:
    username: str
    password: str = attrs.field(repr=False)
    done: bool = attrs.field(init=False, default=False)

    def first(self) -> bytes:
        return f"\0{self.username}\0{self.password}".encode()

    def respond(self, _: bytes) -> bytes:
        self.done = True
        return b""


def client_mechanism(
    mechanism: str, *, username: str, password: str, nonce: str
) -> ClientMechanism:
    if mechanism == PLAIN:
        return PlainClient(username, password)
    return ScramClient(mechanism, username, password, nonce)
