"""`auto.offset.reset`: earliest, latest, none, or `by_duration:P1DT6H` (KIP-1106)."""

import re

from replication.client.consumer.position import OffsetResetStrategy
from replication.wire import list_offsets

EARLIEST = OffsetResetStrategy("earliest", timestamp=list_offsets.EARLIEST)
LATEST = OffsetResetStrategy("latest", timestamp=list_offsets.LATEST)
BY_DURATION = "by_duration:"

# As java.time.Duration has it: days, and a time of them; anything may be left out but all.
_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def parse_strategy(text: str) -> OffsetResetStrategy | None:
    """None for `none`; ValueError for what is no strategy."""
    match text.lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "none":
            return None
        case named if named.startswith(BY_DURATION):
            span = _duration_ms(text[len(BY_DURATION) :])
            return OffsetResetStrategy(text, before_now_ms=span)
        case _:
            raise ValueError(text)


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    parts = found.groups() if found is not None else ()
    if not any(parts):
        raise ValueError(f"{text} is not a duration such as P1DT6H")
    return int(sum(float(part or 0) * unit for part, unit in zip(parts, _UNITS_MS, strict=True)))


def timestamp_of(strategy: OffsetResetStrategy, *, wall_ms: int) -> int:
    """What ListOffsets is asked for."""
    if strategy.timestamp is not None:
        return strategy.timestamp
    assert strategy.before_now_ms is not None, "a strategy is one or the other"
    return wall_ms - strategy.before_now_ms
