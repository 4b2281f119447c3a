"""What comes out of a nursery: trio groups whatever its tasks raised, also where that is one thing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raising_only_one() -> Iterator[None]:
    """Out of nested groups of one exception comes that exception; a real group stays one."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


@contextmanager
def raising_the_first(kind: type[Exception] = Exception) -> Iterator[None]:
    """Of several that failed together, and mostly for one reason, the first speaks for all.

    A group in which there is another than of `kind` stays one.
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
