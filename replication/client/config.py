"""What every client is told, by Kafka's names, typed and checked.

    ClientConfig.of(bootstrap_servers="b1:9092", request_timeout_ms=5000)     Kafka's words, underscored
    ClientConfig.from_properties({"bootstrap.servers": "b1:9092"})            as a file has them

A key is declared once (`replication.config.keys`); consumers, producers and admin clients
add theirs in a class below this one. A wrong key or value is one `ConfigError` of one line.
"""

from collections.abc import Mapping
from typing import Any, Self

import attrs

from replication.config import ConfigType, HostPort
from replication.config.keys import Spec, long, specs, split_words, text, values, whole
from replication.config.known import nearest
from replication.errors import ConfigError


@attrs.frozen(kw_only=True)
class ClientConfig:
    """The keys that all clients share (CommonClientConfigs), at Kafka's defaults."""

    bootstrap_servers: tuple[HostPort, ...] = values(
        "Whom to ask first; any brokers of the cluster.",
        parse=HostPort.parse,
        expectation="host:port, parted by commas",
    )
    client_id: str = text("", "The name under which requests are sent.")
    client_rack: str = text("", "Where this client stands; the rack of a nearby replica (KIP-392).")
    security_protocol: str = text("PLAINTEXT", "How brokers are spoken to.", choices=["PLAINTEXT"])
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

    def __attrs_post_init__(self) -> None:
        for name, spec in keys_of(type(self)).items():
            spec.check(name, getattr(self, name.replace(".", "_")))
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is missing: a client must know one broker")

    @classmethod
    def of(cls, **given: Any) -> Self:
        """From keyword arguments: values, or text as a file would have it."""
        return cls._read({name.replace("_", "."): value for name, value in given.items()})

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


def _value(name: str, spec: Spec, given: Any) -> Any:
    if isinstance(given, str):
        return spec.value_of(name, given)
    if spec.type is ConfigType.LIST and isinstance(given, list | tuple | set | frozenset):
        # A list of texts is what its words, parted by commas, would be.
        parted = tuple(word for each in given for word in split_words(str(each)))
        return spec.value_of(name, ",".join(parted))
    return given
