"""Connections as a security protocol has them: what is asked of a listener, and how we come in.

    secured(transport, introduction, ...)    a transport whose connections are ready to be used
    guarded(listener, context)               a listener whose connections speak its protocol

What the four protocols are is in `replication.config.security`.
"""

import random
import ssl

import attrs

from replication.config.security import Introduction, ListenerSecurity, uses_sasl, uses_tls
from replication.net.sasl import SaslTransport
from replication.net.seams import Listener, NodeClock, Seams, Transport
from replication.net.tls import TlsListener, TlsTransport
from replication.net.tls_context import client_context, server_context


def secured(
    transport: Transport, introduction: Introduction, *, clock: NodeClock, chance: random.Random
) -> Transport:
    """`transport` itself where nothing is asked for; ConfigError where keys are of no use."""
    if uses_tls(introduction.protocol):
        context = introduction.ssl_context or client_context(introduction.tls)
        transport = TlsTransport(transport, context)
    if uses_sasl(introduction.protocol):
        login = introduction.login
        assert login is not None, "with SASL it is said who logs in"
        transport = SaslTransport(inner=transport, login=login, clock=clock, chance=chance)
    return transport


def introduced(seams: Seams, introduction: Introduction) -> Seams:
    """`seams` whose connections are made as `introduction` says."""
    transport = secured(seams.transport, introduction, clock=seams.clock, chance=seams.chance)
    return attrs.evolve(seams, transport=transport)


def accepting_context(security: ListenerSecurity) -> ssl.SSLContext | None:
    """What its connections are accepted under; None where it has no TLS."""
    if not uses_tls(security.protocol):
        return None
    return server_context(security.keys, client_auth=security.keys.ssl_client_auth)


def connect_under(transport: Transport, context: ssl.SSLContext | None) -> None:
    """Have `transport`, which `secured` made, make its next connections under `context`."""
    tls = transport.inner if isinstance(transport, SaslTransport) else transport
    if context is not None:
        assert isinstance(tls, TlsTransport), "it had TLS when it was made"
        tls.connecting = context


def guarded(listener: Listener, context: ssl.SSLContext | None) -> Listener:
    return listener if context is None else TlsListener(listener, context)
