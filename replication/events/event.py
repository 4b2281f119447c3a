"""A fact, and the sink that it is handed to."""

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import attrs


@attrs.frozen(kw_only=True)
class Event:
    """A fact. `name` and `version` say how its fields are to be read."""

    name: ClassVar[str]
    version: ClassVar[int] = 1


EventSink: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The sink of those who were given none."""


def fan_out(*sinks: EventSink) -> EventSink:
    """One sink for several; `ignore` where none of them listens."""
    listening = tuple(sink for sink in sinks if sink is not ignore)
    if not listening:
        return ignore
    if len(listening) == 1:
        return listening[0]

    def to_each(event: Event) -> None:
        for sink in listening:
            sink(event)

    return to_each
