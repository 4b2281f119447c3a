"""What happened, for the page: each event as a sentence, the last `KEPT` of them.

Rule 1: entries are numbered, and a reader remembers the number up to which it has read. So a
reader costs nothing here, however slow it is; one that comes too late learns how many it missed.

Rule 2: frequent events (high watermarks, fetch sessions, metadata) are left out. Internal topics
have many partitions: only their faults, decisions and truncations are shown.

Rule 3: the controller and the leader both report an ISR change; only the controller's is shown.
"""

from collections import deque
from collections.abc import Callable

import attrs

from replication.broker.nodes import CONTROLLER_ID
from replication.events import (
    Event,
    EventSink,
    FetcherStarted,
    FetcherStopped,
    FetchSessionClosed,
    FetchSessionEvicted,
    FetchSessionOpened,
    FollowersBehind,
    HighWatermarkAdvanced,
    IsrChanged,
    MetadataApplied,
)
from replication.observe.cluster_state import INTERNAL_PREFIX
from replication.observe.sentences import NEWS, broker_name, kind, sentence

KEPT = 500
_FREQUENT = (
    FetchSessionClosed,
    FetchSessionEvicted,
    FetchSessionOpened,
    FetcherStarted,
    FetcherStopped,
    FollowersBehind,
    HighWatermarkAdvanced,
    MetadataApplied,
)


@attrs.frozen(kw_only=True)
class TimelineEntry:
    """One thing that happened, in a sentence."""

    number: int
    at_ms: int
    """The time on the wall clock."""
    node: str
    name: str
    """The name of the event or of the action."""
    kind: str
    partition: str | None
    text: str


@attrs.define(eq=False)
class Timeline:
    """The last entries of a cluster, and the count of all that there were."""

    wall_ms: Callable[[], int]
    _entries: deque[TimelineEntry] = attrs.field(init=False, factory=lambda: deque(maxlen=KEPT))
    _count: int = attrs.field(init=False, default=0)

    @property
    def count(self) -> int:
        """The number of entries so far, including those that are not kept any more."""
        return self._count

    def since(self, number: int) -> list[TimelineEntry]:
        """Return the entries from `number` on that are still kept."""
        return [each for each in self._entries if each.number >= number]

    def sink(self, node_id: int) -> EventSink:
        name = node_name(node_id)

        def note(event: Event) -> None:
            if not _is_left_out(event, node_id):
                partition = getattr(event, "partition", None)
                self.add(
                    node=name,
                    name=event.name,
                    kind=kind(event),
                    partition=None if partition is None else str(partition),
                    text=sentence(event),
                )

        return note

    def add(
        self, *, node: str, name: str, kind: str, text: str, partition: str | None = None
    ) -> None:
        entry = TimelineEntry(
            number=self._count,
            at_ms=self.wall_ms(),
            node=node,
            name=name,
            kind=kind,
            partition=partition,
            text=text,
        )
        self._entries.append(entry)
        self._count += 1


def node_name(node_id: int) -> str:
    return "controller" if node_id == CONTROLLER_ID else broker_name(node_id)


def _is_left_out(event: Event, node_id: int) -> bool:
    if isinstance(event, _FREQUENT):
        return True
    if isinstance(event, IsrChanged):
        return node_id != CONTROLLER_ID
    partition = getattr(event, "partition", None)
    is_internal = partition is not None and partition.topic.startswith(INTERNAL_PREFIX)
    return is_internal and kind(event) == NEWS
