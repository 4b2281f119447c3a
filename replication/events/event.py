"""The base class of events, and the sinks that receive them."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import attrs


@attrs.frozen(kw_only=True)
class Event:
    """A change of state; `name` and `version` determine its fields."""

    name: ClassVar[str]
    version: ClassVar[int] = 1


EventSink: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Receive an event and do nothing: the default sink."""


def fan_out(*sinks: EventSink) -> EventSink:
    """Return one sink for several; `ignore` if none of them listens."""
    listening = tuple(sink for sink in sinks if sink is not ignore)
    if not listening:
        return ignore
    if len(listening) == 1:
        return listening[0]

    def to_each(event: Event) -> None:
        for sink in listening:
            sink(event)

    return to_each
