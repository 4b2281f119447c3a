"""Filters that Spark pushes into a read, and how they narrow it.

    topic, partition     partitions that are not read at all         taken from Spark: exact
    offset               where in a log to begin and to end          Spark filters again
    timestamp            batches that are skipped by their header    Spark filters again

Filters that are not understood go back to Spark, which applies them.
"""

import datetime as dt
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from storage.types import Offset, TopicPartition

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, choices: value in choices,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


@attrs.frozen
class Narrowing:
    """The limits of a read."""

    partition_tests: tuple[tuple[str, str, Any], ...] = ()
    """Column, comparison, and operand."""
    from_offset: Offset | None = None
    to_offset: Offset | None = None
    """Exclusive, as ends of logs are."""
    from_timestamp: int | None = None
    """In milliseconds; an upper limit would not help, as headers lack the oldest timestamp."""

    def admits(self, tp: TopicPartition) -> bool:
        return all(
            _COMPARISONS[comparison](tp.topic if column == "topic" else tp.partition, operand)
            for column, comparison, operand in self.partition_tests
        )

    def clamp(self, start: Offset, end: Offset) -> tuple[Offset, Offset]:
        low = start if self.from_offset is None else max(start, self.from_offset)
        high = end if self.to_offset is None else min(end, self.to_offset)
        return low, max(low, high)


def narrow(filters: Iterable[Any]) -> tuple[Narrowing, list[Any]]:
    """Return the limits by all filters together, and the filters that Spark still has to apply."""
    narrowing, left = Narrowing(), []
    for each in filters:
        kind = type(each).__name__
        column: tuple[str, ...] = getattr(each, "attribute", ())
        narrowed = None
        if kind in _COMPARISONS and len(column) == 1:
            narrowed = _narrowed(narrowing, column[0], kind, each.value)
        if narrowed is None or column[0] not in ("topic", "partition"):
            left.append(each)
        narrowing = narrowed or narrowing
    return narrowing, left


def _narrowed(narrowing: Narrowing, column: str, kind: str, operand: Any) -> Narrowing | None:
    match column:
        case "topic" | "partition":
            tests = (*narrowing.partition_tests, (column, kind, operand))
            return attrs.evolve(narrowing, partition_tests=tests)
        case "offset" if (span := _span(kind, operand)) is not None:
            low, high = span
            return attrs.evolve(
                narrowing,
                from_offset=_most(narrowing.from_offset, low),
                to_offset=_least(narrowing.to_offset, None if high is None else high + 1),
            )
        case "timestamp" if (low := _milliseconds(kind, operand)) is not None:
            return attrs.evolve(narrowing, from_timestamp=_most(narrowing.from_timestamp, low))
        case _:
            return None


def _span(kind: str, operand: Any) -> tuple[int | None, int | None] | None:
    """Return the least and the greatest number that passes a comparison."""
    match kind:
        case "EqualTo":
            return operand, operand
        case "In" if operand:
            return min(operand), max(operand)
        case "GreaterThan":
            return operand + 1, None
        case "GreaterThanOrEqual":
            return operand, None
        case "LessThan":
            return None, operand - 1
        case "LessThanOrEqual":
            return None, operand
        case _:
            return None


def _milliseconds(kind: str, operand: Any) -> int | None:
    """Return the least timestamp that passes a comparison, in whole milliseconds."""
    times = operand if kind == "In" else (operand,)
    if kind.startswith("Less") or not times:
        return None
    if not all(isinstance(each, dt.datetime) and each.tzinfo for each in times):
        return None
    return min(int((each - _EPOCH) // _MILLISECOND) for each in times)


def _most(known: int | None, new: int | None) -> int | None:
    return new if known is None else known if new is None else max(known, new)


def _least(known: int | None, new: int | None) -> int | None:
    return new if known is None else known if new is None else min(known, new)
