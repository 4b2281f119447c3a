"""The listeners of brokers and controllers."""

from replication.config import BrokerConfig, ListenerConfig
from replication.errors import UnderstudyError
from replication.net.seams import Listener, Transport
from replication.net.secure import accepting_context, guarded


class ListenError(UnderstudyError):
    """The error of a port that is in use, or of an address of another host."""


async def listen(transport: Transport, where: ListenerConfig, config: BrokerConfig) -> Listener:
    """Listen, and return a listener that speaks the configured protocol.

    Raises ListenError, which names the listener, and ConfigError for unusable TLS keys.
    """
    context = accepting_context(config.security_of(where.name))
    try:
        return guarded(await transport.listen(where.host, where.port), context)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error
