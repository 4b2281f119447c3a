"""What happened, to be read beside the page: each event as a sentence, the last `KEPT` of them.

Rule 1: they are numbered, and whoever reads remembers the number that it has read up to. So a
reader costs nothing here, however slow; one that comes too late is told how many it has missed.

Rule 2: what moves all the time (high watermarks, fetch sessions, metadata) is no news, and of
internal topics there are many partitions: of those only faults, decisions and cuts are told.

Rule 3: an ISR change is told by the controller and by the leader that asked for it: once here.
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
_CHATTER = (
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
class Told:
    number: int
    at_ms: int
    """Wall clock."""
    node: str
    name: str
    """The event's, or the action's."""
    kind: str
    partition: str | None
    text: str


@attrs.define(eq=False)
class Timeline:
    wall_ms: Callable[[], int]
    _told: deque[Told] = attrs.field(init=False, factory=lambda: deque(maxlen=KEPT))
    _count: int = attrs.field(init=False, default=0)

    @property
    def count(self) -> int:
        """How many there have been."""
        return self._count

    def since(self, number: int) -> list[Told]:
        """From that number on, as far as they are kept."""
        first = max(number, self._count - len(self._told))
        return [each for each in self._told if each.number >= first]

    def sink(self, node_id: int) -> EventSink:
        name = node_name(node_id)

        def tell(event: Event) -> None:
            if not _is_chatter(event, node_id):
                partition = getattr(event, "partition", None)
                self.add(
                    node=name,
                    name=event.name,
                    kind=kind(event),
                    partition=None if partition is None else str(partition),
                    text=sentence(event),
                )

        return tell

    def add(
        self, *, node: str, name: str, kind: str, text: str, partition: str | None = None
    ) -> None:
        told = Told(
            number=self._count,
            at_ms=self.wall_ms(),
            node=node,
            name=name,
            kind=kind,
            partition=partition,
            text=text,
        )
        self._told.append(told)
        self._count += 1


def node_name(node_id: int) -> str:
    return "controller" if node_id == CONTROLLER_ID else broker_name(node_id)


def _is_chatter(event: Event, node_id: int) -> bool:
    if isinstance(event, _CHATTER):
        return True
    if isinstance(event, IsrChanged):
        return node_id != CONTROLLER_ID
    partition = getattr(event, "partition", None)
    is_internal = partition is not None and partition.topic.startswith(INTERNAL_PREFIX)
    return is_internal and kind(event) == NEWS
