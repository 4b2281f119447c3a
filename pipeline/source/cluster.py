"""A cluster as a consumer sees it: the leaders of partitions, and their offsets.

    Metadata      leaders              any broker
    ListOffsets   offsets              the leader
    Fetch         records              the leader        (pipeline.source.brokers)

Rule 1: only these three requests are sent. Any Kafka cluster answers them.

Rule 2: a read waits for a failover: it looks for a new leader until `default.api.timeout.ms` is
over. An unknown topic was deleted, or is so new that brokers do not know it yet, and is waited
for no longer than `NEW_TOPIC_MS`. Permanent errors, such as a refused login, are raised at once.

Rule 3: connections outlive tasks: a worker process has one SourceCluster for each configuration.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import attrs

from pipeline.source.errors import BrokerError, OptionError, UnknownTopicError
from replication.client.blocking import BlockingConnection, Credentials
from replication.client.config import ClientConfig
from replication.client.requests import ClientRequest, ask
from replication.errors import (
    NO_ANSWER,
    NO_SUCH_TOPIC,
    AuthenticationError,
    ConfigError,
    ErrorCode,
    PeerUnavailableError,
)
from replication.wire.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from replication.wire.metadata import (
    NO_LEADER,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from storage.checkpoint import uuid_text
from storage.types import NO_TOPIC_ID, Offset, TopicId, TopicPartition

NEW_TOPIC_MS = 15_000

_T = TypeVar("_T")


@attrs.frozen
class SourceTopic:
    """A topic as in Metadata: its id, and the leader of each partition or -1."""

    name: str
    topic_id: TopicId
    leaders: Mapping[int, int]

    @property
    def id_text(self) -> str | None:
        return None if self.topic_id == NO_TOPIC_ID else uuid_text(self.topic_id)


@attrs.define(eq=False)
class SourceCluster:
    """Connections to a cluster, and the newest view of topics."""

    config: ClientConfig
    _credentials: Credentials = attrs.field(init=False)
    _connections: dict[tuple[str, int], BlockingConnection] = attrs.field(init=False, factory=dict)
    _nodes: dict[int, tuple[str, int]] = attrs.field(init=False, factory=dict)
    _topics: dict[str, SourceTopic] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        try:
            self._credentials = Credentials.of(self.config.introduction)
        except ConfigError as error:
            raise OptionError(f"an option kafka.*: {error}") from error

    # -- asking

    def topics(self, names: Iterable[str] | None) -> dict[str, SourceTopic]:
        """Return the topics of these names, or all for None; unknown topics are left out."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        response = self.until_done("metadata", lambda: self._any(request))
        self._nodes = {each.node_id: (each.host, each.port) for each in response.brokers}
        found = {}
        for topic in response.topics:
            error = ErrorCode.of(topic.error_code)
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if error is not ErrorCode.NONE and not error.retriable:
                raise BrokerError(f"topic {topic.name}: {error.name}")
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            found[topic.name] = SourceTopic(topic.name, topic.topic_id, leaders)
        self._topics.update(found)
        return found

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        """Return the offset for each timestamp, `LATEST` or `EARLIEST`, or -1 if there is none."""
        found: dict[TopicPartition, Offset] = {}

        def once() -> dict[TopicPartition, Offset]:
            left = {tp: number for tp, number in wanted.items() if tp not in found}
            for leader, partitions in self._by_leader(left).items():
                request = _list_offsets(partitions, left, read_committed=read_committed)
                for topic in self.connection(leader).call(ask(request)).topics:
                    for each in topic.partitions:
                        tp = TopicPartition(topic.name, each.partition_index)
                        self._check(tp, each.error_code)
                        found[tp] = each.offset
            if missing := left.keys() - found.keys():
                raise PeerUnavailableError(f"no offsets of {', '.join(map(str, sorted(missing)))}")
            return found

        return self.until_done("offsets", once)

    def leader_of(self, tp: TopicPartition) -> tuple[int, TopicId]:
        """Return a partition's leader and topic id; raise PeerUnavailableError if it has no leader."""
        topic = self._topics.get(tp.topic)
        if topic is None or topic.leaders.get(tp.partition, NO_LEADER) == NO_LEADER:
            topic = self.topics([tp.topic]).get(tp.topic)
        if topic is None or tp.partition not in topic.leaders:
            self._topics.pop(tp.topic, None)
            raise _NotThereError(tp)
        leader = topic.leaders[tp.partition]
        if leader == NO_LEADER or leader not in self._nodes:
            self.forget(tp)
            raise PeerUnavailableError(f"{tp} has no leader")
        return leader, topic.topic_id

    def connection(self, node: int) -> BlockingConnection:
        return self._connection(self._nodes[node])

    def forget(self, tp: TopicPartition) -> None:
        """Forget the leader of a partition, so that the next call asks for it."""
        self._topics.pop(tp.topic, None)

    def until_done(self, what: str, attempt: Callable[[], _T], timeout_ms: int | None = None) -> _T:
        """Repeat an attempt after errors that may pass; raise BrokerError when the time is over."""
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        new_until = min(deadline, time.monotonic() + NEW_TOPIC_MS / 1000)
        wait_ms = self.config.retry_backoff_ms
        while True:
            try:
                return attempt()
            except AuthenticationError as error:
                raise BrokerError(str(error)) from error
            except (*NO_ANSWER, _NotThereError) as error:
                self._topics.clear()
                tried_again = time.monotonic() + wait_ms / 1000
                if isinstance(error, _NotThereError) and tried_again > new_until:
                    raise UnknownTopicError(f"{error.tp} is not there (any more)") from error
                if tried_again > deadline:
                    raise BrokerError(f"no {what} within {limit_ms} ms: {error}") from error
            time.sleep(wait_ms / 1000)
            wait_ms = min(wait_ms * 2, self.config.retry_backoff_max_ms)

    # -- within

    def _any(self, request: ClientRequest) -> MetadataResponse:
        """Return the first response with brokers; known brokers are asked before configured ones."""
        bootstrap = [(each.host, each.port) for each in self.config.bootstrap_servers]
        said: list[str] = []
        for address in dict.fromkeys([*self._nodes.values(), *bootstrap]):
            try:
                response: MetadataResponse = self._connection(address).call(request)
            except AuthenticationError:
                raise
            except NO_ANSWER as error:
                said.append(str(error))
                continue
            if response.brokers:
                return response
            said.append(f"{address[0]}:{address[1]} has just started and knows no brokers")
        raise PeerUnavailableError("; ".join(said))

    def _connection(self, address: tuple[str, int]) -> BlockingConnection:
        if address not in self._connections:
            self._connections[address] = BlockingConnection(
                *address,
                client_id=self.config.client_id,
                connect_timeout_ms=self.config.socket_connection_setup_timeout_ms,
                request_timeout_ms=self.config.request_timeout_ms,
                credentials=self._credentials,
            )
        return self._connections[address]

    def _by_leader(self, wanted: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            found.setdefault(self.leader_of(tp)[0], []).append(tp)
        return found

    def _check(self, tp: TopicPartition, code: int) -> None:
        error = ErrorCode.of(code)
        if error in NO_SUCH_TOPIC:
            raise _NotThereError(tp)
        if error.retriable:
            raise PeerUnavailableError(f"{tp}: {error.name}")
        if error is not ErrorCode.NONE:
            raise BrokerError(f"{tp}: {error.name}")


class _NotThereError(Exception):
    """An error: a broker does not know the partition, because it is gone or new."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(str(tp))
        self.tp = tp


def _list_offsets(
    partitions: Iterable[TopicPartition],
    numbers: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp in partitions:
        asked = ListOffsetsPartition(partition_index=tp.partition, timestamp=numbers[tp])
        topics.setdefault(tp.topic, []).append(asked)
    return ListOffsetsRequest(
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
    )


@functools.cache
def cluster_of(config: ClientConfig) -> SourceCluster:
    """Return this process's SourceCluster for a configuration: rule 3."""
    return SourceCluster(config)
