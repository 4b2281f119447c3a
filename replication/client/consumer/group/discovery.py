"""Which broker looks after our group (FindCoordinator), and asking it.

Rule 1: several who need it share one search.

Rule 2: a coordinator that does not answer, or says that it is none, is forgotten; whoever
needs it next looks again, after a back-off.
"""

from typing import Any

import attrs
import trio

from replication.client.backoff import ExponentialBackoff
from replication.client.config import ClientConfig
from replication.client.consumer.group.membership import error_of
from replication.client.errors import NO_ANSWER
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.nodes import Node
from replication.client.requests import ClientRequest, ask
from replication.errors import ErrorCode
from replication.net.seams import NodeClock
from replication.wire.find_coordinator import (
    GROUP,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_LATER = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@attrs.define(eq=False, kw_only=True)
class CoordinatorFinder:
    """Of one group."""

    group_id: str
    config: ClientConfig
    network: NetworkClient
    metadata: Metadata
    clock: NodeClock
    known: Node | None = attrs.field(init=False, default=None)
    _searching: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    def forget(self) -> None:
        self.known = None

    def hang_up(self) -> None:
        """Whatever it is holding back for us, it need not any more."""
        if self.known is not None:
            self.network.disconnect(self.known.id, "what was asked is not wanted any more")

    async def pause(self, failures: int) -> None:
        """Before the next attempt at anything that a coordinator is asked."""
        backoff = ExponentialBackoff(
            first_ms=self.config.retry_backoff_ms, most_ms=self.config.retry_backoff_max_ms
        )
        await self.clock.sleep(backoff.wait_ms(failures, self.network.chance) / 1000)

    async def find(self) -> Node:
        """However long it takes; KafkaError where no search would help."""
        async with self._searching:
            failures = 0
            while self.known is None:
                if failures:
                    await self.pause(failures)
                self.known = await self._search()
                failures += 1
            return self.known

    async def call(self, request: ClientRequest, *, timeout_ms: float | None = None) -> Any:
        """Ask the coordinator; PeerUnavailableError or ProtocolError where it gave no answer."""
        node = await self.find()
        try:
            return await self.network.call(node, request, timeout_ms=timeout_ms)
        except NO_ANSWER:
            if self.known == node:
                self.forget()
            raise

    async def _search(self) -> Node | None:
        await trio.lowlevel.checkpoint()
        node = self.metadata.any_node()
        if node is None:
            return None
        request = FindCoordinatorRequest(
            key=self.group_id, key_type=GROUP, coordinator_keys=[self.group_id]
        )
        try:
            response = await self.network.call(node, ask(request))
        except NO_ANSWER:
            self.metadata.request_update()
            return None
        found = _coordinator(response)
        error = ErrorCode.of(found.error_code)
        if error is ErrorCode.NONE:
            return Node(found.node_id, found.host, found.port).as_coordinator()
        if error in _LATER or error.retriable:
            return None
        raise error_of(error, self.group_id)


def _coordinator(response: FindCoordinatorResponse) -> Coordinator:
    """Up to version 3 it stands at the top."""
    if response.coordinators:
        return response.coordinators[0]
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
    )
