"""The parts of an open consumer, made from its configuration."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from replication.client.cluster_view import Node
from replication.client.consumer.completed_fetch import FetchBuffer, ReadSettings
from replication.client.consumer.config import ConsumerConfig
from replication.client.consumer.fetch_collector import FetchCollector
from replication.client.consumer.fetcher import Fetcher, FetchRequests
from replication.client.consumer.hooks import ConsumerRebalanceListener, Interceptors
from replication.client.consumer.metrics import FetchMetrics
from replication.client.consumer.offset_fetcher import FIRST_OFFSET_FOR_LEADER_EPOCH, OffsetFetcher
from replication.client.consumer.poll_loop import NoGroup, PollLoop
from replication.client.consumer.subscription import SubscriptionState
from replication.client.metadata import Metadata
from replication.client.network_client import NetworkClient
from replication.metrics import MetricsRegistry
from replication.wire.apis import ApiKey
from storage.attributes import frozen
from storage.types import TopicId

if TYPE_CHECKING:
    from replication.client.consumer.group.classic import ClassicGroupProtocol
    from replication.client.consumer.group.consumer_protocol import ConsumerGroupProtocol
    from replication.client.consumer.group.coordinator import ConsumerCoordinator, KeptErrors
    from replication.client.coordinators import CoordinatorFinder


@frozen(eq=False, kw_only=True)
class Parts:
    """The parts that exist between entering the block of a consumer and leaving it."""

    network: NetworkClient
    metadata: Metadata
    fetcher: Fetcher
    offset_fetcher: OffsetFetcher
    metrics: MetricsRegistry
    loop: PollLoop
    coordinator: "ConsumerCoordinator | None"


def assemble(
    *,
    config: ConsumerConfig,
    read_settings: ReadSettings,
    network: NetworkClient,
    subscriptions: SubscriptionState,
    interceptors: Interceptors,
    listener: ConsumerRebalanceListener,
    wake: Callable[[], None],
) -> Parts:
    """Return the parts, with the tasks of some of them started; each calls `wake` at a change."""
    clock = network.clock
    metadata = Metadata(network=network, allow_auto_topic_creation=config.allow_auto_create_topics)
    registry = MetricsRegistry(clock.now)
    metrics = FetchMetrics(registry, clock.now, config.client_id)
    requests = FetchRequests(
        config=config,
        subscriptions=subscriptions,
        view=metadata.view,
        buffer=FetchBuffer(),
        read_settings=read_settings,
        metrics=metrics,
        is_unavailable=lambda node: network.is_backing_off(node.id),
        request_metadata=metadata.request_update,
        validates=lambda node: _validates(network, node),
    )
    fetcher = Fetcher(requests=requests, network=network, on_arrival=wake)
    offset_fetcher = OffsetFetcher(
        config=config, subscriptions=subscriptions, metadata=metadata, on_change=wake
    )
    metadata.topics_wanted = lambda: _topics(subscriptions, offset_fetcher.transient_topics)
    coordinator = None
    if config.group_id is not None:
        coordinator = _coordinator(
            config=config,
            subscriptions=subscriptions,
            metadata=metadata,
            buffer=requests.buffer,
            interceptors=interceptors,
            listener=listener,
            wake=wake,
        )
    loop = PollLoop(
        config=config,
        subscriptions=subscriptions,
        metadata=metadata,
        fetcher=fetcher,
        offset_fetcher=offset_fetcher,
        collector=FetchCollector(
            config=config,
            subscriptions=subscriptions,
            buffer=requests.buffer,
            request_metadata=metadata.request_update,
            now_ms=lambda: clock.now() * 1000,
            metrics=metrics,
        ),
        coordinator=coordinator or NoGroup(),
    )
    network.nursery.start_soon(metadata.run)
    return Parts(
        network=network,
        metadata=metadata,
        fetcher=fetcher,
        offset_fetcher=offset_fetcher,
        metrics=registry,
        loop=loop,
        coordinator=coordinator,
    )


def _coordinator(
    *,
    config: ConsumerConfig,
    subscriptions: SubscriptionState,
    metadata: Metadata,
    buffer: FetchBuffer,
    interceptors: Interceptors,
    listener: ConsumerRebalanceListener,
    wake: Callable[[], None],
) -> "ConsumerCoordinator":
    """Return the coordinator of a consumer in a group, and start the heartbeats of its protocol."""
    # A consumer in no group does not import what groups need, nor a member the other protocol.
    from replication.client.consumer.group.coordinator import (  # noqa: PLC0415
        ConsumerCoordinator,
        KeptErrors,
    )
    from replication.client.coordinators import CoordinatorFinder  # noqa: PLC0415

    assert config.group_id is not None, "a member has a group"
    finder, errors = CoordinatorFinder(config.group_id, metadata), KeptErrors(wake)
    protocol = _protocol(config, subscriptions, finder, errors)
    metadata.network.nursery.start_soon(protocol.heartbeats.run)
    return ConsumerCoordinator(
        config=config,
        protocol=protocol,
        subscriptions=subscriptions,
        metadata=metadata,
        finder=finder,
        buffer=buffer,
        errors=errors,
        on_change=wake,
        on_committed=interceptors.on_commit,
        listener=listener,
    )


def _protocol(
    config: ConsumerConfig,
    subscriptions: SubscriptionState,
    finder: "CoordinatorFinder",
    errors: "KeptErrors",
) -> "ClassicGroupProtocol | ConsumerGroupProtocol":
    if config.uses_consumer_protocol:
        from replication.client.consumer.group.consumer_protocol import (  # noqa: PLC0415
            ConsumerGroupProtocol,
        )

        return ConsumerGroupProtocol(
            config=config, subscriptions=subscriptions, finder=finder, errors=errors
        )
    from replication.client.consumer.group.classic import ClassicGroupProtocol  # noqa: PLC0415

    return ClassicGroupProtocol(
        config=config, subscriptions=subscriptions, finder=finder, errors=errors
    )


def _validates(network: NetworkClient, node: Node) -> bool:
    """Return whether a broker can validate positions."""
    served = network.versions(node.id)
    if served is None:
        return True  # its answer will say so
    _, newest = served.get(ApiKey.OFFSET_FOR_LEADER_EPOCH, (0, -1))
    return newest >= FIRST_OFFSET_FOR_LEADER_EPOCH


def _topics(
    subscriptions: SubscriptionState, transient: Iterable[str]
) -> list[str | TopicId] | None:
    """Return the topics that need metadata; None for all, if a pattern may match any.

    The names of topics that brokers have matched are not known before metadata gives them.
    """
    if subscriptions.pattern is not None:
        return None
    named: list[str | TopicId] = sorted(subscriptions.metadata_topics | set(transient))
    if subscriptions.server_pattern is not None:
        named += sorted(subscriptions.target_topics)
    return named
