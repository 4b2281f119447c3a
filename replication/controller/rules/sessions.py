"""Who has been heard of lately (BrokerHeartbeatManager).

Rule 1: a session is the controller's memory, not the log's. A controller that comes back
gives every broker that is not fenced a full session before it fences any, for they may
all be well and have had nobody to tell.

Rule 2: only an unfenced broker has a session. A fenced one may register again at once.
"""

from collections.abc import Iterable

import attrs

from replication.metadata.rules import BrokerRegistration, MetadataImage
from storage.types import Offset

_EVERYTHING = 2**63 - 1


@attrs.define
class BrokerSessions:
    session_timeout_ms: int
    _heard_ms: dict[int, int] = attrs.field(factory=dict, init=False)
    _metadata_offset: dict[int, Offset] = attrs.field(factory=dict, init=False)
    _shutdown_offset: dict[int, Offset] = attrs.field(factory=dict, init=False)
    _fetched: dict[int, Offset] = attrs.field(factory=dict, init=False)

    def restart(self, image: MetadataImage, now_ms: int) -> None:
        """Everyone who is not fenced has just been heard of."""
        for broker in _unfenced(image):
            self._heard_ms[broker.broker_id] = now_ms

    def touch(self, broker_id: int, *, now_ms: int, metadata_offset: Offset) -> None:
        self._heard_ms[broker_id] = now_ms
        self._metadata_offset[broker_id] = metadata_offset

    def begin(self, broker_id: int) -> None:
        """Begin the session of a new incarnation: what the last one said does not count."""
        self._heard_ms.pop(broker_id, None)
        self._metadata_offset.pop(broker_id, None)
        self._shutdown_offset.pop(broker_id, None)
        self._fetched.pop(broker_id, None)

    def is_valid(self, broker: BrokerRegistration, now_ms: int) -> bool:
        return not broker.fenced and now_ms <= self._expires_ms(broker)

    def expired(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Brokers to fence, the longest silent first."""
        stale = [broker for broker in _unfenced(image) if not self.is_valid(broker, now_ms)]
        stale.sort(key=lambda broker: (self._expires_ms(broker), broker.broker_id))
        return [broker.broker_id for broker in stale]

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        return min((self._expires_ms(broker) for broker in _unfenced(image)), default=None)

    def silent_ms(self, broker_id: int, now_ms: int) -> int:
        return now_ms - self._heard_ms.get(broker_id, now_ms)

    # Controlled shutdown: a broker may go once the others know that it is going.

    def shutdown_began(self, broker_id: int, offset: Offset) -> None:
        """`offset`: the last record that moved its leaderships away."""
        self._shutdown_offset[broker_id] = offset

    def shutdown_is_known(self, broker_id: int, image: MetadataImage) -> bool:
        """Return whether every active broker has applied what moved its leaderships away."""
        active = [each.broker_id for each in _unfenced(image) if not each.in_controlled_shutdown]
        lowest = min((self._metadata_offset.get(each, -1) for each in active), default=_EVERYTHING)
        return self._shutdown_offset.get(broker_id, -1) <= lowest

    # The metadata log: how far each broker's copy reaches.

    def fetches_from(self, broker_id: int, offset: Offset) -> None:
        """Note that a broker has all of the metadata log below `offset`."""
        self._fetched[broker_id] = offset

    def all_have(self, offset: Offset, image: MetadataImage) -> bool:
        """Return whether every unfenced broker has all of the metadata log below `offset`."""
        return all(self._fetched.get(each.broker_id, 0) >= offset for each in _unfenced(image))

    def _expires_ms(self, broker: BrokerRegistration) -> int:
        return self._heard_ms.get(broker.broker_id, -_EVERYTHING) + self.session_timeout_ms


def _unfenced(image: MetadataImage) -> Iterable[BrokerRegistration]:
    return (broker for broker in image.brokers.values() if not broker.fenced)
