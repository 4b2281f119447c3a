"""How the parts of a replica manager are made and connected, for a broker and for a mirror."""

from collections.abc import Callable

import trio

from replication.config import BrokerConfig, DynamicBrokerConfig
from replication.events import EventSink, ignore
from replication.leader.rules.leadership import Surroundings
from replication.leader.rules.quota import ReplicationQuotas
from replication.leader.rules.replica_selector import SELECTORS
from replication.metadata.rules.image import MetadataImage
from replication.metrics import MetricsRegistry
from replication.net.seams import Seams
from replication.replica_manager.bytes_in import BytesIn
from replication.replica_manager.compaction import Compaction
from replication.replica_manager.configuration import Configuration
from replication.replica_manager.delete_records import DeleteRecordsPath
from replication.replica_manager.failures import LogFailures
from replication.replica_manager.fetch import FetchPath
from replication.replica_manager.followed import FetcherManager, LocalReplicas
from replication.replica_manager.gauges import ReplicaGauges
from replication.replica_manager.high_watermarks import HighWatermarks
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.jobs import LogJobs
from replication.replica_manager.manager import ReplicaManager
from replication.replica_manager.observer import AlterPartitionClient, Observer
from replication.replica_manager.offsets import OffsetsPath
from replication.replica_manager.produce import ProducePath
from replication.replica_manager.purgatories import Purgatories
from replication.replica_manager.roles import AssignDirectory, RoleChanges
from replication.replica_manager.topic_meters import TopicMeters
from storage.manager.log_manager import LogManager
from storage.types import TopicId

MakeFetcherManager = Callable[[LocalReplicas], FetcherManager]


def _ignore_directory(_topic_id: TopicId, _partition: int, _directory: bytes) -> None:
    """Report to no controller where a replica lies."""


def assemble_replica_manager(
    *,
    broker_id: int,
    config: BrokerConfig,
    seams: Seams,
    log_manager: LogManager,
    metadata: Callable[[], MetadataImage],
    alter_partition: AlterPartitionClient,
    make_fetcher_manager: MakeFetcherManager,
    broker_epoch: Callable[[], int],
    metrics: MetricsRegistry,
    assign_directory: AssignDirectory = _ignore_directory,
    keeps_logs: bool = False,
    sink: EventSink = ignore,
    on_bug: Callable[[BaseException], None],
) -> ReplicaManager:
    """Return a replica manager and everything in it."""
    clock, offload = seams.clock, seams.offload
    dynamic = DynamicBrokerConfig(config)
    one_change_at_a_time = trio.Lock()
    hosted = HostedPartitions(metadata)
    purgatories = Purgatories.empty(clock=clock, on_bug=on_bug)
    failures = LogFailures(hosted=hosted, purgatories=purgatories, sink=sink)
    topic_meters = TopicMeters(metrics, hosted)
    gauges = ReplicaGauges(
        metrics, hosted, purgatories, clock.wall_ms, config.transaction_max_timeout_ms
    )
    observer = Observer(
        hosted=hosted,
        purgatories=purgatories,
        gauges=gauges,
        alter_partition=alter_partition,
        clock=clock,
        sink=sink,
    )
    quotas = ReplicationQuotas.measured_over(
        samples=config.replication_quota_window_num,
        sample_ms=config.replication_quota_window_size_seconds * 1000,
    )
    replicas = LocalReplicas(
        hosted=hosted,
        clock=clock,
        fetches=purgatories.fetch,
        quota=quotas.follower,
        bytes_in=BytesIn.registered(metrics),
        on_storage_failure=failures.on_partition_failure,
    )
    fetchers = failures.fetchers = make_fetcher_manager(replicas)
    high_watermarks = HighWatermarks(hosted=hosted, log_manager=log_manager, offload=offload)
    roles = RoleChanges(
        broker_id=broker_id,
        config=config,
        configuration=Configuration(
            broker_id=broker_id,
            config=dynamic,
            hosted=hosted,
            log_manager=log_manager,
            fetchers=fetchers,
            quotas=quotas,
        ),
        hosted=hosted,
        around=Surroundings(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            metadata=metadata,
            now_ms=clock.now_ms,
            max_lag_ms=config.replica_lag_time_max_ms,
            observer=observer,
            selector=SELECTORS.get(config.replica_selector_class or ""),
        ),
        log_manager=log_manager,
        high_watermarks=high_watermarks,
        offload=offload,
        fetchers=fetchers,
        sink=sink,
        complete_delayed=purgatories.check,
        roles_lost=topic_meters.roles_lost,
        on_storage_failure=failures.on_failure,
        assign_directory=assign_directory,
        keeps_logs=keeps_logs,
    )
    log_jobs = LogJobs(
        config=config,
        hosted=hosted,
        log_manager=log_manager,
        clock=clock,
        offload=offload,
        sink=sink,
        one_change_at_a_time=one_change_at_a_time,
        fetches=purgatories.fetch,
        fetchers=fetchers,
        on_storage_failure=failures.on_partition_failure,
    )
    return ReplicaManager(
        config=dynamic,
        hosted=hosted,
        purgatories=purgatories,
        produce=ProducePath(
            hosted=hosted,
            purgatory=purgatories.produce,
            clock=clock,
            offload=offload,
            meters=topic_meters,
            flush_to=log_jobs.flush_to,
            on_storage_failure=failures.on_partition_failure,
            verifies=lambda: dynamic.current.transaction_partition_verification_enable,
            sink=sink,
        ),
        fetch=FetchPath(
            hosted=hosted,
            purgatory=purgatories.fetch,
            clock=clock,
            quota=quotas.leader,
            meters=topic_meters,
            on_storage_failure=failures.on_partition_failure,
        ),
        offsets=OffsetsPath(
            hosted=hosted, offload=offload, on_storage_failure=failures.take_failed_offline
        ),
        delete_records=DeleteRecordsPath(
            hosted=hosted,
            purgatory=purgatories.delete_records,
            fetches=purgatories.fetch,
            on_storage_failure=failures.on_partition_failure,
        ),
        replicas=replicas,
        roles=roles,
        high_watermarks=high_watermarks,
        failures=failures,
        quotas=quotas,
        compaction=Compaction(
            config=dynamic,
            log_manager=log_manager,
            clock=clock,
            offload=offload,
            sink=sink,
            one_change_at_a_time=one_change_at_a_time,
            on_storage_failure=failures.take_failed_offline,
            on_bug=on_bug,
        ),
        one_change_at_a_time=one_change_at_a_time,
        log_jobs=log_jobs,
        observer=observer,
        gauges=gauges,
        topic_meters=topic_meters,
        metrics=metrics,
        log_manager=log_manager,
        clock=clock,
        offload=offload,
        on_bug=on_bug,
    )
