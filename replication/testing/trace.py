"""The last events of a cluster, to be read when a test has failed.

12.031  b2   leader_elected        orders-0 leader=3 leader_epoch=2 ...
"""

from collections import deque
from collections.abc import Callable, Iterator

import attrs

from replication.events import Event, EventSink
from storage.types import TopicPartition

KEPT = 10_000


@attrs.define(eq=False)
class Trace:
    """The last `KEPT` events of all nodes; `now` returns seconds."""

    now: Callable[[], float]
    _events: deque[tuple[int, float, int, Event]] = attrs.field(
        init=False, factory=lambda: deque(maxlen=KEPT)
    )
    _count: int = attrs.field(init=False, default=0)

    @property
    def mark(self) -> int:
        """The number of events so far; `lines` can begin there."""
        return self._count

    def sink(self, node_id: int) -> EventSink:
        def keep(event: Event) -> None:
            self._events.append((self._count, self.now(), node_id, event))
            self._count += 1

        return keep

    def lines(self, since: int = 0) -> Iterator[str]:
        for number, moment, node_id, event in tuple(self._events):
            if number >= since:
                node = f"b{node_id}" if node_id else "controller"
                yield f"{moment:9.3f}  {node:<10}  {event.name:<24}  {_fields(event)}"


def _fields(event: Event) -> str:
    values = ((each.name, getattr(event, each.name)) for each in attrs.fields(type(event)))
    return " ".join(f"{name}={_shown(value)}" for name, value in values)


def _shown(value: object) -> str:
    if isinstance(value, TopicPartition):
        return str(value)
    return value.hex() if isinstance(value, bytes) else str(value).replace(" ", "")
