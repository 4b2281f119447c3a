"""Connections and listeners under a security protocol.

    introduced(seams, introduction)    seams whose connections are ready to be used
    guarded(listener, context)         a listener whose connections use its protocol
    listen(transport, where, config)   such a listener, as the configuration of a node has it

The four protocols are those of `replication.config.security`.
"""

import ssl
from typing import TYPE_CHECKING

import attrs

from replication.config.security import Introduction, ListenerSecurity, uses_sasl, uses_tls
from replication.errors import UnderstudyError
from replication.net.sasl import SaslTransport
from replication.net.seams import Listener, Seams, Transport
from replication.net.tls import TlsListener, TlsTransport, client_context, server_context

if TYPE_CHECKING:  # a client needs neither
    from replication.config import BrokerConfig, ListenerConfig


def introduced(seams: Seams, introduction: Introduction) -> Seams:
    """Return `seams` whose connections have TLS and a login, if `introduction` asks for them.

    ConfigError if the keys of TLS cannot be used.
    """
    transport = seams.transport
    if uses_tls(introduction.protocol):
        context = introduction.ssl_context or client_context(introduction.tls)
        transport = TlsTransport(transport, context)
    if uses_sasl(introduction.protocol):
        login = introduction.login
        assert login is not None, "SASL needs a login"
        transport = SaslTransport(
            inner=transport, login=login, clock=seams.clock, chance=seams.chance
        )
    return attrs.evolve(seams, transport=transport)


def accepting_context(security: ListenerSecurity) -> ssl.SSLContext | None:
    """Return the TLS context of a listener's connections; None without TLS."""
    if not uses_tls(security.protocol):
        return None
    return server_context(security.keys, client_auth=security.keys.ssl_client_auth)


def connect_under(transport: Transport, context: ssl.SSLContext | None) -> None:
    """Use `context` for the next connections of a transport that `introduced` made."""
    tls = transport.inner if isinstance(transport, SaslTransport) else transport
    if context is not None:
        assert isinstance(tls, TlsTransport), "it had TLS when it was made"
        tls.connecting = context


def guarded(listener: Listener, context: ssl.SSLContext | None) -> Listener:
    return listener if context is None else TlsListener(listener, context)


class ListenError(UnderstudyError):
    """The error of a port that is in use, or of an address of another host."""


async def listen(transport: Transport, where: "ListenerConfig", config: "BrokerConfig") -> Listener:
    """Listen, and return a listener that speaks the configured protocol.

    Raises ListenError, which names the listener, and ConfigError for unusable TLS keys.
    """
    context = accepting_context(config.security_of(where.name))
    try:
        return guarded(await transport.listen(where.host, where.port), context)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error
