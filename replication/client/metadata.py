"""Keeping the view of the cluster fresh (Metadata, NetworkClient.DefaultMetadataUpdater).

    requested: request_update()      a leader that does not lead, a topic that is not known
    or too old: metadata.max.age.ms
         │
         v   not before retry.backoff.ms, doubled with each failure in a row
    the least loaded node ── Metadata ──> the view, and the tasks that wait for it
         │
         └ no node can be asked: the bootstrap servers again (KIP-899)

Rule 1: one request at a time. A request_update during a request leads to another request,
since the response may be older than the call.

Rule 2: a response that is partly an error (a leader is being elected, a topic is being created)
is applied, and requested again after the back-off.

Rule 3: the caller says each time which topics to ask for.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import trio

from replication.client.cluster_view import ClusterView, Node, bootstrap_node
from replication.client.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.errors import NO_ANSWER, AuthenticationError, ErrorCode, KafkaError
from replication.wire.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from storage.attributes import define
from storage.types import TopicId

REBOOTSTRAP = "rebootstrap"


@define(eq=False, kw_only=True)
class Metadata:
    """The view of the cluster, and the task that refreshes it; start `run` in a nursery."""

    network: NetworkClient
    topics_wanted: Callable[[], Sequence[str | TopicId] | None] = lambda: ()
    """Returns the topics to ask about, by name or by id; None for all topics."""
    allow_auto_topic_creation: bool = False
    view: ClusterView = attrs.field(factory=ClusterView)
    last_error: Exception | None = attrs.field(init=False, default=None)
    _bootstrap: tuple[Node, ...] = attrs.field(init=False)
    _asking_bootstrap: bool = attrs.field(init=False, default=True)
    _wanted: bool = attrs.field(init=False, default=False)
    _failures: int = attrs.field(init=False, default=0)
    _asked_at: float | None = attrs.field(init=False, default=None)
    _backoff_ms: float = attrs.field(init=False, default=0.0)
    _updated_at: float | None = attrs.field(init=False, default=None)
    _trying_since: float | None = attrs.field(init=False, default=None)
    _wake: trio.Event = attrs.field(init=False, factory=trio.Event)
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._bootstrap = tuple(
            bootstrap_node(index, each.host, each.port)
            for index, each in enumerate(self.network.config.bootstrap_servers)
        )

    # -- requesting and waiting

    def request_update(self) -> None:
        """Request a new view, as soon as the back-off allows."""
        self._wanted = True
        self._wake.set()

    async def wait_for_news(self) -> None:
        """Wait until the next response, or the next failure to get one."""
        await self._news.wait()

    async def update(self, *, timeout_ms: float) -> None:
        """Wait for a view that is newer than now; KafkaTimeoutError if none comes in time."""
        self.request_update()
        version = self.view.version
        with self.network.clock.move_on_after(timeout_ms / 1000):
            while self.view.version == version:
                await self.wait_for_news()
                self.raise_if_refused()
            return
        raise KafkaTimeoutError(f"no metadata within {timeout_ms:.0f} ms") from self.last_error

    def raise_if_refused(self) -> None:
        """Raise the AuthenticationError of the last broker that was asked, if it refused us."""
        if isinstance(self.last_error, AuthenticationError):
            raise self.last_error

    def raise_for_topics(self, topics: Iterable[str]) -> None:
        """Raise the errors about `topics` that no waiting would mend.

        These are a refused login, and topics that are forbidden or invalid.
        """
        self.raise_if_refused()
        for error in (TopicAuthorizationFailedError, InvalidTopicError):
            if found := self.view.in_error(error.code_of_class) & set(topics):
                raise error(found)

    # -- nodes to ask

    def nodes_to_ask(self) -> tuple[Node, ...]:
        """Return the known brokers, or the bootstrap servers."""
        known = tuple(self.view.nodes.values())
        return self._bootstrap if self._asking_bootstrap or not known else known

    def any_node(self) -> Node | None:
        """Return a node that can be asked now; None if all are in back-off."""
        return self.network.least_loaded(self.nodes_to_ask())

    def some_node(self) -> Node:
        """Return a node that can be asked now; KafkaError if all are in back-off."""
        node = self.any_node()
        if node is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "every broker is in back-off")
        return node

    async def ask_any(self, message: object) -> Any:
        """Return the response of some broker to `message`."""
        return await self.network.call(self.some_node(), ask(message))

    def rebootstrap(self) -> None:
        """Begin again with the configured bootstrap servers."""
        self._asking_bootstrap = True
        self._trying_since = self.network.clock.now()

    # -- the task

    async def run(self) -> None:
        """Request metadata whenever it is time, until cancelled."""
        while True:
            await self._until_due()
            await self._ask_once()

    async def _until_due(self) -> None:
        while (wait_ms := self.due_in_ms()) > 0:
            self._wake = trio.Event()
            with self.network.clock.move_on_after(wait_ms / 1000):
                await self._wake.wait()

    def due_in_ms(self) -> float:
        """Return the milliseconds until the next request (Metadata.timeToNextUpdate)."""
        now = self.network.clock.now()
        expired_in = 0.0
        if self._updated_at is not None and not self._wanted:
            expired_in = self._updated_at + self.network.config.metadata_max_age_ms / 1000 - now
        allowed_in = 0.0
        if self._asked_at is not None:
            allowed_in = self._asked_at + self._backoff_ms / 1000 - now
        return max(expired_in, allowed_in, 0) * 1000

    async def _ask_once(self) -> None:
        self._asked_at = self.network.clock.now()
        if self._trying_since is None:
            self._trying_since = self._asked_at
        node = self._choose()
        self._wanted = False
        try:
            self._take_in(await self._answer_of(node))
        except (*NO_ANSWER, KafkaError) as error:
            self._failed(error)
        # Kafka pauses after a success, too, so that no client asks in a tight loop.
        self._backoff_ms = self.network.retry_wait_ms(max(self._failures, 1))
        self._asked_at = self.network.clock.now()
        news, self._news = self._news, trio.Event()
        news.set()

    async def _answer_of(self, node: Node | None) -> MetadataResponse:
        if node is None:
            self.raise_if_refused()
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "every broker is in back-off")
        response = await self.network.call(node, ask(self._request()))
        assert isinstance(response, MetadataResponse)
        return response

    def _choose(self) -> Node | None:
        node, config = self.any_node(), self.network.config
        if config.metadata_recovery_strategy != REBOOTSTRAP or self._asking_bootstrap:
            return node
        trigger = config.metadata_recovery_rebootstrap_trigger_ms / 1000
        assert self._trying_since is not None, "it is being tried"
        if node is None or self.network.clock.now() >= self._trying_since + trigger:
            self.rebootstrap()
            return self.any_node()
        return node

    def _request(self) -> MetadataRequest:
        topics = self.topics_wanted()
        return MetadataRequest(
            topics=None if topics is None else [_asked(topic) for topic in topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
        )

    def _take_in(self, response: MetadataResponse) -> None:
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.rebootstrap()
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), "metadata")
        if not response.brokers:
            # A broker that has just started knows no broker, not even itself.
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "metadata without a broker")
        wanted = self.topics_wanted()
        again = self.view.update(
            response,
            retain=lambda topic: (
                wanted is None or topic in wanted or self.view.topic_id(topic) in wanted
            ),
        )
        self._asking_bootstrap = False
        self._trying_since = None
        self._updated_at = self.network.clock.now()
        self._failures = self._failures + 1 if again else 0
        self._wanted = self._wanted or again
        self.last_error = None

    def _failed(self, error: Exception) -> None:
        self.last_error = error
        self._failures += 1
        self._wanted = True


def _asked(topic: str | TopicId) -> MetadataRequestTopic:
    if isinstance(topic, str):
        return MetadataRequestTopic(name=topic)
    return MetadataRequestTopic(topic_id=topic, name=None)
