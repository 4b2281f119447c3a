"""Events of the boundaries at which errors stop: refused connections, and bugs."""

from typing import ClassVar

import attrs

from replication.events.event import Event


@attrs.frozen(kw_only=True)
class ConnectionRefused(Event):
    """A connection was closed for what it sent: not Kafka's protocol, or an unanswered request."""

    name: ClassVar[str] = "connection_refused"
    peer: str
    cause: str


@attrs.frozen(kw_only=True)
class BugCaught(Event):
    """An exception reached a boundary: one connection, fetcher or background job was closed."""

    name: ClassVar[str] = "bug_caught"
    boundary: str  # where it was stopped
    error: str
