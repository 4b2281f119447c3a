"""The limits on a node's connections, in all and from one address (ConnectionQuotas in Kafka).

    accepted ── a slot is free? ──no── it waits, and those behind it in the backlog
                     │ yes
                 counted ── its address has max.connections.per.ip ── closed
                     │
                  served ── until it ends, which frees the slot

Rule 1: the inter-broker listener, if there is another one, always has a slot. The connections that
are too many then, or because max.connections was lowered, are closed on the other listeners: those
that have been idle longest.

Rule 2: refused connections are reported once in `REPORT_SECONDS`, so that a flood of connections
does not become a flood of log lines.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Self

import attrs
import trio

from replication.config import BrokerConfig
from replication.config.keys import INT_MAX
from replication.errors import TooManyConnectionsError
from replication.events import ConnectionRefused, EventSink
from replication.net.seams import Connection, NodeClock
from storage.attributes import define, frozen

REPORT_SECONDS = 10.0


@frozen(kw_only=True)
class ConnectionLimits:
    """The numbers of connections that the configuration allows."""

    in_all: int = INT_MAX
    of_an_address: int = INT_MAX
    of_single_addresses: Mapping[str, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        return cls(
            in_all=config.max_connections,
            of_an_address=config.max_connections_per_ip,
            of_single_addresses={
                each.address: each.count for each in config.max_connections_per_ip_overrides
            },
        )


@define(eq=False)
class ConnectionSlot:
    """One connection that is counted."""

    connection: Connection
    listener: str
    address: str
    last_used: float


@define(eq=False, kw_only=True)
class ConnectionQuotas:
    """The connections of one node, on all of its listeners."""

    clock: NodeClock
    sink: EventSink
    limits: Callable[[], ConnectionLimits] = ConnectionLimits
    protected_listener: str | None = None
    """The inter-broker listener, if there is another one."""
    _slots: dict[ConnectionSlot, None] = attrs.field(factory=dict, init=False)
    _by_address: Counter[str] = attrs.field(factory=Counter, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _reported_at: float | None = attrs.field(default=None, init=False)
    _unreported: int = attrs.field(default=0, init=False)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._slots)

    async def wait_for_slot(self, listener: str) -> None:
        """Wait until `listener` may have another connection."""
        while listener != self.protected_listener and (self.connections >= self.limits().in_all):
            await self._changed.wait()

    def take(self, connection: Connection, listener: str) -> ConnectionSlot:
        """Count `connection`; raise TooManyConnectionsError if its address has too many."""
        address = connection.peer.rpartition(":")[0]
        most = self._most_of(address)
        if self._by_address[address] >= most:
            raise TooManyConnectionsError(
                connection.peer, f"{address} has {most} connections (max.connections.per.ip)"
            )
        slot = ConnectionSlot(connection, listener, address, self.clock.now())
        self._slots[slot] = None
        self._by_address[address] += 1
        self._close_excess()
        return slot

    def free(self, slot: ConnectionSlot) -> None:
        """Count the connection of `slot` no longer."""
        del self._slots[slot]
        self._by_address[slot.address] -= 1
        if not self._by_address[slot.address]:
            del self._by_address[slot.address]
        self._look_again()

    def limits_changed(self) -> None:
        """Apply the present limits."""
        self._close_excess()
        self._look_again()

    def refuse(self, error: TooManyConnectionsError, listener: str) -> None:
        """Count a connection that was closed, and report it now and then (Rule 2)."""
        if listener == self.protected_listener:
            self._close_quietest(1)  # the broker will connect again
        self._unreported += 1
        now = self.clock.now()
        if self._reported_at is None or now - self._reported_at >= REPORT_SECONDS:
            more = (
                f"; {self._unreported - 1} more since the last line" if self._unreported > 1 else ""
            )
            self._reported_at, self._unreported = now, 0
            self.sink(ConnectionRefused(peer=error.peer, cause=f"{error}{more}"))

    def _look_again(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _close_excess(self) -> None:
        excess = self.connections - self.limits().in_all
        if excess > 0:
            self._close_quietest(excess)

    def _close_quietest(self, count: int) -> None:
        """Close the connections that have been idle longest; each frees its slot as it ends."""
        others = [each for each in self._slots if each.listener != self.protected_listener]
        for slot in nsmallest(count, others, key=lambda each: each.last_used):
            slot.connection.close()

    def _most_of(self, address: str) -> int:
        limits = self.limits()
        return limits.of_single_addresses.get(address, limits.of_an_address)
