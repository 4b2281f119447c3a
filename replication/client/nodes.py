"""Brokers as clients know them: by number, and where they listen.

A broker that is only known by its address has a negative number (Cluster.bootstrap). Group
and transaction coordinators are asked over connections of their own, so that a JoinGroup
that waits for a minute holds up no fetch; their numbers are far from those of brokers.
"""

import attrs

NO_NODE = -1
_COORDINATORS_DOWN_FROM = 2**31 - 1


@attrs.frozen
class Node:
    """One broker, or its second connection as a coordinator."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"

    def as_coordinator(self) -> "Node":
        """Its second connection; of that, the broker again."""
        return attrs.evolve(self, id=_COORDINATORS_DOWN_FROM - self.id)


def bootstrap_node(index: int, host: str, port: int) -> Node:
    return Node(-1 - index, host, port)
