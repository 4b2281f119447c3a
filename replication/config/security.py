"""The security keys of listeners and of connections to other nodes (KIP-103).

    protocol          uses TLS    the peer's user
    PLAINTEXT         no          ANONYMOUS
    SSL               yes         the subject of its certificate, or ANONYMOUS without one
    SASL_PLAINTEXT    no          the user that it logs in as
    SASL_SSL          yes         the user that it logs in as

A key with the prefix of a listener takes precedence for that listener:
`listener.name.outside.ssl.client.auth`. The key of a listener's logins also names the
mechanism: `listener.name.outside.plain.sasl.jaas.config`.
"""

import re
import ssl
from collections.abc import Iterable, Mapping

import attrs

from replication.config.keys import flag, long, secrets, text, whole, words
from replication.config.tls import TlsKeys, overridden
from replication.errors import ConfigError
from storage.attributes import frozen

_FORM = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)((?:\s+\S.*)?);\s*", re.DOTALL
)
_OPTION = re.compile(r'\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s"\';]+))')
_USER = "user_"

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PREFIX = "listener.name."
JAAS_CONFIG = "sasl.jaas.config"


@frozen
class Jaas:
    """The options of a login module."""

    module: str
    options: Mapping[str, str] = attrs.field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the users of PLAIN, by name (PlainServerCallbackHandler)."""
        return {
            name.removeprefix(_USER): value
            for name, value in self.options.items()
            if name.startswith(_USER)
        }

    @classmethod
    def parse(cls, text: str, *, key: str) -> "Jaas":
        """Parse `text`.

        Raise ConfigError, which names `key` and quotes nothing of `text`, which may hold passwords.
        """
        form = _FORM.fullmatch(text)
        if form is None:
            raise ConfigError(f'{key}: expected LoginModule required name="value" ...;')
        module, _, rest = form.groups()
        options: dict[str, str] = {}
        position = 0
        while found := _OPTION.match(rest, position):
            name, quoted, single, bare = found.groups()
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else single or bare
            options[name] = value or ""
            position = found.end()
        if rest[position:].strip():
            raise ConfigError(f'{key}: expected name="value" for each option, and a ; at the end')
        return cls(module, options)


def uses_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


@frozen
class Login:
    """The user and password with which this side logs in to a peer."""

    mechanism: str
    username: str
    password: str = attrs.field(repr=False)


@frozen(kw_only=True)
class Introduction:
    """The security of connections that this side opens, for `replication.net.secure`."""

    protocol: str = PLAINTEXT
    tls: TlsKeys = attrs.field(factory=TlsKeys)
    ssl_context: ssl.SSLContext | None = None
    """A context that the program made; it takes precedence over `tls`."""
    login: Login | None = None


@frozen(kw_only=True)
class ListenerKeys(TlsKeys):
    """The keys that can be set for all listeners and for a single one."""

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
        expectation=f"one or more of {', '.join(MECHANISMS)}",
    )
    connections_max_reauth_ms: int = long(
        0,
        "The time in milliseconds after which a client that logged in with SASL must log in"
        " again, or its connection is closed (KIP-368). The default, 0, lets a login last as"
        " long as the connection.",
        at_least=0,
    )


@frozen(kw_only=True)
class SecurityKeys(ListenerKeys):
    """The keys of authentication and authorization of a broker or controller."""

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


@frozen(kw_only=True)
class ListenerSecurity:
    """The security of one listener: its protocol, its keys and its logins."""

    name: str
    protocol: str
    keys: ListenerKeys
    logins: Mapping[str, Jaas] = attrs.field(factory=dict)
    """The logins by mechanism: the users of PLAIN, and the login that this node uses itself."""

    @property
    def plain_users(self) -> Mapping[str, str]:
        return self.logins["PLAIN"].users if "PLAIN" in self.logins else {}

    def introduction(self, mechanism: str, *, key: str) -> Introduction:
        """Return how to connect to this listener on another node; `key` is the key of `mechanism`."""
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
    """Return `listener.security.protocol.map` as a mapping."""
    return {
        name.strip().upper(): protocol.strip().upper()
        for name, _, protocol in (entry.partition(":") for entry in entries)
    }


def protocol_of(name: str, entries: Iterable[str]) -> str:
    """Return the protocol of a listener; without an entry it is the listener's name, as in Kafka."""
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
    """Return the security of one listener.

    `overrides` are all the keys of the file that begin with `listener.name.`.
    """
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
    """Raise ConfigError if no user could ever log in."""
    mechanisms = security.keys.sasl_enabled_mechanisms
    if not mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms is missing: {security.name} is {security.protocol}; "
            f"expected one or more of {', '.join(MECHANISMS)}"
        )
    if "PLAIN" in mechanisms and not security.plain_users:
        key = _jaas_key(security.name, "PLAIN")
        raise ConfigError(f"{key} is missing: expected the users of PLAIN in it, user_NAME=...")


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"{_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
