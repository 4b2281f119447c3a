"""The cluster as a client sees it: the brokers that it can reach on the listener of its connection."""

from replication.metadata.rules.image import MetadataImage
from replication.wire.broker_registration import Endpoint
from storage.attributes import frozen
from storage.types import TopicPartition


@frozen
class View:
    """One image, as a client on `listener` may see it."""

    image: MetadataImage
    listener: str

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return where the client reaches a broker; None if it cannot."""
        if not self.image.is_alive(broker_id):
            return None
        registration = self.image.broker(broker_id)
        assert registration is not None, "a live broker is registered"
        return registration.endpoint(self.listener)

    def brokers(self, *, fenced: bool = False) -> list[tuple[int, Endpoint, str | None]]:
        """Return the brokers with an endpoint on the listener, fenced ones only if `fenced`."""
        return [
            (broker_id, end, registration.rack)
            for broker_id, registration in sorted(self.image.brokers.items())
            if (fenced or not registration.fenced)
            and (end := registration.endpoint(self.listener)) is not None
        ]

    def leader(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the leader of a partition and its leader epoch; (-1, -1) where it is unknown."""
        registration = self.image.partition(partition)
        if registration is None:
            return -1, -1
        return registration.leader, registration.leader_epoch
