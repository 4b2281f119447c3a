"""How a listener is guarded, and how we introduce ourselves: security protocols (KIP-103).

    protocol          over TLS    who the peer is
    PLAINTEXT         no          ANONYMOUS
    SSL               yes         whoever its certificate names, where it has to show one
    SASL_PLAINTEXT    no          who it logs in as
    SASL_SSL          yes         who it logs in as

A key of a listener goes before the same key of all: `listener.name.outside.ssl.client.auth`.
What a listener's logins need has its mechanism in the key as well:
`listener.name.outside.plain.sasl.jaas.config`.
"""

import ssl
from collections.abc import Iterable, Mapping

import attrs

from replication.config.jaas import Jaas
from replication.config.keys import flag, long, secrets, text, whole, words
from replication.config.tls import TlsKeys, overridden
from replication.errors import ConfigError

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PREFIX = "listener.name."
JAAS_CONFIG = "sasl.jaas.config"


def uses_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


@attrs.frozen
class Login:
    """Who we are to a peer that asks."""

    mechanism: str
    username: str
    password: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Introduction:
    """How connections that we make are made: what `replication.net.secure` needs to know."""

    protocol: str = PLAINTEXT
    tls: TlsKeys = attrs.field(factory=TlsKeys)
    ssl_context: ssl.SSLContext | None = None
    """Made by the program; it goes before what `tls` says."""
    login: Login | None = None


@attrs.frozen(kw_only=True)
class ListenerKeys(TlsKeys):
    """What may be said of all listeners, and again of one."""

    ssl_client_auth: str = text(
        "none",
        "Whether a client must show a certificate on listeners with TLS: `required` refuses"
        " clients without one, `requested` accepts them as ANONYMOUS, and `none` asks for no"
        " certificate.",
        choices=["none", "requested", "required"],
    )
    sasl_enabled_mechanisms: tuple[str, ...] = words(
        (),
        "The SASL mechanisms with which clients may log in, separated by commas. Listeners with"
        " SASL need at least one.",
        allows=lambda value: set(value) <= set(MECHANISMS),
        expectation=f"words out of {', '.join(MECHANISMS)}",
    )
    connections_max_reauth_ms: int = long(
        0,
        "The time in milliseconds after which a client that logged in with SASL must log in"
        " again, or its connection is closed (KIP-368). The default, 0, lets a login last as"
        " long as the connection.",
        at_least=0,
    )


@attrs.frozen(kw_only=True)
class SecurityKeys(ListenerKeys):
    """The keys of a broker or controller about who it lets in."""

    ssl_principal_mapping_rules: str = text(
        "DEFAULT",
        "The rules that turn the subject of a client's certificate into a user name (KIP-371)."
        " `DEFAULT` uses the whole subject.",
    )
    sasl_mechanism_inter_broker_protocol: str = text(
        "GSSAPI",
        "The SASL mechanism with which brokers log in to each other. The default is Kafka's and"
        " is not supported here, so set it when brokers use a listener with SASL.",
        choices=MECHANISMS,
    )
    sasl_mechanism_controller_protocol: str = text(
        "GSSAPI",
        "The SASL mechanism with which brokers log in to the controller. The default is Kafka's"
        " and is not supported here, so set it when the controller's listener uses SASL.",
        choices=MECHANISMS,
    )
    authorizer_class_name: str = text(
        "",
        "The authorizer that decides which user may do what. The default, an empty value,"
        " allows everything to everyone; set StandardAuthorizer to use ACLs.",
        choices=[STANDARD_AUTHORIZER, ""],
    )
    super_users: str = text(
        "",
        "The users to whom everything is allowed whatever the ACLs say, as User:name, separated"
        " by semicolons. It has an effect only with an authorizer.",
    )
    allow_everyone_if_no_acl_found: bool = flag(
        False,
        "Whether everyone may use a resource for which there is no ACL. When false, only super"
        " users may. It has an effect only with an authorizer.",
    )
    understudy_add_scram: tuple[str, ...] = secrets(
        "The SCRAM users that a new cluster begins with, in the form that kafka-storage takes"
        " after --add-scram, separated by semicolons. It has no effect on a cluster that already"
        " has metadata."
    )
    connection_failed_authentication_delay_ms: int = whole(
        100,
        "The time in milliseconds by which the response to a failed login is delayed. It slows"
        " down attempts to guess a password.",
        at_least=0,
    )


@attrs.frozen(kw_only=True)
class ListenerSecurity:
    """What one listener asks of those who connect."""

    name: str
    protocol: str
    keys: ListenerKeys
    logins: Mapping[str, Jaas] = attrs.field(factory=dict)
    """By mechanism: the users of PLAIN, and who we are ourselves."""

    @property
    def plain_users(self) -> Mapping[str, str]:
        return self.logins["PLAIN"].users if "PLAIN" in self.logins else {}

    def introduction(self, mechanism: str, *, key: str) -> Introduction:
        """How we connect to such a listener of another node; `key` is what names `mechanism`."""
        if not uses_sasl(self.protocol):
            return Introduction(protocol=self.protocol, tls=self.keys)
        if mechanism not in MECHANISMS:
            raise ConfigError(f"{key}={mechanism}: expected one of {', '.join(MECHANISMS)}")
        named = _jaas_key(self.name, mechanism)
        jaas = self.logins.get(mechanism)
        if jaas is None or not {"username", "password"} <= jaas.options.keys():
            raise ConfigError(f"{named} is missing: expected a username and a password in it")
        login = Login(mechanism, jaas.options["username"], jaas.options["password"])
        return Introduction(protocol=self.protocol, tls=self.keys, login=login)


def protocols_by_name(entries: Iterable[str]) -> dict[str, str]:
    """`listener.security.protocol.map`."""
    return {
        name.strip().upper(): protocol.strip().upper()
        for name, _, protocol in (entry.partition(":") for entry in entries)
    }


def protocol_of(name: str, entries: Iterable[str]) -> str:
    """A listener that is not mapped speaks the protocol of its own name, as in Kafka."""
    protocol = protocols_by_name(entries).get(name, name if name in PROTOCOLS else PLAINTEXT)
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"listener.security.protocol.map={name}:{protocol}: expected one of "
            f"{', '.join(PROTOCOLS)}"
        )
    return protocol


def listener_security(
    name: str, keys: ListenerKeys, *, protocol: str, overrides: Mapping[str, str]
) -> ListenerSecurity:
    """`overrides` are all the keys of the file that begin with `listener.name.`."""
    prefix = f"{_PREFIX}{name.lower()}."
    own = {
        key.removeprefix(prefix): value
        for key, value in overrides.items()
        if key.startswith(prefix)
    }
    logins = {}
    for mechanism in MECHANISMS:
        if (text := own.get(f"{mechanism.lower()}.{JAAS_CONFIG}")) is not None:
            logins[mechanism] = Jaas.parse(text, key=_jaas_key(name, mechanism))
    return ListenerSecurity(
        name=name, protocol=protocol, keys=overridden(keys, ListenerKeys, own), logins=logins
    )


def check_sasl_listener(security: ListenerSecurity) -> None:
    """ConfigError where nobody could ever log in."""
    mechanisms = security.keys.sasl_enabled_mechanisms
    if not mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms is missing: {security.name} is {security.protocol}; "
            f"expected words out of {', '.join(MECHANISMS)}"
        )
    if "PLAIN" in mechanisms and not security.plain_users:
        key = _jaas_key(security.name, "PLAIN")
        raise ConfigError(f"{key} is missing: expected the users of PLAIN in it, user_NAME=...")


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"{_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
