"""The parts of a broker, made from its configuration: logs, fetchers, handlers."""

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter

from replication.broker.handlers import CONSUMER_GROUP_APIS, BrokerNode, broker_handlers
from replication.config import BrokerConfig, TopicConfig
from replication.config.group import GroupConfig
from replication.errors import OnBug
from replication.events import EventSink, SegmentsDeleted
from replication.faults.node_faults import FaultGate, Faults
from replication.faults.rules.parts import WantedPartition
from replication.follower.fetcher import FetcherConfig
from replication.follower.fetcher_manager import RemoteFetcherFactory, ReplicaFetcherManager
from replication.groups.consumers import ConsumerGroups
from replication.groups.coordinator import GroupCoordinator, register_gauges
from replication.groups.rules.consumer_group.membership import (
    ConsumerGroupSettings,
    MigrationPolicy,
)
from replication.leader.rules.fetch_session.cache import FetchSessionCache
from replication.leader.rules.fetch_session.context import FetchManager
from replication.metadata.cache import MetadataCache
from replication.metadata.rules.records import METADATA_PARTITION
from replication.metrics import MetricsRegistry
from replication.net.controller_channel import ControllerCalls
from replication.net.idle import idle_limit_seconds
from replication.net.seams import Seams
from replication.replica_manager import (
    AlterPartitionClient,
    AssignDirectory,
    LocalReplicas,
    ReplicaManager,
    TransactionVerification,
    assemble_replica_manager,
)
from replication.security.rules.acls import Authorizer
from replication.security.rules.scram import ScramCredential
from replication.server.authentication import Gate, gate
from replication.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from replication.server.guards import guarded
from replication.server.request_metrics import RequestMetrics
from replication.server.server import AdvertisedFeatures, Handler, Server
from replication.transactions.asking import CoordinatorQuestions
from replication.transactions.coordinator import TransactionCoordinator
from replication.transactions.markers import MarkerSender, MarkerWriter, PeerChannels
from replication.transactions.producer_ids import ProducerIds
from replication.wire.api_versions import EPOCH_BUMPING_VERSION, TRANSACTION_VERSION
from replication.wire.apis import ApiKey
from storage.attributes import frozen
from storage.log.open_segments import OpenSegments, limit_within
from storage.log.retention import DeletedSegments
from storage.manager.log_manager import LogManager
from storage.types import TopicId, TopicPartition


@frozen(eq=False, kw_only=True)
class Wiring:
    """The values that all parts of one broker share."""

    config: BrokerConfig
    seams: Seams
    toward_brokers: Seams
    """The same, with connections as brokers make them to each other."""
    metrics: MetricsRegistry
    sink: EventSink
    on_bug: OnBug
    broker_epoch: Callable[[], int]
    faults: Faults | None = None

    def log_manager(self, on_directory_failed: Callable[[str, OSError], None]) -> LogManager:
        return LogManager(
            file_system=self.seams.file_system,
            log_dirs=list(self.config.log_dirs),
            node_id=self.config.node_id,
            cluster_id=self.config.cluster_id,
            config=TopicConfig.in_force({}, self.config).log,
            new_directory_id=partial(self.seams.chance.randbytes, 16),
            on_directory_failed=on_directory_failed,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            on_segments_deleted=self._segments_deleted,
            open_segments=OpenSegments(limit=limit_within(self.seams.file_system.descriptors())),
            kept_elsewhere=self._kept_by_the_controller(),
        )

    def _kept_by_the_controller(self) -> dict[TopicPartition, str]:
        """Return the log that the controller of a node with both roles keeps, and where."""
        config = self.config
        return {METADATA_PARTITION: config.metadata_directory} if config.is_controller else {}

    def _segments_deleted(self, partition: TopicPartition, deleted: DeletedSegments) -> None:
        self.sink(
            SegmentsDeleted(
                partition=partition,
                segments=deleted.count,
                bytes=deleted.size,
                first_offset=deleted.first_offset,
                end_offset=deleted.end_offset,
                cause=deleted.cause.value,
            )
        )

    def replica_manager(
        self,
        logs: LogManager,
        metadata: MetadataCache,
        alter_partition: AlterPartitionClient,
        assign_directory: AssignDirectory,
    ) -> ReplicaManager:
        return assemble_replica_manager(
            broker_id=self.config.node_id,
            config=self.config,
            seams=self.seams,
            log_manager=logs,
            metadata=partial(attrgetter("image"), metadata),  # called eight times for a record
            alter_partition=alter_partition,
            make_fetcher_manager=self._fetcher_manager,
            assign_directory=assign_directory,
            broker_epoch=self.broker_epoch,
            metrics=self.metrics,
            sink=self.sink,
            on_bug=self.on_bug,
        )

    def _fetcher_manager(self, replicas: LocalReplicas) -> ReplicaFetcherManager:
        config = self.config
        factory = RemoteFetcherFactory(
            replicas=replicas,
            config=FetcherConfig(
                replica_id=config.node_id,
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_response_max_bytes,
                partition_max_bytes=config.replica_fetch_max_bytes,
                backoff_ms=config.replica_fetch_backoff_ms,
            ),
            transport=self.toward_brokers.transport,
            clock=self.seams.clock,
            metrics=self.metrics,
            on_bug=self.on_bug,
            sink=self.sink,
            broker_epoch=self.broker_epoch,
            is_throttled=replicas.is_throttled,
            fetch_version=config.understudy_inter_broker_fetch_version,
            connect_timeout_ms=config.replica_socket_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
        )
        return ReplicaFetcherManager(
            make_fetcher=factory,
            num_fetchers_per_broker=config.num_replica_fetchers,
            metrics=self.metrics,
            sink=self.sink,
        )

    def groups(self, replica_manager: ReplicaManager) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            broker_id=self.config.node_id,
            config=self.config,
            seams=self.seams,
            replica_manager=replica_manager,
            sink=self.sink,
            on_bug=self.on_bug,
        )
        register_gauges(self.metrics, coordinator)
        return coordinator

    def consumers(
        self, groups: GroupCoordinator, metadata: MetadataCache, replica_manager: ReplicaManager
    ) -> ConsumerGroups:
        config, dynamic = self.config, replica_manager.config
        settings = ConsumerGroupSettings(
            max_size=config.group_consumer_max_size,
            classic_max_size=config.group_max_size,
            assignors=config.group_consumer_assignors,
            migration=MigrationPolicy(config.group_consumer_migration_policy),
        )
        return ConsumerGroups(
            coordinator=groups,
            image=lambda: metadata.image,
            settings=settings,
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            config_of=lambda group_id: GroupConfig.in_force(
                metadata.image.group_configs.get(group_id, {}), dynamic.current
            ),
        )

    def _handlers(self, node: BrokerNode, metadata: MetadataCache) -> dict[ApiKey, Handler]:
        handlers = broker_handlers(node)
        if "consumer" not in self.config.group_coordinator_rebalance_protocols:
            for key in CONSUMER_GROUP_APIS:
                del handlers[key]
        if (authorizer := self.config.authorizer) is None:
            return handlers
        return guarded(
            handlers,
            Authorizer(*authorizer),
            lambda: metadata.image,
            creates_topics=self.config.auto_create_topics_enable,
        )

    def gate(self, listener: str, metadata: MetadataCache) -> Gate:
        def credential_of(name: str, mechanism: str) -> ScramCredential | None:
            return metadata.image.security.credentials.get((name, mechanism))

        security = self.config.security_of(listener)
        return gate(security, self.config, seams=self.seams, credential_of=credential_of)

    def producer_ids(self, controller: ControllerCalls) -> ProducerIds:
        return ProducerIds(
            broker_id=self.config.node_id,
            channel=controller,
            timeout_ms=self.config.request_timeout_ms,
        )

    def marker_writer(
        self, replica_manager: ReplicaManager, groups: GroupCoordinator
    ) -> MarkerWriter:
        return MarkerWriter(
            replica_manager=replica_manager,
            seams=self.seams,
            timeout_ms=self.config.request_timeout_ms,
            on_group_offsets=groups.transaction_ended,
        )

    def transactions(
        self, metadata: MetadataCache, marker_writer: MarkerWriter, producer_ids: ProducerIds
    ) -> TransactionCoordinator:
        return TransactionCoordinator(
            broker_id=self.config.node_id,
            config=self.config,
            seams=self.seams,
            replica_manager=marker_writer.replica_manager,
            producer_ids=producer_ids,
            broker_epoch=self.broker_epoch,
            bumps_epoch=lambda: (
                metadata.image.feature(TRANSACTION_VERSION) >= EPOCH_BUMPING_VERSION
            ),
            markers=MarkerSender(
                broker_id=self.config.node_id,
                config=self.config,
                seams=self.seams,
                metadata=metadata,
                writer=marker_writer,
                channels=self._peers(metadata, "txn-markers"),
            ),
            sink=self.sink,
            on_bug=self.on_bug,
        )

    def questions(
        self, metadata: MetadataCache, transactions: TransactionCoordinator
    ) -> CoordinatorQuestions:
        return CoordinatorQuestions(
            broker_id=self.config.node_id,
            metadata=metadata,
            here=transactions,
            channels=self._peers(metadata, "txn-verification"),
            timeout_ms=self.config.request_timeout_ms,
        )

    def verification(
        self, replica_manager: ReplicaManager, questions: CoordinatorQuestions
    ) -> TransactionVerification:
        return TransactionVerification(
            replicas=replica_manager.hosted,
            config=replica_manager.config,
            clock=self.seams.clock,
            coordinators=questions,
        )

    def _peers(self, metadata: MetadataCache, purpose: str) -> PeerChannels:
        return PeerChannels(
            client_id=f"broker-{self.config.node_id}-{purpose}",
            listener=self.config.inter_broker_listener,
            seams=self.toward_brokers,
            metadata=metadata,
        )

    def server(
        self,
        *,
        metadata: MetadataCache,
        logs: LogManager,
        replica_manager: ReplicaManager,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        questions: CoordinatorQuestions,
        controller: ControllerCalls,
        request_metrics: RequestMetrics,
        quotas: ConnectionQuotas,
    ) -> Server:
        config = self.config
        sessions = FetchSessionCache(
            chance=self.seams.chance,
            slots=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=config.understudy_incremental_fetch_session_eviction_ms,
            sink=self.sink,
        )
        sessions.register(self.metrics)
        node = BrokerNode(
            broker_id=config.node_id,
            cluster_id=logs.cluster_id or "",
            config=config,
            clock=self.seams.clock,
            offload=self.seams.offload,
            metadata=metadata,
            logs=logs,
            replica_manager=replica_manager,
            groups=groups,
            consumers=self.consumers(groups, metadata, replica_manager),
            transactions=transactions,
            verification=self.verification(replica_manager, questions),
            fetch_sessions=FetchManager(sessions),
            controller=controller,
            producer_ids=transactions.producer_ids,
            broker_epoch=self.broker_epoch,
        )
        return Server(
            handlers=self._handlers(node, metadata),
            clock=self.seams.clock,
            sink=self.sink,
            on_bug=self.on_bug,
            max_request_bytes=config.socket_request_max_bytes,
            max_idle_seconds=idle_limit_seconds(config.connections_max_idle_ms),
            features=partial(_features, metadata),
            identity=(node.cluster_id, node.broker_id),
            metrics=request_metrics,
            faults=self._fault_gate(metadata, sessions),
            quotas=quotas,
        )

    def quotas(self, replica_manager: ReplicaManager) -> ConnectionQuotas:
        dynamic = replica_manager.config
        several = len(self.config.broker_listeners) > 1
        return ConnectionQuotas(
            clock=self.seams.clock,
            sink=self.sink,
            limits=lambda: ConnectionLimits.of(dynamic.current),
            protected_listener=self.config.inter_broker_listener if several else None,
        )

    def _fault_gate(self, metadata: MetadataCache, sessions: FetchSessionCache) -> FaultGate | None:
        if self.faults is None:
            return None

        def topic_name(topic_id: TopicId) -> str | None:
            return metadata.image.topic_names_by_id.get(topic_id)

        def partitions_of(session_id: int) -> Iterable[WantedPartition]:
            session = sessions.get(session_id)
            return (
                () if session is None else [each.wanted[0] for each in session.partitions.values()]
            )

        return self.faults.gate(
            self.config.node_id,
            self.seams,
            self.sink,
            name_of=topic_name,
            session_of=partitions_of,
        )


def _features(metadata: MetadataCache) -> AdvertisedFeatures:
    followed = metadata.fetched or metadata
    return AdvertisedFeatures.of(metadata.image, followed.kraft_version)
