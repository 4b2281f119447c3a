"""The configuration of every client, with Kafka's keys, typed and checked.

    ClientConfig.of(bootstrap_servers="b1:9092", request_timeout_ms=5000)     keys with underscores
    ClientConfig.from_properties({"bootstrap.servers": "b1:9092"})            keys as in a file

A key is declared once (`replication.config.keys`); consumers, producers and admin clients
add their own in a subclass. A wrong key or value raises one `ConfigError` of one line.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.config import ConfigType, HostPort
from replication.config.keys import Spec, long, secret, specs, split_words, text, values, whole
from replication.config.known import nearest
from replication.config.security import MECHANISMS, PROTOCOLS, Introduction, Jaas, Login, uses_sasl
from replication.config.tls import TlsKeys
from replication.errors import ConfigError
from storage.attributes import frozen


@frozen(kw_only=True)
class ClientConfig(TlsKeys):
    """The keys that all clients share (CommonClientConfigs), with Kafka's defaults."""

    bootstrap_servers: tuple[HostPort, ...] = values(
        "The addresses of brokers through which the client finds the cluster. One is enough;"
        " name two or three so that a client can start while a broker is down.",
        parse=HostPort.parse,
        expectation="host:port, separated by commas",
    )
    client_id: str = text(
        "",
        "The name that the client sends with every request. It appears in brokers' logs and"
        " journals; choose one that tells which application it is.",
    )
    client_rack: str = text(
        "",
        "The rack, or availability zone, of the client. Set it to let a consumer read from a"
        " replica in the same rack, where brokers have a `replica.selector.class` (KIP-392).",
    )
    security_protocol: str = text(
        "PLAINTEXT",
        "The security protocol of connections to brokers: with or without TLS (SSL), and with"
        " or without a login (SASL). It must match the listener at the address connected to.",
        choices=PROTOCOLS,
    )
    sasl_mechanism: str = text(
        "GSSAPI",
        "The SASL mechanism with which the client logs in. The default is Kafka's and is not"
        " supported here, so set it with a SASL security protocol.",
        choices=MECHANISMS,
    )
    sasl_jaas_config: str | None = secret(
        "The user name and password for SASL, in the form of a JAAS file. Use"
        " `sasl.plain.username` and `sasl.plain.password` if you have no such text."
    )
    sasl_plain_username: str | None = text(
        None,
        "The user name with which the client logs in by PLAIN or SCRAM. The user name in"
        " `sasl.jaas.config` takes precedence.",
    )
    sasl_plain_password: str | None = secret(
        "The password with which the client logs in by PLAIN or SCRAM. The password in"
        " `sasl.jaas.config` takes precedence."
    )
    request_timeout_ms: int = whole(
        30_000,
        "The time in milliseconds that the client waits for the response to a request. When it"
        " is exceeded, the connection is closed and the request is retried or fails.",
        at_least=0,
    )
    default_api_timeout_ms: int = whole(
        60_000,
        "The time in milliseconds that a call of the client may take, retries included, if the"
        " call has no timeout argument of its own.",
        at_least=0,
    )
    retry_backoff_ms: int = long(
        100,
        "The time in milliseconds that the client waits before it retries a failed request. The"
        " wait doubles with each failure, up to `retry.backoff.max.ms`.",
        at_least=0,
    )
    retry_backoff_max_ms: int = long(
        1_000,
        "The longest time in milliseconds that the client waits before it retries a request"
        " that has failed several times.",
        at_least=0,
    )
    reconnect_backoff_ms: int = long(
        50,
        "The time in milliseconds that the client waits before it connects again to a broker."
        " The wait doubles with each failure, up to `reconnect.backoff.max.ms`.",
        at_least=0,
    )
    reconnect_backoff_max_ms: int = long(
        1_000,
        "The longest time in milliseconds that the client waits before it connects again to a"
        " broker that has failed several times.",
        at_least=0,
    )
    socket_connection_setup_timeout_ms: int = long(
        10_000,
        "The time in milliseconds that the client waits for a connection to a broker to be set"
        " up. It doubles with each failure, up to `socket.connection.setup.timeout.max.ms`.",
        at_least=0,
    )
    socket_connection_setup_timeout_max_ms: int = long(
        30_000,
        "The longest time in milliseconds that the client waits for a connection to be set up,"
        " after several failures.",
        at_least=0,
    )
    connections_max_idle_ms: int = long(
        540_000,
        "The time in milliseconds after which the client closes a connection that it has not"
        " used; a negative value means no limit. The default is shorter than the brokers', so"
        " that the client closes first.",
    )
    metadata_max_age_ms: int = long(
        300_000,
        "The time in milliseconds after which the client refreshes its metadata even if nothing"
        " has failed. Lower it to notice new topics and partitions sooner.",
        at_least=0,
    )
    metadata_recovery_strategy: str = text(
        "rebootstrap",
        "What the client does when it can reach none of the brokers it knows (KIP-899):"
        " `rebootstrap` begins again with `bootstrap.servers`, `none` keeps trying the known"
        " brokers.",
        choices=["none", "rebootstrap"],
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long(
        300_000,
        "The time in milliseconds without a metadata response after which the client begins"
        " again with `bootstrap.servers`. It has an effect only when"
        " `metadata.recovery.strategy` is `rebootstrap`.",
        at_least=0,
    )
    # This is not a key: a context that the program made takes precedence over the TLS keys.
    ssl_context: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name, spec in keys_of(type(self)).items():
            spec.check(name, getattr(self, name.replace(".", "_")))
        if not self.bootstrap_servers:
            raise ConfigError(
                "bootstrap.servers is missing: a client needs the address of at least one broker"
            )
        _ = self.introduction  # raises ConfigError now if the login is wrong

    @property
    def introduction(self) -> Introduction:
        """The security of connections to brokers."""
        login = _login(self) if uses_sasl(self.security_protocol) else None
        return Introduction(
            protocol=self.security_protocol, tls=self, ssl_context=self.ssl_context, login=login
        )

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return the configuration that keyword arguments give, as values or as text of a file."""
        context = given.pop("ssl_context", None)
        config = cls._read({_key(name): value for name, value in given.items()})
        return config if context is None else attrs.evolve(config, ssl_context=context)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return the configuration that `properties` give, by Kafka's names."""
        return cls._read(properties)

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        declared = keys_of(cls)
        for name in given:
            if name not in declared:
                raise ConfigError(f"unknown key {name}{nearest(name, declared)}")
        return cls(
            **{
                name.replace(".", "_"): _value(name, declared[name], value)
                for name, value in given.items()
            }
        )


def keys_of(config: type[attrs.AttrsInstance]) -> Mapping[str, Spec]:
    """Return the keys of `config` by Kafka's names, the inherited keys first."""
    return specs(config)


# The names of some keys in kafka-python.
_ALIASES = {
    "ssl_cafile": "ssl.truststore.location",
    "ssl_certfile": "ssl.keystore.location",
    "ssl_password": "ssl.key.password",
}


def _key(name: str) -> str:
    return _ALIASES.get(name, name.replace("_", "."))


def _login(config: ClientConfig) -> Login:
    mechanism, name = config.sasl_mechanism, config.sasl_plain_username
    password = config.sasl_plain_password
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism}: expected one of {', '.join(MECHANISMS)}")
    if config.sasl_jaas_config is not None:
        options = Jaas.parse(config.sasl_jaas_config, key="sasl.jaas.config").options
        name, password = options.get("username", name), options.get("password", password)
    if name is None or password is None:
        raise ConfigError(
            f"sasl.jaas.config is missing: {config.security_protocol} needs a username and a "
            "password, in it or in sasl.plain.username and sasl.plain.password"
        )
    return Login(mechanism, name, password)


def _value(name: str, spec: Spec, given: Any) -> Any:
    if isinstance(given, str):
        return spec.value_of(name, given)
    if spec.type is ConfigType.STRING and type(given) is int:
        return spec.value_of(name, str(given))  # acks=1
    if spec.type is ConfigType.LIST and isinstance(given, list | tuple | set | frozenset):
        # A list of texts means the same as its words separated by commas.
        separate = tuple(word for each in given for word in split_words(str(each)))
        return spec.value_of(name, ",".join(separate))
    return given
