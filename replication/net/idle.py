"""A connection on which nothing moves is closed after `connections.max.idle.ms`.

    receiving, sending   it is idle while no byte comes or goes
    answering            it is not idle, however long a request takes

When a part of a request or an answer has moved since the last look, the limit begins anew with this
one: a connection is closed after the limit where nothing was on its way, and before twice the limit
otherwise. A request costs two fields that its server sets; all else is done by the looks, one in
each limit.

So a peer that never reads its answers loses its connection, too: the kernel's buffers are full,
and nothing moves. (IdleExpiryManager of Kafka's Selector, which also closes a connection whose
request takes that long.)
"""

from typing import Final

import attrs

from replication.net.seams import Alarm, Connection, NodeClock
from storage.attributes import define

NEVER_SECONDS: Final = 1e9
"""Thirty years, for a connection without a limit."""


def idle_limit_seconds(max_idle_ms: int) -> float:
    """Return the limit in seconds; a negative one means that there is none, as in Kafka."""
    return NEVER_SECONDS if max_idle_ms < 0 else max_idle_ms / 1000


@define(eq=False)
class IdleWatch:
    """A watch that closes `connection` when it has been idle for `max_idle_seconds`.

    Its server counts in `answering` the requests for whose responses the peer waits, and sets `since`
    when one is sent.
    """

    connection: Connection
    clock: NodeClock
    max_idle_seconds: float
    answering: int = attrs.field(init=False, default=0)
    """The number of requests that are being answered."""
    since: float = attrs.field(init=False)
    """The moment from which on we have waited for the peer to send or to read."""
    _moved: int = attrs.field(init=False, default=0)
    _alarm: Alarm = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.since = self.clock.now()
        self._set_alarm()

    def stop(self) -> None:
        self._alarm.call_off()

    def _set_alarm(self) -> None:
        self._alarm = self.clock.alarm(self.since + self.max_idle_seconds, self._look)

    def _look(self) -> None:
        now, moved = self.clock.now(), self.connection.moved
        if self.since + self.max_idle_seconds <= now:
            if not self.answering and moved == self._moved:
                self.connection.close()
                return
            self.since = now  # something has moved at an unknown moment
        self._moved = moved
        self._set_alarm()
