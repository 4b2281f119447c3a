"""A connection on which nothing moves is closed after `connections.max.idle.ms`.

    receiving, sending   it is idle while no byte comes or goes
    answering            it is not idle, however long a request takes

When something has moved since the last look, the limit begins anew with this one: a connection
is closed after the limit where nothing was on its way, and before twice the limit otherwise.

So a peer that never reads its answers loses its connection, too: the kernel's buffers are full,
and nothing moves. (IdleExpiryManager of Kafka's Selector, which also closes a connection whose
request takes that long.)
"""

from typing import Final

import attrs

from replication.net.seams import Alarm, Connection, NodeClock

NEVER_SECONDS: Final = 1e9
"""Thirty years, for a connection without a limit."""


def idle_limit_seconds(max_idle_ms: int) -> float:
    """Return the limit in seconds; a negative one means that there is none, as in Kafka."""
    return NEVER_SECONDS if max_idle_ms < 0 else max_idle_ms / 1000


@attrs.define(eq=False)
class IdleWatch:
    """A watch that closes `connection` when it has been idle for `max_idle_seconds`."""

    connection: Connection
    clock: NodeClock
    max_idle_seconds: float
    _answering: bool = attrs.field(init=False, default=False)
    _moved: int = attrs.field(init=False, default=0)
    _since: float = attrs.field(init=False)
    _alarm: Alarm = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.wait_for_peer()
        self._set_alarm()

    def answer(self) -> None:
        """Note that the peer waits for our response."""
        self._answering = True

    def wait_for_peer(self) -> None:
        """Note that we wait for the peer to send or to read."""
        self._answering = False
        self._since, self._moved = self.clock.now(), self.connection.moved

    def stop(self) -> None:
        self._alarm.call_off()

    def _set_alarm(self) -> None:
        self._alarm = self.clock.alarm(self._since + self.max_idle_seconds, self._look)

    def _look(self) -> None:
        if not self._answering and self.connection.moved == self._moved:
            if self._since + self.max_idle_seconds <= self.clock.now():
                self.connection.close()
                return
        else:
            # Something has moved at an unknown moment: the limit begins anew.
            self._since, self._moved = self.clock.now(), self.connection.moved
        self._set_alarm()
