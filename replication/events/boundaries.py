"""What was stopped at a boundary: strangers, and mistakes of our own."""

from typing import ClassVar

import attrs

from replication.events.event import Event


@attrs.frozen(kw_only=True)
class ConnectionRefused(Event):
    """A connection was closed for what came over it: no protocol of ours, or no answer to it."""

    name: ClassVar[str] = "connection_refused"
    peer: str
    cause: str


@attrs.frozen(kw_only=True)
class BugCaught(Event):
    """An exception at a boundary: one connection, fetcher or background job was closed."""

    name: ClassVar[str] = "bug_caught"
    boundary: str  # where it was stopped
    error: str
