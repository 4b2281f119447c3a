"""attrs' decorators for the many classes of one kind: messages of the protocol, events.

attrs compiles an `__init__`, a `__repr__` and an `__eq__` for each class, and a `__hash__` for a
frozen one. Here all classes share one of each but the first: that is more than half of the time that
their import takes, of which a test with a first cluster waits for 500.

For mypy they are attrs' own, whose names it knows.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import define as define, frozen as frozen  # noqa: PLC0414 - which exports them
else:

    def define(*, kw_only: bool) -> Callable[[type], type]:
        """Declare a class as `attrs.define` does."""

        def declare(kind: type) -> type:
            kind.__repr__, kind.__eq__, kind.__hash__ = _shown, _is_equal, None
            return attrs.define(kind, kw_only=kw_only, repr=False, eq=False)

        return declare

    def frozen(*, kw_only: bool) -> Callable[[type], type]:
        """Declare a class as `attrs.frozen` does."""

        def declare(kind: type) -> type:
            kind.__repr__, kind.__eq__, kind.__hash__ = _shown, _is_equal, _hash
            return attrs.frozen(kind, kw_only=kw_only, repr=False, eq=False)

        return declare


def _shown(self: Any) -> str:
    names = (each.name for each in attrs.fields(self.__class__))
    values = (f"{name}={getattr(self, name)!r}" for name in names)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _is_equal(self: Any, other: Any) -> Any:
    if self.__class__ is not other.__class__:
        return NotImplemented
    values = _values_of(self.__class__)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values_of(self.__class__)(self))


@cache
def _values_of(kind: type) -> Callable[[Any], object]:
    """Return a function that returns the values of an object."""
    names = [each.name for each in attrs.fields(kind)]
    return attrgetter(*names) if names else lambda _: None
