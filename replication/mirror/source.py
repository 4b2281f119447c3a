"""The foreign cluster as its clients see it: its brokers, leaders and versions, and its fetchers.

Rule 1: its metadata is requested every `metadata.max.age.ms`, which finds new topics and
partitions, and at once when a leader refuses or is lost.

Rule 2: a broker is reachable once it has named its versions. An unreachable one is not fetched
from; it is tried again with the next metadata.

Rule 3: a source that is away is waited for, however long that takes. Only a source that refuses our
login before its first answer is given up.

Rule 4: a leader that does not answer may no longer be the leader, and no controller reports it: so
metadata is requested whenever one is lost.
"""

from collections.abc import Callable, Sequence

import attrs
import trio

from replication.client.cluster_view import ClusterView, Node, TopicView
from replication.client.config import ClientConfig
from replication.client.errors import UnsupportedVersionError
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.client.requests import ask
from replication.config import ConfigSource
from replication.errors import NO_ANSWER, ErrorCode, PeerUnavailableError, ProtocolError
from replication.follower.fetcher_manager import RemoteFetcherFactory
from replication.follower.leader_endpoint import LeaderEndpoint, RemoteLeaderEndpoint
from replication.follower.rules.fetch_state import BrokerEndPoint
from replication.mirror.options import MirrorOptions
from replication.net.exchange import Versions
from replication.net.seams import Seams
from replication.wire.api_versions import ApiVersionsRequest
from replication.wire.apis import API, ApiKey
from replication.wire.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from replication.wire.fetch import CONSUMER_REPLICA_ID, FetchRequest, FetchResponse
from storage.attributes import define, frozen

CLIENT_ID = "understudy-follow"


@define(eq=False, kw_only=True)
class MirrorSource:
    """The source of one mirror."""

    config: ClientConfig
    options: MirrorOptions
    seams: Seams
    nursery: trio.Nursery
    metadata: Metadata = attrs.field(init=False)
    reachable: set[int] = attrs.field(factory=set, init=False)
    network: NetworkClient = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.network = NetworkClient(config=self.config, seams=self.seams, nursery=self.nursery)
        self.metadata = Metadata(
            network=self.network,
            topics_wanted=lambda: None if self.options.patterns else self.options.names,
        )

    @property
    def view(self) -> ClusterView:
        return self.metadata.view

    @property
    def followed(self) -> list[TopicView]:
        """The topics to follow that the source has."""
        return [
            topic
            for topic in self.view.topics.values()
            if topic.error is ErrorCode.NONE and self.options.follows(topic)
        ]

    @property
    def missing(self) -> list[str]:
        """Named topics that the source does not have; none before it has answered."""
        there = {topic.name for topic in self.followed}
        return [name for name in self.options.topics if self.view.version and name not in there]

    @property
    def trouble(self) -> str | None:
        """The reason why its metadata is not fresh, or None."""
        if self.metadata.last_error is not None:
            return str(self.metadata.last_error)
        return None if self.view.version else "it has not answered yet"

    async def next_version(self, seen: int) -> int:
        """Wait until the view is newer than version `seen`; return its version.

        AuthenticationError if the source refuses us before its first answer.
        """
        while self.view.version == seen:
            await self.metadata.wait_for_news()
            if seen == 0:
                self.metadata.raise_if_refused()
        await trio.lowlevel.checkpoint()
        return self.view.version

    async def reach(self) -> None:
        """Ask every leader of followed partitions for its versions, if they are not known."""
        leaders = {
            partition.leader for topic in self.followed for partition in topic.partitions.values()
        }
        unknown = [node for node in self.view.nodes.values() if node.id in leaders - self.reachable]
        async with trio.open_nursery() as nursery:
            for node in unknown:
                nursery.start_soon(self._reach, node)

    async def _reach(self, node: Node) -> None:
        try:
            await self.network.call(node, ask(ApiVersionsRequest()))
        except (*NO_ANSWER, UnsupportedVersionError):
            return
        self.reachable.add(node.id)

    async def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the own configurations of these topics; without an answer, none."""
        node = self.metadata.any_node()
        if node is None or not names:
            return {}
        topics = [
            DescribeConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=name)
            for name in names
        ]
        try:
            response = await self.network.call(node, ask(DescribeConfigsRequest(resources=topics)))
        except (*NO_ANSWER, UnsupportedVersionError):
            return {}
        return {
            result.resource_name: {
                each.name: each.value
                for each in result.configs
                if each.config_source == ConfigSource.TOPIC_CONFIG and each.value is not None
            }
            for result in response.results
            if result.error_code == ErrorCode.NONE
        }

    def version(self, node_id: int, api: ApiKey) -> int:
        """Return the newest version that both sides support; KafkaError if there is none."""
        versions: Versions | None = self.network.versions(node_id)
        assert versions is not None, "a broker that is fetched from has named its versions"
        low, high = versions.get(api, (0, -1))
        newest = min(high, API[api].max_version)
        if newest < max(low, API[api].min_version):
            raise UnsupportedVersionError(
                f"broker {node_id} of the source speaks {api.name} {low} to {high},"
                f" and we {API[api].min_version} to {API[api].max_version}"
            )
        return newest


@define(kw_only=True)
class SourceLeader(RemoteLeaderEndpoint):
    """A leader of the source; `on_lost` is called when it does not answer a fetch.

    It names its high watermark as its latest offset: a leader names its log end to no consumer.
    """

    on_lost: Callable[[], None]

    async def fetch(self, request: FetchRequest, *, version: int) -> FetchResponse:
        try:
            return await super().fetch(request, version=version)
        except (PeerUnavailableError, ProtocolError):
            self.on_lost()
            raise


@frozen(kw_only=True)
class SourceFetcherFactory(RemoteFetcherFactory):
    """The factory of a mirror's fetchers; requests are in versions that both sides support."""

    source: MirrorSource

    def endpoint(self, leader: BrokerEndPoint, fetcher_id: int) -> LeaderEndpoint:
        version = self.source.version
        return SourceLeader(
            broker=leader,
            replica_id=CONSUMER_REPLICA_ID,
            client_id=f"{CLIENT_ID}-{fetcher_id}",
            transport=self.transport,
            clock=self.clock,
            fetch_version=version(leader.id, ApiKey.FETCH),
            list_offsets_version=version(leader.id, ApiKey.LIST_OFFSETS),
            offset_for_leader_epoch_version=version(leader.id, ApiKey.OFFSET_FOR_LEADER_EPOCH),
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            on_lost=self.source.metadata.request_update,
        )
