"""The board of the page: its timeline of events, and the newest state beside it.

    put(state), a few times a second         news(position 7) -> all that changed after 7
    each item has the version at which         a partition that changed ten times meanwhile
    it changed last                            is in there once, as it is now

Rule 1: nothing is kept for a reader, which remembers how far it has read. One that has fallen
behind, over a slow line or in a hidden tab, gets a single update, however much has happened, and
the number of events that it missed: there is no queue that could grow.

Rule 2: each item is encoded as JSON once, when it changes, for all readers.

Rule 3: of the events, the last `KEPT` are kept, each as a sentence. Frequent events (high
watermarks, fetch sessions, metadata) are left out. Internal topics have many partitions: only their
faults, decisions and truncations are shown.

Rule 4: the controller and the leader both report an ISR change; it is shown once.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping

import attrs
import trio

from replication.broker.nodes import CONTROLLER_ID, is_controller
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
    TopicDeleted,
)
from replication.observe.cluster_state import (
    INTERNAL_PREFIX,
    ClusterState,
    ObservedPartition,
    to_json,
)
from replication.observe.losses import LossCount
from replication.observe.page.verdict import verdict
from replication.observe.pages import WORDS
from replication.observe.sentences import NEWS, broker_name, kind, sentence
from storage.attributes import define, frozen
from storage.types import TopicPartition

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

NOTHING = -1


@frozen(kw_only=True)
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


@define(eq=False)
class Timeline:
    """The last entries of a cluster, and the count of all that there were."""

    wall_ms: Callable[[], int]
    _entries: deque[TimelineEntry] = attrs.field(init=False, factory=lambda: deque(maxlen=KEPT))
    _count: int = attrs.field(init=False, default=0)
    _isr_epochs: dict[TopicPartition, int] = attrs.field(init=False, factory=dict)
    """The partition epoch of the last ISR change shown."""
    losses: LossCount = attrs.field(init=False, factory=LossCount)

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
            self.losses.sink(event)
            if not self._is_left_out(event):
                partition = getattr(event, "partition", None)
                self.add(
                    node=name,
                    name=event.name,
                    kind=kind(event),
                    partition=None if partition is None else str(partition),
                    text=sentence(event),
                )

        return note

    def _is_left_out(self, event: Event) -> bool:
        match event:
            case IsrChanged():
                if event.partition_epoch <= self._isr_epochs.get(event.partition, -1):
                    return True
                self._isr_epochs[event.partition] = event.partition_epoch
            case TopicDeleted():
                for each in [each for each in self._isr_epochs if each.topic == event.topic]:
                    del self._isr_epochs[each]
            case _:
                pass
        partition = getattr(event, "partition", None)
        is_internal = partition is not None and partition.topic.startswith(INTERNAL_PREFIX)
        return isinstance(event, _FREQUENT) or (is_internal and kind(event) == NEWS)

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
    if node_id == CONTROLLER_ID:
        return "controller"
    return f"controller {node_id}" if is_controller(node_id) else broker_name(node_id)


@frozen
class ReaderPosition:
    """How far a reader has read: a version of the state, and a number in the timeline."""

    version: int = NOTHING
    next_event: int = 0


@frozen
class _Entry:
    version: int
    value: object
    json: str


@define(eq=False)
class Board:
    """The newest state of a cluster, and the timeline beside it."""

    timeline: Timeline
    _version: int = attrs.field(init=False, default=NOTHING)
    _now_ms: int = attrs.field(init=False, default=0)
    _events: int = attrs.field(init=False, default=0)
    """The number of events in the timeline at the current version."""
    _head: _Entry = attrs.field(init=False, default=_Entry(NOTHING, None, "null"))
    _verdict: _Entry = attrs.field(init=False, default=_Entry(NOTHING, None, "null"))
    _order: _Entry = attrs.field(init=False, default=_Entry(NOTHING, None, "[]"))
    _partitions: dict[TopicPartition, _Entry] = attrs.field(init=False, factory=dict)
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def version(self) -> int:
        return self._version

    def put(self, state: ClusterState) -> None:
        """Take the current state, and wake the waiting readers if anything has changed."""
        self._now_ms = state.now_ms
        version = self._version + 1
        head = attrs.evolve(state, now_ms=0, partitions=())
        self._head = _renewed(self._head, head, version)
        found = verdict(state, self.timeline.losses)
        fields = {"level": found.level, "word": WORDS[found.level], "text": found.text}
        self._verdict = _renewed(self._verdict, fields, version)
        order = [str(each.topic_partition) for each in state.partitions]
        self._order = _renewed(self._order, order, version)
        self._partitions = dict(self._put_partitions(state.partitions, version))
        newest = (self._head, self._verdict, self._order, *self._partitions.values())
        if self._events != self.timeline.count or any(each.version == version for each in newest):
            self._version, self._events = version, self.timeline.count
            self._changed.set()
            self._changed = trio.Event()

    def _put_partitions(
        self, partitions: tuple[ObservedPartition, ...], version: int
    ) -> Iterator[tuple[TopicPartition, _Entry]]:
        for each in partitions:
            name = each.topic_partition
            yield name, _renewed(self._partitions.get(name), each, version)

    async def news(self, seen: ReaderPosition) -> tuple[str, ReaderPosition]:
        """Wait until something has changed since `seen`; return it as JSON, and its position."""
        while self._version == seen.version:
            await self._changed.wait()
        return self._update(seen), ReaderPosition(self._version, self._events)

    def _update(self, seen: ReaderPosition) -> str:
        since = self.timeline.since(seen.next_event)
        events = [each for each in since if each.number < self._events]
        parts: Mapping[str, str] = {
            "now": str(self._now_ms),
            **({"cluster": self._head.json} if self._head.version > seen.version else {}),
            **({"verdict": self._verdict.json} if self._verdict.version > seen.version else {}),
            **({"order": self._order.json} if self._order.version > seen.version else {}),
            "partitions": _list(
                each.json for each in self._partitions.values() if each.version > seen.version
            ),
            "events": to_json(events),
            "missed": str(self._events - seen.next_event - len(events)),
        }
        return "{" + ",".join(f'"{name}":{json}' for name, json in parts.items()) + "}"


def _renewed(entry: _Entry | None, value: object, version: int) -> _Entry:
    if entry is not None and entry.value == value:
        return entry
    return _Entry(version, value, to_json(value))


def _list(parts: Iterator[str]) -> str:
    return f"[{','.join(parts)}]"
