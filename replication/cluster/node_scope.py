"""Taking a port, as brokers and controllers do."""

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
