"""What a broker and a controller need alike to begin and to end as nodes of a process."""

from collections.abc import Iterator
from contextlib import contextmanager

from replication.config import Listener as ListenerConfig
from replication.errors import UnderstudyError
from replication.net.seams import Listener, Transport


class ListenError(UnderstudyError):
    """A port that is taken, or an address that is not ours."""


async def listen(transport: Transport, where: ListenerConfig) -> Listener:
    """ListenError, naming the listener, where that cannot be."""
    try:
        return await transport.listen(where.host, where.port)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error


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
def raising_the_first() -> Iterator[None]:
    """Of several that failed together, and mostly for one reason, the first speaks for all."""
    try:
        yield
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
