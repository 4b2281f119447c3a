"""The log for people: every event as one structlog line, with its name and fields."""

import attrs
import structlog.typing

from replication.events import (
    BugCaught,
    Event,
    EventSink,
    LogDirectoryFailed,
    LogDirectoryWarned,
    LogRepaired,
    MetadataNotServed,
    PartitionFailed,
    PeerContradicted,
    QuorumMisconfigured,
    RegistrationRefused,
)
from replication.visible import visible_line

_GRAVE: dict[type[Event], str] = {
    BugCaught: "error",
    LogDirectoryFailed: "error",
    LogDirectoryWarned: "warning",
    LogRepaired: "warning",
    PartitionFailed: "warning",
    PeerContradicted: "warning",
    MetadataNotServed: "warning",
    QuorumMisconfigured: "warning",
    RegistrationRefused: "warning",
}


def log_sink(logger: structlog.typing.FilteringBoundLogger) -> EventSink:
    """Return a sink that logs to `logger`, which the caller has bound to a broker."""

    def log(event: Event) -> None:
        level = _GRAVE.get(type(event), "info")
        facts = {key: _plain(value) for key, value in attrs.asdict(event, recurse=False).items()}
        getattr(logger, level)(event.name, **facts)

    return log


def _plain(value: object) -> object:
    """Return `value` in a form for people: `topic-0`, `[1, 2]`, hexadecimal ids."""
    if isinstance(value, bytes):
        return value.hex()
    if type(value) is tuple:
        return [_plain(each) for each in value]
    if isinstance(value, str | tuple):
        return visible_line(str(value))
    return value
