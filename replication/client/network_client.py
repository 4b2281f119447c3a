"""All connections of one client (NetworkClient, ClusterConnectionStates).

    no connection ── send ──> connecting ──> ready ──┐
         ^                        │                  │ lost
         └── backoff is over ── backing off <────────┘

Rule 1: a connection is made only when something is to be sent. A node in back-off takes no
request: the caller's request fails at once, and the caller pauses (`retry.backoff.ms`).

Rule 2: the back-off of a node grows with each failure in a row, from `reconnect.backoff.ms`
to its `.max.ms`, and is forgotten when a connection is ready.

Rule 3: there is no metadata here. The caller names the node and its address.

    pending = client.send(node, ask(request))            returns at once and raises nothing
    response = await client.call(node, ask(request))     waits for the response
    result = await client.keep_asking(attempt)           repeats a call that may yet succeed

Rule 4: waits between attempts double with each failure (KIP-580), and each is longer or shorter by
up to a fifth by chance: a thousand clients that lost one broker must not come back together.

    failures      1       2       3      ...     n
    wait          first   2x      4x             never over `most`
"""

import math
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.config import ClientConfig
from replication.client.connection import BrokerConnection
from replication.client.errors import KafkaTimeoutError
from replication.client.requests import ClientRequest, PendingResponse
from replication.errors import NO_ANSWER, AuthenticationError, KafkaError, PeerUnavailableError
from replication.net.exchange import Features, Versions
from replication.net.seams import NodeClock, Seams
from replication.net.secure import introduced
from storage.attributes import define, frozen

MAX_IN_FLIGHT = 100  # as in ConsumerNetworkClient; producers have a key for it
MULTIPLIER = 2
JITTER = 0.2

T = TypeVar("T")


@frozen(kw_only=True)
class ExponentialBackoff:
    """Waits that double with each failure in a row (ExponentialBackoff)."""

    first_ms: int
    most_ms: int

    def wait_ms(self, failures: int, chance: random.Random) -> float:
        """Return the wait after so many failures in a row; none after no failure."""
        if failures <= 0:
            return 0
        # Beyond 2^40 any first wait is over any limit, and a float has an end.
        grown = self.first_ms * float(MULTIPLIER ** min(failures - 1, 40))
        jittered = grown * chance.uniform(1 - JITTER, 1 + JITTER)
        return min(jittered, max(self.most_ms, self.first_ms))


@define(eq=False)
class _NodeState:
    """The state of a node that outlives its connections."""

    failures: int = 0
    setup_failures: int = 0
    retry_at: float = 0.0
    tried_at: float = -math.inf
    """When the last connection was begun."""
    connection: BrokerConnection | None = None
    versions: Versions | None = None
    last_error: Exception | None = None


@define(eq=False, kw_only=True)
class NetworkClient:
    """The connections of a client by node; their tasks run in `nursery`, and `close` ends them."""

    config: ClientConfig
    seams: Seams
    nursery: trio.Nursery
    max_in_flight: int = MAX_IN_FLIGHT
    clock: NodeClock = attrs.field(init=False)
    chance: random.Random = attrs.field(init=False)
    _closed: bool = attrs.field(init=False, default=False)
    _nodes: dict[int, _NodeState] = attrs.field(init=False, factory=dict)
    _features: Features = attrs.field(init=False, factory=Features)

    def __attrs_post_init__(self) -> None:
        self.seams = introduced(self.seams, self.config.introduction)
        self.clock, self.chance = self.seams.clock, self.seams.chance

    # -- sending

    def send(
        self,
        node: Node,
        request: ClientRequest,
        *,
        timeout_ms: float | None = None,
        on_done: Callable[[PendingResponse], None] | None = None,
    ) -> PendingResponse:
        """Queue `request`; return what will hold the response, or the error.

        `on_done` is called then; before this returns if the request cannot be sent.
        """
        if timeout_ms is None:
            timeout_ms = self.config.request_timeout_ms
        pending = PendingResponse(
            request, on_done=on_done, deadline=self.clock.now() + timeout_ms / 1000
        )
        state = self._state(node.id)
        if self._closed:
            pending.fail(PeerUnavailableError("this client is closed"))
        elif self.is_backing_off(node.id) and isinstance(state.last_error, AuthenticationError):
            pending.fail(state.last_error)
        elif self.is_backing_off(node.id):
            pending.fail(PeerUnavailableError(f"{node} was lost a moment ago: {state.last_error}"))
        else:
            self._connection(node, state).send(pending)
        return pending

    async def call(
        self, node: Node, request: ClientRequest, *, timeout_ms: float | None = None
    ) -> Any:
        """Return the response; PeerUnavailableError, ProtocolError or UnsupportedVersionError."""
        return await self.send(node, request, timeout_ms=timeout_ms).wait()

    # -- asking again

    def retry_wait_ms(self, failures: int) -> float:
        """Return the wait before the next attempt at a request that has failed so many times."""
        backoff = ExponentialBackoff(
            first_ms=self.config.retry_backoff_ms, most_ms=self.config.retry_backoff_max_ms
        )
        return backoff.wait_ms(failures, self.chance)

    async def pause(self, failures: int) -> None:
        """Wait before the next attempt."""
        await self.clock.sleep(self.retry_wait_ms(failures) / 1000)

    async def keep_asking(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: float | None = None,
        on_no_answer: Callable[[], None] = lambda: None,
    ) -> T:
        """Repeat `attempt` while it fails with no answer or a retriable KafkaError.

        KafkaTimeoutError, caused by the last failure, after `timeout_ms` (`default.api.timeout.ms`).
        """
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        failures = 0
        last: Exception | None = None
        with self.clock.move_on_after(timeout_ms / 1000):
            while True:
                try:
                    return await attempt()
                except AuthenticationError:
                    raise  # asking again would be refused again
                except NO_ANSWER as error:
                    on_no_answer()
                    last = error
                except KafkaError as error:
                    if not error.code.retriable:
                        raise
                    last = error
                failures += 1
                await self.pause(failures)
        raise KafkaTimeoutError(
            f"not done within {timeout_ms:.0f} ms" + (f": {last}" if last else "")
        ) from last

    # -- nodes that can be asked

    def is_backing_off(self, node_id: int) -> bool:
        """Return whether a node was lost and may not be tried again yet."""
        state = self._nodes.get(node_id)
        return state is not None and state.connection is None and not self._may_retry(state)

    def backoff_ms(self, node_id: int) -> float:
        """Return the time in milliseconds until the node may be tried again."""
        if not self.is_backing_off(node_id):
            return 0
        return max(self._nodes[node_id].retry_at - self.clock.now(), 0) * 1000

    def is_ready(self, node_id: int) -> bool:
        state = self._nodes.get(node_id)
        return state is not None and state.connection is not None and state.connection.ready

    def versions(self, node_id: int) -> Versions | None:
        """Return the versions that the node served when last connected; None if it never was."""
        state = self._nodes.get(node_id)
        return None if state is None else state.versions

    def feature(self, name: str) -> int:
        """Return the level of a feature of the cluster; 0 if no broker has named it."""
        return self._features.levels.get(name, 0)

    def in_flight(self, node_id: int) -> int:
        state = self._nodes.get(node_id)
        return 0 if state is None or state.connection is None else state.connection.load

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        """Return the node with the fewest requests; None if all are in back-off.

        A ready node comes first, and then the one that was tried longest ago: a broker that takes
        connections and answers nothing costs `request.timeout.ms` once, and not again and again
        (NetworkClient.leastLoadedNode).
        """
        able = [node for node in nodes if not self.is_backing_off(node.id)]
        if not able:
            return None
        self.chance.shuffle(able)
        return min(able, key=self._rank)

    def _rank(self, node: Node) -> tuple[bool, int, float]:
        ready = self.is_ready(node.id)
        return not ready, self.in_flight(node.id), 0 if ready else self._state(node.id).tried_at

    # -- ending

    def disconnect(self, node_id: int, why: str) -> None:
        """Close the connection to a node, as if the node had closed it."""
        state = self._nodes.get(node_id)
        if state is not None and state.connection is not None:
            state.connection.close(PeerUnavailableError(why))

    def close(self) -> None:
        """Take no more requests, and close every connection. Twice is harmless."""
        self._closed = True
        for node_id in list(self._nodes):
            self.disconnect(node_id, "this client was closed")

    # -- connections

    def _state(self, node_id: int) -> _NodeState:
        return self._nodes.setdefault(node_id, _NodeState())

    def _may_retry(self, state: _NodeState) -> bool:
        return self.clock.now() >= state.retry_at

    def _connection(self, node: Node, state: _NodeState) -> BrokerConnection:
        if state.connection is None or state.connection.lost is not None:
            state.connection = self._make_connection(node, state)
            state.tried_at = self.clock.now()
            self.nursery.start_soon(self._own, state, state.connection)
        return state.connection

    def _make_connection(self, node: Node, state: _NodeState) -> BrokerConnection:
        config = self.config

        def on_ready() -> None:
            state.failures = state.setup_failures = 0
            state.versions = connection.versions
            if connection.features.epoch > self._features.epoch:
                self._features = connection.features

        setup = ExponentialBackoff(
            first_ms=config.socket_connection_setup_timeout_ms,
            most_ms=config.socket_connection_setup_timeout_max_ms,
        )
        connection = BrokerConnection(
            node.host,
            node.port,
            config=config,
            seams=self.seams,
            max_in_flight=self.max_in_flight,
            connect_timeout_ms=setup.wait_ms(state.setup_failures + 1, self.chance),
            on_ready=on_ready,
        )
        return connection

    async def _own(self, state: _NodeState, connection: BrokerConnection) -> None:
        """Run one connection, and note how it ended."""
        try:
            await connection.run()
        finally:
            state.failures += 1
            state.setup_failures += not connection.ready
            backoff = ExponentialBackoff(
                first_ms=self.config.reconnect_backoff_ms,
                most_ms=self.config.reconnect_backoff_max_ms,
            )
            wait_ms = backoff.wait_ms(state.failures, self.chance)
            state.retry_at = self.clock.now() + wait_ms / 1000
            state.last_error = connection.lost
            if state.connection is connection:
                state.connection = None
