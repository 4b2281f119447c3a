"""The parts of an open consumer, made from its configuration."""

from collections.abc import Callable, Iterable

import attrs
import trio

from replication.client.cluster_view import Node
from replication.client.consumer.completed_fetch import ReadSettings
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.fetch_buffer import FetchBuffer
from replication.client.consumer.fetch_collector import FetchCollector
from replication.client.consumer.fetch_requests import FetchRequests
from replication.client.consumer.fetcher import Fetcher
from replication.client.consumer.metrics import FetchMetrics
from replication.client.consumer.offset_fetcher import FIRST_OFFSET_FOR_LEADER_EPOCH, OffsetFetcher
from replication.client.consumer.records import AnyDeserializer, deserialize_function
from replication.client.consumer.subscription import SubscriptionState
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.follower.rules.fetch_session_handler import FetchRequestParams
from replication.metrics import MetricsRegistry
from replication.net.seams import Seams
from replication.wire.apis import ApiKey
from replication.wire.fetch import CONSUMER_REPLICA_ID


@attrs.frozen(eq=False, kw_only=True)
class Parts:
    """The parts of one open consumer."""

    network: NetworkClient
    metadata: Metadata
    fetcher: Fetcher
    offset_fetcher: OffsetFetcher
    collector: FetchCollector
    metrics: MetricsRegistry


@attrs.frozen(eq=False, kw_only=True)
class Assembly:
    """The maker of the parts, with what all of them need."""

    config: ConsumerConfig
    seams: Seams
    subscriptions: SubscriptionState
    nursery: trio.Nursery
    wake: Callable[[], None]
    key_deserializer: AnyDeserializer = None
    value_deserializer: AnyDeserializer = None

    def parts(self) -> Parts:
        config, seams = self.config, self.seams
        network = NetworkClient(
            config=config,
            transport=seams.transport,
            clock=seams.clock,
            chance=seams.chance,
            nursery=self.nursery,
        )
        metadata = Metadata(
            config=config,
            network=network,
            clock=seams.clock,
            chance=seams.chance,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        )
        registry = MetricsRegistry(seams.clock.now)
        metrics = FetchMetrics(registry, seams.clock.now, config.client_id)
        requests = self._requests(network, metadata, metrics)
        offset_fetcher = OffsetFetcher(
            config=config,
            subscriptions=self.subscriptions,
            metadata=metadata,
            network=network,
            clock=seams.clock,
            nursery=self.nursery,
            on_change=self.wake,
        )
        metadata.topics_wanted = lambda: self._topics(offset_fetcher.transient_topics)
        return Parts(
            network=network,
            metadata=metadata,
            fetcher=Fetcher(
                requests=requests,
                network=network,
                clock=seams.clock,
                nursery=self.nursery,
                retry_backoff_ms=config.retry_backoff_ms,
                on_arrival=self.wake,
            ),
            offset_fetcher=offset_fetcher,
            collector=FetchCollector(
                subscriptions=self.subscriptions,
                buffer=requests.buffer,
                request_metadata=metadata.request_update,
                now_ms=lambda: seams.clock.now() * 1000,
                max_poll_records=config.max_poll_records,
                metadata_max_age_ms=config.metadata_max_age_ms,
                retry_backoff_ms=config.retry_backoff_ms,
                read_committed=config.read_committed,
                metrics=metrics,
            ),
            metrics=registry,
        )

    def _requests(
        self, network: NetworkClient, metadata: Metadata, metrics: FetchMetrics
    ) -> FetchRequests:
        config = self.config

        def validates(node: Node) -> bool:
            served = network.versions(node.id)
            if served is None:
                return True  # its answer will say so
            _, newest = served.get(ApiKey.OFFSET_FOR_LEADER_EPOCH, (0, -1))
            return newest >= FIRST_OFFSET_FOR_LEADER_EPOCH

        return FetchRequests(
            subscriptions=self.subscriptions,
            view=metadata.view,
            buffer=FetchBuffer(),
            params=FetchRequestParams(
                replica_id=CONSUMER_REPLICA_ID,
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_max_bytes,
                isolation_level=int(config.read_committed),
                rack_id=config.client_rack,
            ),
            max_partition_bytes=config.max_partition_fetch_bytes,
            read_settings=ReadSettings(
                check_crcs=config.check_crcs,
                read_committed=config.read_committed,
                key_deserializer=deserialize_function(self.key_deserializer),
                value_deserializer=deserialize_function(self.value_deserializer),
            ),
            metrics=metrics,
            is_unavailable=lambda node: network.is_backing_off(node.id),
            request_metadata=metadata.request_update,
            validates=validates,
        )

    def _topics(self, transient: Iterable[str]) -> list[str] | None:
        """Return the topics that need metadata; None for all, if a pattern may match any."""
        if self.subscriptions.pattern is not None:
            return None
        return sorted(self.subscriptions.metadata_topics | set(transient))
