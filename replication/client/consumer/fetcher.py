"""The next fetch from each broker, sending it, and what follows from the responses.

    fetchable, and nothing of it buffered
        │ leader unknown: metadata is requested
        v
    the replica to read from, or the leader
        │ in back-off, or a fetch to it is under way: not now
        v
    that node's session ── request ──> response ──> a CompletedFetch each, in the buffer

Rule 1: one fetch in flight per node, in an incremental session (KIP-227). A buffered partition
is left out of the next request, so it leaves the session, and joins it again when drained.

Rule 2: a response to a session that has been closed meanwhile is dropped.

Rule 3: a leader that a response names beside its error is used at once (KIP-951); metadata is
requested all the same.

(Kafka: AbstractFetch, Fetcher.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from replication.client.cluster_view import ClusterView, Node
from replication.client.consumer.completed_fetch import CompletedFetch, FetchBuffer, ReadSettings
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.metrics import FetchMetrics, FetchTotal
from replication.client.consumer.position import FetchPosition
from replication.client.consumer.subscription import SubscriptionState
from replication.client.network_client import NetworkClient
from replication.client.requests import ClientRequest, PendingResponse
from replication.errors import NO_ANSWER, ErrorCode, KafkaError
from replication.follower.rules.fetch_session_handler import (
    FetchRequestData,
    FetchRequestParams,
    FetchSessionHandler,
    WantedPartition,
)
from replication.wire.apis import ApiKey
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from replication.wire.schema import MAX_VERSION
from storage.attributes import define
from storage.types import TopicPartition

_SESSION_BEGINS_ANEW = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_LEADERSHIP_CHANGED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@define(eq=False, kw_only=True)
class FetchRequests:
    """The fetch sessions of one consumer with its brokers; there is no network here."""

    config: ConsumerConfig
    subscriptions: SubscriptionState
    view: ClusterView
    buffer: FetchBuffer
    read_settings: ReadSettings
    metrics: FetchMetrics
    is_unavailable: Callable[[Node], bool]
    request_metadata: Callable[[], None]
    validates: Callable[[Node], bool] = lambda _: True
    """Returns whether a broker can validate positions (OffsetsForLeaderEpoch from version 3)."""
    handlers: dict[int, FetchSessionHandler] = attrs.field(init=False, factory=dict)
    pending: set[int] = attrs.field(init=False, factory=set)
    """The nodes to which a fetch is under way."""
    closed: bool = attrs.field(init=False, default=False)
    _validated_version: int = attrs.field(init=False, default=-1)
    _params: FetchRequestParams = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._params = FetchRequestParams(
            replica=ReplicaState(),
            max_wait_ms=self.config.fetch_max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            isolation_level=int(self.config.read_committed),
            rack_id=self.config.client_rack,
        )

    # -- asking

    def validate_positions(self) -> None:
        """Validate positions if new metadata may name other leaders."""
        if self._validated_version == self.view.version:
            return
        self._validated_version = self.view.version
        for tp in self.subscriptions.assigned:
            self.validate_position(tp)

    def validate_position(self, tp: TopicPartition) -> None:
        leader = self.view.leader(tp)
        supported = leader.node is None or self.validates(leader.node)
        self.subscriptions.maybe_validate(tp, leader, supported=supported)

    def fetchable(self) -> list[TopicPartition]:
        """Return the partitions that may be fetched now, in order."""
        buffered = self.buffer.buffered_partitions()
        return self.subscriptions.fetchable(lambda tp: tp not in buffered)

    def prepare(self, *, now_ms: float) -> list[tuple[Node, FetchRequestData]]:
        """Return the requests to send now; `on_response` or `on_failure` must follow each."""
        assert not self.closed, "a consumer that is closed fetches nothing"
        self.metrics.retain(self.subscriptions.assigned)
        wanted: dict[Node, dict[TopicPartition, WantedPartition]] = {}
        for tp in self.fetchable():
            if not self.subscriptions.state(tp).is_due(now_ms):
                continue
            position = self.subscriptions.valid_position(tp)
            assert position is not None, "what is fetchable has a position"
            node = self._node_for(tp, position, now_ms)
            if node is not None and not self.is_unavailable(node) and node.id not in self.pending:
                wanted.setdefault(node, {})[tp] = self._wanted(tp, position)
        requests = []
        for node, partitions in wanted.items():
            self.pending.add(node.id)
            requests.append((node, self._handler(node.id).build(partitions)))
        return requests

    def request(self, data: FetchRequestData) -> ClientRequest:
        """Return the message; without topic ids if a topic has none (KIP-516)."""
        newest = MAX_VERSION if data.can_use_topic_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1
        return ClientRequest(
            api_key=ApiKey.FETCH,
            build=lambda version: data.to_wire(self._params, version=version),
            max_version=newest,
        )

    def _handler(self, node_id: int) -> FetchSessionHandler:
        return self.handlers.setdefault(node_id, FetchSessionHandler(node_id))

    def _wanted(self, tp: TopicPartition, position: FetchPosition) -> WantedPartition:
        return WantedPartition(
            self.view.topic_id(tp.topic),
            position.offset,
            max_bytes=self.config.max_partition_fetch_bytes,
            current_leader_epoch=position.leader.epoch,
        )

    def _node_for(self, tp: TopicPartition, position: FetchPosition, now_ms: float) -> Node | None:
        """Return the node to read `tp` from; None if it is not known."""
        leader = position.leader.node
        if leader is None:
            self.request_metadata()
            return None
        preferred = self.subscriptions.preferred_read_replica(tp, now_ms)
        self.metrics.record_preferred(tp, preferred)
        if preferred is None:
            return leader
        partition, node = self.view.partition(tp), self.view.node(preferred)
        offline = partition is not None and preferred in partition.offline_replicas
        if node is not None and not offline:
            return node
        self.request_metadata()
        self.subscriptions.clear_preferred_read_replica(tp)
        return leader

    # -- being answered

    def on_response(
        self,
        node: Node,
        data: FetchRequestData,
        response: FetchResponse,
        *,
        version: int,
        latency_ms: float = 0.0,
    ) -> bool:
        """Put the partitions of a response into the buffer, in the broker's order.

        Return False if the next fetch has to wait.
        """
        with self._no_longer_pending(node):
            self.metrics.record_response(
                latency_ms=latency_ms, throttled_ms=response.throttle_time_ms
            )
            handler = self.handlers.get(node.id)
            if handler is None or self.closed:
                return True
            answers = handler.handle_response(response, version=version)
            if answers is None:
                if response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                    self.request_metadata()
                return response.error_code in _SESSION_BEGINS_ANEW
            self._buffer(data, answers)
            self._use_leaders(response, answers)
            return True

    def _buffer(self, data: FetchRequestData, answers: dict[TopicPartition, PartitionData]) -> None:
        total = FetchTotal(self.metrics, set(answers))

        def drained(fetch: CompletedFetch) -> None:
            total.done(fetch.partition, size=fetch.bytes_read, records=fetch.records_read)
            if fetch.bytes_read:
                self.subscriptions.move_to_end(fetch.partition)

        for tp, answer in answers.items():
            asked = data.session_partitions.get(tp)
            assert asked is not None, "the handler lets through what is in the session alone"
            self.buffer.add(
                CompletedFetch(
                    partition=tp,
                    fetch_offset=asked.fetch_offset,
                    leader_epoch=asked.current_leader_epoch,
                    data=answer,
                    settings=self.read_settings,
                    on_drained=drained,
                )
            )

    def _use_leaders(
        self, response: FetchResponse, answers: dict[TopicPartition, PartitionData]
    ) -> None:
        leaders = {
            tp: (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            for tp, answer in answers.items()
            if answer.error_code in _LEADERSHIP_CHANGED
            and answer.current_leader.leader_id >= 0
            and answer.current_leader.leader_epoch >= 0
        }
        nodes = [
            Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints
        ]
        for tp in self.view.update_leaders(leaders, nodes):
            self.validate_position(tp)

    def on_failure(self, node: Node) -> None:
        """Note that no response came; the broker may have seen the request or not."""
        with self._no_longer_pending(node):
            handler = self.handlers.get(node.id)
            if handler is None or self.closed:
                return
            handler.handle_error()
            for tp in handler.session_partitions:
                self.subscriptions.clear_preferred_read_replica(tp)

    @contextmanager
    def _no_longer_pending(self, node: Node) -> Iterator[None]:
        """Let the node be asked again, whatever happens."""
        try:
            yield
        finally:
            self.pending.discard(node.id)

    # -- ending

    def close(self) -> list[tuple[Node, FetchRequestData]]:
        """Return the last request of each session (epoch -1, no partitions), once."""
        if self.closed:
            return []
        self.closed = True
        last = []
        for node_id, handler in self.handlers.items():
            handler.notify_close()
            node = self.view.node(node_id)
            has_session = handler.next_metadata.session_id != 0
            if node is not None and has_session and not self.is_unavailable(node):
                last.append((node, handler.build({})))
        self.buffer.retain_all(frozenset())
        return last


@define(eq=False, kw_only=True)
class Fetcher:
    """The sender of the fetches of one consumer; it is what needs a network.

    `send` never waits. A task of its own waits for each response, and calls `on_arrival` when there
    is something in the buffer or to be sent again. However a fetch ends, its node may be asked again.
    """

    requests: FetchRequests
    network: NetworkClient
    on_arrival: Callable[[], None]
    _error: KafkaError | None = attrs.field(init=False, default=None)

    def raise_error(self) -> None:
        """Raise, once, the error of a broker that cannot be fetched from."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def send(self) -> None:
        """Send a fetch to every node that may be asked now."""
        now = self.network.clock.now()
        for node, data in self.requests.prepare(now_ms=now * 1000):
            pending = self.network.send(node, self.requests.request(data))
            self.network.nursery.start_soon(self._wait_for, node, data, pending, now)

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
            now = self.network.clock.now()
            latency_ms = (now - sent_at) * 1000
            goes_on = self.requests.on_response(
                node, data, response, version=pending.version, latency_ms=latency_ms
            )
            if not goes_on:  # it refused, or left out what was asked: not again at once
                at_ms = now * 1000 + self.network.config.retry_backoff_ms
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
