"""The sender of the fetches that `fetch_requests` prepares (Kafka's Fetcher).

Rule 1: `send` never waits. A task of its own waits for each response, and calls `on_arrival` when
there is something in the buffer or to be sent again.

Rule 2: however a fetch ends, its node may be asked again.
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
    """The fetches of one consumer; its tasks run in `nursery`."""

    requests: FetchRequests
    network: NetworkClient
    clock: NodeClock
    nursery: trio.Nursery
    retry_backoff_ms: int
    on_arrival: Callable[[], None]
    _error: KafkaError | None = attrs.field(init=False, default=None)

    def raise_error(self) -> None:
        """Raise, once, the error of a broker that cannot be fetched from."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def send(self) -> None:
        """Send a fetch to every node that may be asked now."""
        for node, data in self.requests.prepare(now_ms=self.clock.now() * 1000):
            pending = self.network.send(node, self.requests.request(data))
            self.nursery.start_soon(self._wait_for, node, data, pending, self.clock.now())

    async def _wait_for(
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
            if not goes_on:  # it refused, or left out what was asked: not again at once
                at_ms = self.clock.now() * 1000 + self.retry_backoff_ms
                self.requests.subscriptions.retry_at(data.session_partitions, at_ms)
        self.on_arrival()

    async def close(self) -> None:
        """Close the sessions; brokers that do not answer forget them by themselves."""
        pending = [
            self.network.send(node, self.requests.request(data))
            for node, data in self.requests.close()
        ]
        for each in pending:
            try:
                await each.wait()
            except (*NO_ANSWER, KafkaError):
                continue
