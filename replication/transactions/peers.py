"""Lines to the other brokers of the cluster, one for each address and purpose."""

import attrs

from replication.errors import PeerUnavailableError
from replication.metadata.cache import MetadataCache
from replication.net.controller_channel import ControllerChannel
from replication.net.seams import Seams


@attrs.define(eq=False, kw_only=True)
class PeerChannels:
    client_id: str
    listener: str
    """The one that brokers use."""
    seams: Seams
    metadata: MetadataCache
    _channels: dict[tuple[str, int], ControllerChannel] = attrs.field(factory=dict, init=False)

    def to(self, broker_id: int) -> ControllerChannel:
        """PeerUnavailableError where nobody knows where that broker is."""
        registration = self.metadata.image.broker(broker_id)
        endpoint = None if registration is None else registration.endpoint(self.listener)
        if endpoint is None:
            raise PeerUnavailableError(f"broker {broker_id} cannot be reached")
        address = (endpoint.host, endpoint.port)
        if address not in self._channels:
            self._channels[address] = ControllerChannel(*address, self.client_id, self.seams)
        return self._channels[address]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
