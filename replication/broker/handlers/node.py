"""The broker as its handlers see it."""

from collections.abc import Callable
from typing import Any

import attrs

from replication.config import BrokerConfig
from replication.errors import PeerUnavailableError
from replication.groups.consumers import ConsumerGroups
from replication.groups.coordinator import GroupCoordinator
from replication.leader.rules.fetch_session.context import FetchManager
from replication.metadata.cache import MetadataCache
from replication.net.controller_channel import ControllerCalls
from replication.net.seams import NodeClock, Offload
from replication.replica_manager import ReplicaManager, TransactionVerification
from replication.transactions.coordinator import TransactionCoordinator
from replication.transactions.producer_ids import ProducerIds
from storage.attributes import define
from storage.manager.log_manager import LogManager

# A forwarded request takes at least this long before it is given up: a client may say 1.
MINIMUM_FORWARD_TIMEOUT_MS = 1_000
RECONNECT_BACKOFF_MS = 50  # reconnect.backoff.ms of NodeToControllerChannelManager's client


@define(eq=False, repr=False, kw_only=True)
class BrokerNode:
    """The parts of one broker that its handlers use."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: NodeClock
    offload: Offload
    metadata: MetadataCache
    logs: LogManager
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    consumers: ConsumerGroups
    transactions: TransactionCoordinator
    verification: TransactionVerification
    fetch_sessions: FetchManager
    controller: ControllerCalls
    producer_ids: ProducerIds
    broker_epoch: Callable[[], int]
    creating: set[str] = attrs.field(factory=set, init=False)
    """The topics that are being created for clients that named them."""

    async def forward(self, request: Any, *, timeout_ms: int) -> Any:
        """Return the controller's answer; raise PeerUnavailableError if there is none.

        If the controller is unavailable, wait for it as long as the client waits. A request that
        the controller may have carried out before it died is sent again, as in Kafka, so the answer
        to the creation of a topic may be TOPIC_ALREADY_EXISTS. A request whose timeout has passed
        already is not sent at all (the deadlines of KafkaEventQueue).
        """
        if timeout_ms <= 0:
            raise PeerUnavailableError(f"the request's timeout is {timeout_ms} ms")
        deadline_ms = self.clock.now_ms() + max(timeout_ms, MINIMUM_FORWARD_TIMEOUT_MS)
        while True:
            left_ms = deadline_ms - self.clock.now_ms()
            try:
                return await self.controller.call(request, timeout_ms=max(1, left_ms))
            except PeerUnavailableError:
                if left_ms <= RECONNECT_BACKOFF_MS:
                    raise
            await self.clock.sleep(RECONNECT_BACKOFF_MS / 1000)
