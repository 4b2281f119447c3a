"""Rules about the fetch sessions of a leader, whose slots are scarce (KIP-227).

I22  a session displaces none that counts more: first a follower's counts more than a consumer's,
     then one of more partitions more than one of fewer
"""

from collections.abc import Iterator

import attrs

from replication.events import Event, FetchSessionEvicted, FetchSessionOpened
from scenarios.checkers.observed import Wrong

DISPLACES = "a fetch session displaces none that counts more"


@attrs.define(eq=False)
class SessionSlots:
    """The session that was displaced last, until the next one is opened, which has its slot."""

    _displaced: FetchSessionEvicted | None = None

    def taken(self, event: Event) -> Iterator[Wrong]:
        match event:
            case FetchSessionEvicted(cause="displaced"):
                self._displaced = event
            case FetchSessionOpened() if self._displaced is not None:
                yield from displaces(event, self._displaced)
                self._displaced = None


def displaces(opened: FetchSessionOpened, evicted: FetchSessionEvicted) -> Iterator[Wrong]:
    """Check a session that was opened in the slot of one that was in use."""
    if (opened.privileged, opened.partitions) < (evicted.privileged, evicted.partitions):
        yield Wrong(
            DISPLACES,
            f"session {opened.session_id} {_shown(opened)} took the slot of {evicted.session_id}"
            f" {_shown(evicted)}",
        )


def _shown(session: FetchSessionEvicted | FetchSessionOpened) -> str:
    whose = "a follower" if session.privileged else "a consumer"
    return f"(of {whose}, partitions: {session.partitions})"
