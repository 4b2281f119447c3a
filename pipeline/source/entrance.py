"""How a connection to a broker begins, for code that waits: TLS, a login, both or neither.

    connect ── TLS handshake ── SaslHandshake, SaslAuthenticate ... ── anything else

The same keys as any client of this project takes, and the same exchange
(`replication.net.secure`, `replication.net.sasl`): only the waiting differs.

Rule: a login may be good for a while only (`connections.max.reauth.ms`, KIP-368). It is not
renewed here: a connection whose login nears its end is left, and a new one made.
"""

import secrets
import socket
import ssl
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final, Self, TypeVar

import attrs

from replication.config.security import Introduction, Login, uses_tls
from replication.net.sasl import NONCE_BYTES, LogIn, LoginRequest
from replication.net.tls import refusal
from replication.net.tls_context import client_context

_USED_OF_LIFETIME: Final = 0.9

_T = TypeVar("_T")


@attrs.frozen(eq=False)
class Entrance:
    """Made once for all connections of a cluster: it reads the files of keys."""

    context: ssl.SSLContext | None = None
    login: Login | None = None

    @classmethod
    def of(cls, introduction: Introduction) -> Self:
        """ConfigError where keys are of no use."""
        context = client_context(introduction.tls) if uses_tls(introduction.protocol) else None
        return cls(context, introduction.login)

    def shake_hands(self, connection: socket.socket, host: str, port: int) -> socket.socket:
        """AuthenticationError where a certificate is refused."""
        if self.context is None:
            return connection
        try:
            return self.context.wrap_socket(connection, server_hostname=host)
        except ssl.SSLError as error:
            raise refusal(f"{host}:{port}", error) from error

    def log_in(self, peer: str, ask: Callable[[LoginRequest], object]) -> float:
        """For how many seconds it is good; AuthenticationError where we are not let in."""
        if self.login is None:
            return inf

        async def answered(request: LoginRequest) -> object:
            return ask(request)

        nonce = secrets.token_hex(NONCE_BYTES)
        lifetime_ms = _done(LogIn(peer, self.login, answered, nonce, again=False).run())
        return lifetime_ms / 1000 * _USED_OF_LIFETIME if lifetime_ms > 0 else inf


def _done(steps: Coroutine[Any, Any, _T]) -> _T:
    """What it returns, for one that never waits for a loop."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise AssertionError("it waits for something that nobody here runs")
