"""The errors of a nursery: trio groups all that its tasks raise, even a single exception."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raising_only_one() -> Iterator[None]:
    """Raise the only exception of nested groups by itself; a real group stays one."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


@contextmanager
def raising_the_first(kind: type[Exception] = Exception) -> Iterator[None]:
    """Raise only the first of several exceptions of `kind`, which mostly have one reason.

    A group with an exception of another kind stays one.
    """
    try:
        yield
    except ExceptionGroup as group:
        if group.split(kind)[1] is not None:
            raise
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
