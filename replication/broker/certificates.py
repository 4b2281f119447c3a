"""The certificates of a broker, read from the files that its configuration names (KIP-226)."""

import ssl
from collections.abc import Mapping

from replication.config import BrokerConfig
from replication.config.security import Introduction, uses_tls
from replication.net.secure import accepting_context
from replication.net.tls import client_context
from storage.attributes import frozen


@frozen
class Certificates:
    """The certificates that a broker presents and trusts, as they were read at one moment."""

    accepting: Mapping[str, ssl.SSLContext]
    """The context of each listener with TLS, by its name."""
    toward_brokers: ssl.SSLContext | None
    toward_controller: ssl.SSLContext | None


NO_CERTIFICATES = Certificates(accepting={}, toward_brokers=None, toward_controller=None)


def read_certificates(config: BrokerConfig) -> Certificates:
    """Read every file that `config` names; raise ConfigError for a file that cannot be used."""
    contexts = {
        each.name: accepting_context(config.security_of(each.name))
        for each in config.broker_listeners
    }
    return Certificates(
        accepting={name: each for name, each in contexts.items() if each is not None},
        toward_brokers=_connecting_context(config.inter_broker_introduction),
        toward_controller=_connecting_context(config.controller_introduction),
    )


def _connecting_context(introduction: Introduction) -> ssl.SSLContext | None:
    return client_context(introduction.tls) if uses_tls(introduction.protocol) else None
