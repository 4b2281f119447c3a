"""attrs' decorators, for the classes of `storage` and `replication`.

attrs compiles a repr, a comparison and a hash for each class, which is a third of what the import of
these packages takes, and a test waits for that import before its first cluster. Here all classes share
one of each. What attrs compiles is left: the constructors.

For mypy the decorators are attrs' own, whose names it knows. A class that defines one of these methods
keeps it, and `repr=`, `eq=`, `attrs.field(repr=)` and `attrs.field(eq=)` mean what they mean there.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import define as define, frozen as frozen  # noqa: PLC0414 - which exports them
else:

    def define(kind: type | None = None, /, **options: Any) -> Any:
        """Declare a class as `attrs.define` does."""
        return _declared(attrs.define, None, kind, options)

    def frozen(kind: type | None = None, /, **options: Any) -> Any:
        """Declare a class as `attrs.frozen` does."""
        return _declared(attrs.frozen, _hash, kind, options)


def _declared(
    decorator: Callable[..., Any],
    hashed: Callable[[Any], int] | None,
    kind: type | None,
    options: dict[str, Any],
) -> Any:
    def declare(kind: Any) -> Any:
        if options.get("repr", True) and "__repr__" not in vars(kind):
            kind.__repr__ = _shown
        if options.get("eq", True) and "__eq__" not in vars(kind):
            kind.__eq__, kind.__hash__ = _is_equal, hashed
        return decorator(kind, **options)  # which generates no method that the class has

    return declare if kind is None else declare(kind)


@recursive_repr()
def _shown(self: Any) -> str:
    fields = [each for each in attrs.fields(self.__class__) if each.repr]
    shown = (
        f"{each.name}={(repr if each.repr is True else each.repr)(getattr(self, each.name))}"
        for each in fields
    )
    return f"{self.__class__.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


def _is_equal(self: Any, other: Any) -> Any:
    if self.__class__ is not other.__class__:
        return NotImplemented
    values = _values_of(self.__class__)
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values_of(self.__class__)(self))


@cache
def _values_of(kind: type) -> Callable[[Any], object]:
    """Return a function that returns the values of an object that are compared."""
    names = [each.name for each in attrs.fields(kind) if each.eq]
    return attrgetter(*names) if names else lambda _: None
