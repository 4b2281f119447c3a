"""Brokers that let in who shows a certificate or logs in, and the ways in that the card tries.

    PLAINTEXT   to see whether they are up; nobody has rights there
    TLS         one-way                       User:ANONYMOUS
    MUTUAL      a certificate is asked for    User:carol, and the brokers themselves
    LOGIN       SASL over TLS                 User:bob, by every mechanism
    BRIEF       the same, and a login is good for two seconds (KIP-368)

Each way in has a topic and a group of its own, which ACLs give to whom it should make of the
client and to nobody else: who came in as another could neither write nor read.
"""

import json
from pathlib import Path
from typing import Any, Final

import attrs

from replication.broker.nodes import HOST
from replication.cli.isolated import IsolatedCluster, free_ports
from replication.client import Admin
from replication.config.security import STANDARD_AUTHORIZER
from replication.config.tls import TlsKeys
from replication.security.rules.acls import (
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.replication.net.certificates import certificates, in_files, in_pkcs8

LISTENERS: Final = ("TLS", "MUTUAL", "LOGIN", "BRIEF")
LIFETIME_MS: Final = 2000
STAY_SECONDS: Final = 7.0  # some lifetimes of a login
PASSWORD: Final = "sesame"
_EVERY_MECHANISM: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@attrs.frozen(kw_only=True)
class Way:
    """How a client comes in, which of its functions is called, and who it then is."""

    title: str
    listener: str
    probe: str = "enter"
    mechanism: str = ""
    password: str = PASSWORD
    right: Operation = Operation.ALL
    """The operation that ACLs allow on its own topic and group."""

    @property
    def principal(self) -> str:
        return {"TLS": "User:ANONYMOUS", "MUTUAL": "User:carol"}.get(self.listener, "User:bob")


WAYS: Final = {
    "tls": Way(title="TLS", listener="TLS"),
    "mutual_tls": Way(title="mutual TLS", listener="MUTUAL"),
    "sasl_plain": Way(title="SASL PLAIN", listener="LOGIN", mechanism="PLAIN"),
    "scram_sha_256": Way(title="SCRAM-SHA-256", listener="LOGIN", mechanism="SCRAM-SHA-256"),
    "scram_sha_512": Way(title="SCRAM-SHA-512", listener="LOGIN", mechanism="SCRAM-SHA-512"),
    "wrong_password": Way(
        title="a wrong password is an error of its own",
        listener="LOGIN",
        probe="turned_away",
        mechanism="PLAIN",
        password="wrong",
    ),
    "acl_refusal": Way(
        title="what ACLs refuse, of a topic and of a group, are errors of their own",
        listener="LOGIN",
        probe="refused",
        mechanism="PLAIN",
        right=Operation.DESCRIBE,
    ),
    "reauthentication": Way(
        title="logs in again on its connection (KIP-368)",
        listener="BRIEF",
        probe="stay",
        mechanism="PLAIN",
    ),
}


@attrs.frozen(kw_only=True)
class Entrance:
    """The settings with which a client connects; certificates as files for clients that want files."""

    servers: str
    trusted: str
    own: str = ""
    mechanism: str = ""
    username: str = ""
    password: str = ""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    def as_properties(self) -> dict[str, str]:
        """Return the settings of Kafka's own clients, PEM (KIP-651)."""
        words = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }
        if self.own:
            words |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.own}
        if self.mechanism:
            module = "scram.Scram" if self.mechanism.startswith("SCRAM") else "plain.Plain"
            words["sasl.mechanism"] = self.mechanism
            words["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module}LoginModule required"
                f' username="{self.username}" password="{self.password}";'
            )
        return words

    def as_librdkafka(self) -> dict[str, str]:
        words = {"security.protocol": self.protocol, "ssl.ca.location": self.trusted}
        if self.own:
            words |= {"ssl.certificate.location": self.own, "ssl.key.location": self.own}
        if self.mechanism:
            words |= {"sasl.mechanisms": self.mechanism}
            words |= {"sasl.username": self.username, "sasl.password": self.password}
        return words

    def as_kafka_python(self) -> dict[str, Any]:
        """Return the arguments of kafka-python and of our own clients."""
        words = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.protocol,
            "ssl_cafile": self.trusted,
        }
        if self.own:
            words |= {"ssl_certfile": self.own}
        if self.mechanism:
            words |= {"sasl_mechanism": self.mechanism}
            words |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        return words

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Entrance":
        return cls(**json.loads(text))


@attrs.frozen
class SecuredCluster:
    """Three brokers, and where each listener of theirs is."""

    cluster: IsolatedCluster
    ports: dict[str, list[int]]
    files: Path

    @classmethod
    def planned(cls, directory: Path, config: dict[str, str]) -> "SecuredCluster":
        """Return a cluster that is not started yet."""
        directory.mkdir(parents=True, exist_ok=True)
        brokers = 3
        ports = free_ports(brokers * (len(LISTENERS) + 1) + 1)
        of = {
            name: ports[brokers * at : brokers * (at + 1)]
            for at, name in enumerate(("PLAINTEXT", *LISTENERS))
        }
        cluster = IsolatedCluster(
            directory / "nodes",
            brokers=brokers,
            ports=[*of["PLAINTEXT"], ports[-1]],
            config=config | _config(directory),
            node_config={
                node_id: {
                    "listeners": ",".join(
                        f"{name}://{HOST}:{found[node_id - 1]}" for name, found in of.items()
                    )
                }
                for node_id in range(1, brokers + 1)
            },
        )
        return cls(cluster, of, directory)

    def entrance(self, way: Way) -> Entrance:
        return Entrance(
            servers=",".join(f"{HOST}:{port}" for port in self.ports[way.listener]),
            trusted=str(self.files / "trusted.pem"),
            own=str(self.files / "carol.pem") if way.listener == "MUTUAL" else "",
            mechanism=way.mechanism,
            username="bob" if way.mechanism else "",
            password=way.password if way.mechanism else "",
        )

    def admin(self) -> Admin:
        """Return an admin client that may do everything."""
        words = attrs.evolve(self.entrance(WAYS["mutual_tls"]), own=str(self.files / "boss.pem"))
        return Admin(**words.as_kafka_python())


def rights_of(way: Way, name: str) -> list[Acl]:
    """On the topic and on the group that are called `name`."""
    return [
        Acl(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=way.principal,
            host=WILDCARD,
            operation=way.right,
            permission=Permission.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]


def _config(directory: Path) -> dict[str, str]:
    for name in ("boss", "carol"):
        keys = certificates().issued(f"{name}.example", HOST, common_name=name)
        in_files(_for_java(keys), directory, name)
    protocols = {name: "SASL_SSL" if name in ("LOGIN", "BRIEF") else "SSL" for name in LISTENERS}
    mapped = {"CONTROLLER": "SSL", "PLAINTEXT": "PLAINTEXT", **protocols}
    found = {
        "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in mapped.items()),
        "inter.broker.listener.name": "MUTUAL",
        "ssl.keystore.location": str(directory / "boss.pem"),
        "ssl.truststore.location": str(directory / "trusted.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(_EVERY_MECHANISM),
        "listener.name.brief.connections.max.reauth.ms": str(LIFETIME_MS),
        "understudy.add.scram": ";".join(
            f"{each}=[name=bob,password={PASSWORD}]"
            for each in _EVERY_MECHANISM
            if each.startswith("SCRAM")
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:boss",
    }
    users = f'PlainLoginModule required user_bob="{PASSWORD}";'
    for name in ("login", "brief"):
        found[f"listener.name.{name}.plain.sasl.jaas.config"] = users
    return found


def _for_java(keys: TlsKeys) -> TlsKeys:
    """PKCS8 is the one form of a key that Java reads; everybody else does too."""
    return attrs.evolve(keys, ssl_keystore_key=in_pkcs8(keys.ssl_keystore_key or ""))
