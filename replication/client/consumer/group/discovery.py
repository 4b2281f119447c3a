"""The coordinator of a consumer's group: it is searched for, and asked.

Rule 1: tasks that need the coordinator at the same time share one search.

Rule 2: a coordinator that does not answer, or says that it is no coordinator, is forgotten; the
next request searches again, after a back-off.
"""

from typing import Any

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.config import ClientConfig
from replication.client.consumer.group.membership import error_of
from replication.client.coordinators import find_coordinator
from replication.client.errors import NO_ANSWER, UnsupportedVersionError
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.requests import ClientRequest
from replication.client.retries import retry_backoff
from replication.errors import KafkaError
from replication.net.seams import NodeClock
from replication.wire.find_coordinator import GROUP


@attrs.define(eq=False, kw_only=True)
class CoordinatorFinder:
    """The coordinator of one group, as far as it is known."""

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
        """Close the connection: the requests that the coordinator holds are not wanted any more."""
        if self.known is not None:
            self.network.disconnect(self.known.id, "its requests are not wanted any more")

    async def pause(self, failures: int) -> None:
        """Wait before the next attempt at a request to the coordinator."""
        backoff = retry_backoff(self.config)
        await self.clock.sleep(backoff.wait_ms(failures, self.network.chance) / 1000)

    async def find(self) -> Node:
        """Search until the coordinator is found; KafkaError if no search would help."""
        async with self._searching:
            failures = 0
            while self.known is None:
                if failures:
                    await self.pause(failures)
                self.known = await self._search()
                failures += 1
            return self.known

    async def call(self, request: ClientRequest, *, timeout_ms: float | None = None) -> Any:
        """Ask the coordinator; PeerUnavailableError or ProtocolError if it does not answer."""
        node = await self.find()
        try:
            return await self.network.call(node, request, timeout_ms=timeout_ms)
        except NO_ANSWER:
            if self.known == node:
                self.forget()
            raise

    async def _search(self) -> Node | None:
        await trio.lowlevel.checkpoint()
        try:
            return await find_coordinator(self.network, self.metadata, GROUP, self.group_id)
        except NO_ANSWER:
            self.metadata.request_update()
            return None
        except UnsupportedVersionError:
            raise
        except KafkaError as error:
            if error.code.retriable:
                return None
            raise error_of(error.code, self.group_id) from None
