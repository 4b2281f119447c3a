"""The human log: every event as one structlog line, named and with its fields."""

import attrs
import structlog.typing

from replication.events import (
    BugCaught,
    Event,
    EventSink,
    LogDirectoryFailed,
    LogDirectoryWarned,
    LogRepaired,
    PartitionFailed,
)
from replication.visible import visible_line

_GRAVE: dict[type[Event], str] = {
    BugCaught: "error",
    LogDirectoryFailed: "error",
    LogDirectoryWarned: "warning",
    LogRepaired: "warning",
    PartitionFailed: "warning",
}


def log_sink(logger: structlog.typing.FilteringBoundLogger) -> EventSink:
    """A sink that logs to `logger`, which knows already which broker speaks."""

    def log(event: Event) -> None:
        level = _GRAVE.get(type(event), "info")
        facts = {key: _plain(value) for key, value in attrs.asdict(event, recurse=False).items()}
        getattr(logger, level)(event.name, **facts)

    return log


def _plain(value: object) -> object:
    """As a person reads it: `topic-0`, `[1, 2]`, hexadecimal ids."""
    if isinstance(value, bytes):
        return value.hex()
    if type(value) is tuple:
        return [_plain(each) for each in value]
    if isinstance(value, str | tuple):
        return visible_line(str(value))
    return value
