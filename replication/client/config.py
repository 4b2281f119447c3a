"""What every client is told, by Kafka's names, typed and checked.

    ClientConfig.of(bootstrap_servers="b1:9092", request_timeout_ms=5000)     Kafka's words, underscored
    ClientConfig.from_properties({"bootstrap.servers": "b1:9092"})            as a file has them

A key is declared once (`replication.config.keys`); consumers, producers and admin clients
add theirs in a class below this one. A wrong key or value is one `ConfigError` of one line.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.config import ConfigType, HostPort
from replication.config.jaas import Jaas
from replication.config.keys import Spec, long, secret, specs, split_words, text, values, whole
from replication.config.known import nearest
from replication.config.security import MECHANISMS, PROTOCOLS, Introduction, Login, uses_sasl
from replication.config.tls import TlsKeys
from replication.errors import ConfigError


@attrs.frozen(kw_only=True)
class ClientConfig(TlsKeys):
    """The keys that all clients share (CommonClientConfigs), at Kafka's defaults."""

    bootstrap_servers: tuple[HostPort, ...] = values(
        "Whom to ask first; any brokers of the cluster.",
        parse=HostPort.parse,
        expectation="host:port, parted by commas",
    )
    client_id: str = text("", "The name under which requests are sent.")
    client_rack: str = text("", "Where this client stands; the rack of a nearby replica (KIP-392).")
    security_protocol: str = text("PLAINTEXT", "How brokers are spoken to.", choices=PROTOCOLS)
    sasl_mechanism: str = text("GSSAPI", "How we log in.", choices=MECHANISMS)
    sasl_jaas_config: str | None = secret("Who we log in as, in Java's form.")
    sasl_plain_username: str | None = text(None, "Who we log in as, by PLAIN or SCRAM.")
    sasl_plain_password: str | None = secret("With which password.")
    request_timeout_ms: int = whole(30_000, "How long a broker may take to answer.", at_least=0)
    default_api_timeout_ms: int = whole(
        60_000, "How long a call that names no time of its own may take.", at_least=0
    )
    retry_backoff_ms: int = long(100, "The wait before a request is tried again.", at_least=0)
    retry_backoff_max_ms: int = long(1_000, "The longest such wait.", at_least=0)
    reconnect_backoff_ms: int = long(50, "The wait before a broker is tried again.", at_least=0)
    reconnect_backoff_max_ms: int = long(1_000, "The longest such wait.", at_least=0)
    socket_connection_setup_timeout_ms: int = long(
        10_000, "How long a connection may take to come up.", at_least=0
    )
    socket_connection_setup_timeout_max_ms: int = long(
        30_000, "The longest such time, after failures.", at_least=0
    )
    connections_max_idle_ms: int = long(540_000, "When an idle connection is closed.")
    metadata_max_age_ms: int = long(
        300_000, "When metadata is asked for anew, whether or not anything failed.", at_least=0
    )
    metadata_recovery_strategy: str = text(
        "rebootstrap",
        "What becomes of a client none of whose brokers can be reached (KIP-899).",
        choices=["none", "rebootstrap"],
    )
    metadata_recovery_rebootstrap_trigger_ms: int = long(
        300_000, "How long without metadata until the bootstrap servers are asked.", at_least=0
    )
    # Not a key: a context that the program has made goes before every key of TLS.
    ssl_context: ssl.SSLContext | None = None

    def __attrs_post_init__(self) -> None:
        for name, spec in keys_of(type(self)).items():
            spec.check(name, getattr(self, name.replace(".", "_")))
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is missing: a client must know one broker")
        _ = self.introduction  # whatever is wrong with it is said now

    @property
    def introduction(self) -> Introduction:
        """How connections to brokers are made."""
        login = _login(self) if uses_sasl(self.security_protocol) else None
        return Introduction(
            protocol=self.security_protocol, tls=self, ssl_context=self.ssl_context, login=login
        )

    @classmethod
    def of(cls, **given: Any) -> Self:
        """From keyword arguments: values, or text as a file would have it."""
        context = given.pop("ssl_context", None)
        config = cls._read({_key(name): value for name, value in given.items()})
        return config if context is None else attrs.evolve(config, ssl_context=context)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """From Kafka's own names."""
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
    """Its keys by Kafka's names, those it shares first."""
    return specs(config)


# What kafka-python calls some keys.
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
            f"sasl.jaas.config is missing: {config.security_protocol} takes a username and a "
            "password, there or as sasl.plain.username and sasl.plain.password"
        )
    return Login(mechanism, name, password)


def _value(name: str, spec: Spec, given: Any) -> Any:
    if isinstance(given, str):
        return spec.value_of(name, given)
    if spec.type is ConfigType.STRING and type(given) is int:
        return spec.value_of(name, str(given))  # acks=1
    if spec.type is ConfigType.LIST and isinstance(given, list | tuple | set | frozenset):
        # A list of texts is what its words, parted by commas, would be.
        parted = tuple(word for each in given for word in split_words(str(each)))
        return spec.value_of(name, ",".join(parted))
    return given
