"""Addresses in configuration keys: `NAME://host:port`, `id@host:port`, `host:port`."""

import re
from collections.abc import Sequence
from ipaddress import ip_address

from replication.errors import ConfigError
from storage.attributes import frozen

_HOST_PORT = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]/@]*)):(\d{1,5})")
_NONROUTABLE = ("0.0.0.0", "::")  # noqa: S104 compared with, not bound to


@frozen
class HostPort:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        found = _HOST_PORT.fullmatch(text)
        if found is None or int(found[3]) > 65535:
            raise ValueError("host:port")
        return cls(found[1] if found[1] is not None else found[2], int(found[3]))


@frozen
class AddressLimit:
    """The largest number of connections from one IP address."""

    address: str
    count: int

    def __str__(self) -> str:
        return f"{self.address}:{self.count}"

    @classmethod
    def parse(cls, text: str) -> "AddressLimit":
        address, _, count = text.rpartition(":")
        if not count.isdecimal():
            raise ValueError("address:count")
        return cls(str(ip_address(address.strip("[]"))), int(count))


@frozen
class ListenerConfig:
    """A named address; an empty host stands for every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{HostPort(self.host, self.port)}"

    @classmethod
    def parse(cls, text: str) -> "ListenerConfig":
        name, separator, address = text.partition("://")
        if not separator or not name:
            raise ValueError("NAME://host:port, separated by commas")
        where = HostPort.parse(address)
        return cls(name.upper(), where.host, where.port)


@frozen
class Voter:
    """A controller: its node id and its address."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{HostPort(self.host, self.port)}"

    @classmethod
    def parse(cls, text: str) -> "Voter":
        node_id, separator, address = text.partition("@")
        if not separator or not node_id.isdecimal():
            raise ValueError("id@host:port, separated by commas")
        where = HostPort.parse(address)
        return cls(int(node_id), where.host, where.port)


def check_listeners(
    listeners: Sequence[ListenerConfig], *, advertised: Sequence[ListenerConfig]
) -> None:
    """Raise ConfigError if a name occurs twice or an advertised address cannot be reached."""
    for key, given in (("listeners", listeners), ("advertised.listeners", advertised)):
        if len({each.name for each in given}) < len(given):
            raise ConfigError(f"{key}={','.join(map(str, given))}: expected each name once")
    for each in advertised:
        if not is_routable(each.host):
            raise ConfigError(f"advertised.listeners={each}: expected a host that others can reach")


def is_routable(host: str) -> bool:
    """Return whether other nodes can connect to `host`."""
    return bool(host) and host not in _NONROUTABLE
