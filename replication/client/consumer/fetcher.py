"""Sends what `fetch_requests` prepares, and brings it what comes of it (Fetcher).

Rule 1: `send` never waits; each answer is brought by a task of its own, and `on_arrival`
tells that there is something in the buffer, or something to be asked anew.

Rule 2: whatever becomes of a fetch, its node may be asked again.
"""

from collections.abc import Callable

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.consumer.fetch_requests import FetchRequests
from replication.client.errors import NO_ANSWER
from replication.client.network_client import NetworkClient
from replication.client.requests import PendingResponse
from replication.errors import KafkaError
from replication.follower.rules.fetch_session_handler import FetchRequestData
from replication.net.seams import NodeClock


@attrs.define(eq=False, kw_only=True)
class Fetcher:
    """One consumer's; its tasks are in `nursery`."""

    requests: FetchRequests
    network: NetworkClient
    clock: NodeClock
    nursery: trio.Nursery
    retry_backoff_ms: int
    on_arrival: Callable[[], None]
    _error: KafkaError | None = attrs.field(init=False, default=None)

    def raise_error(self) -> None:
        """That a broker cannot be fetched from at all, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def send(self) -> None:
        """Ask every node that may be asked for what may be fetched."""
        for node, data in self.requests.prepare(now_ms=self.clock.now() * 1000):
            pending = self.network.send(node, self.requests.request(data))
            self.nursery.start_soon(self._bring, node, data, pending, self.clock.now())

    async def _bring(
        self, node: Node, data: FetchRequestData, pending: PendingResponse, sent_at: float
    ) -> None:
        try:
            response = await pending.wait()
        except NO_ANSWER:
            self.requests.on_failure(node)
            self.requests.request_metadata()
        except KafkaError as error:
            self.requests.on_failure(node)
            self._error = error
        else:
            goes_on = self.requests.on_response(
                node,
                data,
                response,
                version=pending.version,
                latency_ms=(self.clock.now() - sent_at) * 1000,
            )
            if not goes_on:  # who refuses, or leaves out what it was asked, is not asked at once
                at_ms = self.clock.now() * 1000 + self.retry_backoff_ms
                self.requests.subscriptions.retry_at(data.session_partitions, at_ms)
        self.on_arrival()

    async def close(self) -> None:
        """Give the sessions back; brokers that do not answer will forget them by themselves."""
        pending = [
            self.network.send(node, self.requests.request(data))
            for node, data in self.requests.close()
        ]
        for each in pending:
            try:
                await each.wait()
            except (*NO_ANSWER, KafkaError):
                continue
