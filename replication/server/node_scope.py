"""Taking a port, as brokers and controllers do."""

from replication.config import BrokerConfig, Listener as ListenerConfig
from replication.errors import UnderstudyError
from replication.net.seams import Listener, Transport
from replication.net.secure import accepting_context, guarded


class ListenError(UnderstudyError):
    """A port that is taken, or an address that is not ours."""


async def listen(transport: Transport, where: ListenerConfig, config: BrokerConfig) -> Listener:
    """A listener that speaks its protocol.

    ListenError, naming the listener, where that cannot be; ConfigError where its keys are of
    no use.
    """
    context = accepting_context(config.security_of(where.name))
    try:
        return guarded(await transport.listen(where.host, where.port), context)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error
