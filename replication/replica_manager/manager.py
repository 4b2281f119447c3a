"""This broker's replicas, and the tasks that look after them (the package's map: __init__)."""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from functools import partial

import trio

from replication.config import BrokerConfig, DynamicBrokerConfig
from replication.errors import KafkaError
from replication.events import EventSink, PartitionFailed, ignore
from replication.leader.list_offsets import offset_for_timestamp
from replication.leader.partition import Partition, PartitionSnapshot
from replication.leader.rules.fetch_data import Answers, FetchParams, Isolation, Wanted
from replication.leader.rules.fetch_session.session import FetchSession
from replication.leader.rules.leadership import Surroundings
from replication.leader.rules.quota import ReplicationQuotas
from replication.leader.rules.replica_selector import SELECTORS
from replication.metadata.rules import MetadataDelta, MetadataImage
from replication.metrics import MetricsRegistry
from replication.net.seams import Seams
from replication.net.turns import Turns
from replication.replica_manager.bytes_in import BytesIn
from replication.replica_manager.compaction import Compaction
from replication.replica_manager.configuration import Configuration
from replication.replica_manager.delete_records import DeleteRecordsPath
from replication.replica_manager.fetch import FetchPath
from replication.replica_manager.followed import LocalReplicas
from replication.replica_manager.gauges import ReplicaGauges
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.jobs import Job, LogJobs
from replication.replica_manager.observer import AlterPartitionManager, Observer
from replication.replica_manager.produce import NO_GUARDS, ProducePath
from replication.replica_manager.purgatories import Purgatories
from replication.replica_manager.results import (
    DeleteRecordsResult,
    EpochEndResult,
    ListOffsetsResult,
    ProduceResult,
    code_of,
)
from replication.replica_manager.roles import AssignDirectory, FetcherManager, RoleChanges
from replication.replica_manager.topic_meters import TopicMeters
from storage.batch.allowance import Allowance
from storage.errors import KafkaStorageError, StorageError
from storage.log.time_lookup import LongLookUpError, LongSearch
from storage.manager.log_manager import LogManager
from storage.producers.verification import VerificationGuard
from storage.types import LeaderEpoch, Offset, TopicId, TopicPartition

SHORTEST_PAUSE_SECONDS = 0.001

OnBug = Callable[[BaseException], None]
MakeFetcherManager = Callable[[LocalReplicas, trio.Nursery], FetcherManager]


def _ignore_directory(_topic_id: TopicId, _partition: int, _directory: bytes) -> None:
    """Of a broker with one directory nobody asks where its replicas lie."""


class ReplicaManager:
    """See the package. `run` first, then `apply_metadata` for everything there is."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        seams: Seams,
        log_manager: LogManager,
        metadata: Callable[[], MetadataImage],
        alter_partition: AlterPartitionManager,
        make_fetcher_manager: MakeFetcherManager,
        broker_epoch: Callable[[], int],
        metrics: MetricsRegistry,
        assign_directory: AssignDirectory = _ignore_directory,
        keeps_logs: bool = False,
        sink: EventSink = ignore,
        on_bug: OnBug,
    ) -> None:
        self.config = DynamicBrokerConfig(config)
        self._seams = seams
        self._log_manager = log_manager
        self._assign_directory = assign_directory
        self._keeps_logs = keeps_logs
        self._make_fetcher_manager = make_fetcher_manager
        self._sink = sink
        self._on_bug = on_bug
        self._roles: RoleChanges | None = None
        self._one_change_at_a_time = trio.Lock()
        self._checkpoint_turns = Turns()
        self._hosted = HostedPartitions(metadata)
        self.purgatories = Purgatories.empty(clock=seams.clock, on_bug=on_bug)
        self._metrics = metrics
        self._gauges = ReplicaGauges(
            metrics,
            self._hosted,
            self.purgatories,
            lambda: self.producer_id_count,
            seams.clock.wall_ms,
            config.transaction_max_timeout_ms,
        )
        self._topic_meters = TopicMeters(metrics, self._hosted)
        self._observer = Observer(
            hosted=self._hosted,
            purgatories=self.purgatories,
            gauges=self._gauges,
            alter_partition=alter_partition,
            clock=seams.clock,
            sink=sink,
        )
        self._around = Surroundings(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            metadata=metadata,
            now_ms=seams.clock.now_ms,
            max_lag_ms=config.replica_lag_time_max_ms,
            observer=self._observer,
            selector=SELECTORS.get(config.replica_selector_class or ""),
        )
        self._log_jobs = LogJobs(
            config=config,
            hosted=self._hosted,
            log_manager=log_manager,
            clock=seams.clock,
            offload=seams.offload,
            sink=sink,
            one_change_at_a_time=self._one_change_at_a_time,
            log_start_moved=self._on_old_segments_deleted,
            on_storage_failure=self._on_log_failure,
        )
        self._produce = ProducePath(
            hosted=self._hosted,
            purgatory=self.purgatories.produce,
            clock=seams.clock,
            offload=seams.offload,
            meters=self._topic_meters,
            flush_to=self._log_jobs.flush_to,
            on_storage_failure=self._on_log_failure,
            verifies=lambda: self.config.current.transaction_partition_verification_enable,
            sink=sink,
        )
        self._delete_records = DeleteRecordsPath(
            hosted=self._hosted,
            purgatory=self.purgatories.delete_records,
            fetches=self.purgatories.fetch,
            on_storage_failure=self._on_log_failure,
        )
        self.quotas = ReplicationQuotas.measured_over(
            samples=config.replication_quota_window_num,
            sample_ms=config.replication_quota_window_size_seconds * 1000,
        )
        self.compaction = Compaction(
            config=self.config,
            log_manager=log_manager,
            clock=seams.clock,
            offload=seams.offload,
            sink=sink,
            one_change_at_a_time=self._one_change_at_a_time,
            on_storage_failure=self.take_failed_offline,
            on_bug=on_bug,
        )
        self._fetch = FetchPath(
            hosted=self._hosted,
            purgatory=self.purgatories.fetch,
            clock=seams.clock,
            quota=self.quotas.leader,
            meters=self._topic_meters,
            terms=self.fetch_terms,
            on_storage_failure=self._on_log_failure,
        )
        self.replicas = LocalReplicas(
            hosted=self._hosted,
            clock=seams.clock,
            fetches=self.purgatories.fetch,
            quota=self.quotas.follower,
            bytes_in=BytesIn.registered(metrics),
            on_storage_failure=self._on_log_failure,
        )

    # The tasks.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after the replicas until cancelled; `started` once metadata may be applied."""
        checkpointed = await self._seams.offload(self._log_manager.read_high_watermarks)
        async with trio.open_nursery() as nursery:
            self._observer.nursery = nursery
            fetchers = self._make_fetcher_manager(self.replicas, nursery)
            self._roles = RoleChanges(
                broker_id=self._around.broker_id,
                config=self.config.static,
                configuration=Configuration(
                    broker_id=self._around.broker_id,
                    config=self.config,
                    hosted=self._hosted,
                    log_manager=self._log_manager,
                    fetchers=fetchers,
                    quotas=self.quotas,
                ),
                hosted=self._hosted,
                around=self._around,
                log_manager=self._log_manager,
                offload=self._seams.offload,
                fetchers=fetchers,
                sink=self._sink,
                complete_delayed=self.purgatories.check,
                roles_lost=self._topic_meters.roles_lost,
                on_storage_failure=self._on_failure,
                assign_directory=self._assign_directory,
                checkpointed=dict(checkpointed),
                keeps_logs=self._keeps_logs,
            )
            for job in self._jobs():
                nursery.start_soon(self._every, job)
            nursery.start_soon(self._report_moves)
            nursery.start_soon(self.compaction.run)
            task_status.started()

    def _jobs(self) -> Iterator[Job]:
        """What is done every so many milliseconds."""
        config = self.config.static
        lag_ms = config.replica_lag_time_max_ms / 2
        marks_ms = config.replica_high_watermark_checkpoint_interval_ms
        yield Job(lag_ms, lag_ms, self._shrink_isrs)
        yield Job(marks_ms, marks_ms, self.checkpoint_high_watermarks)
        yield from self._log_jobs.jobs()

    async def _every(self, job: Job) -> None:
        """Do `job` every so often."""
        pause_ms = job.delay_ms
        while True:
            await self._seams.clock.sleep(max(pause_ms / 1000, SHORTEST_PAUSE_SECONDS))
            await self._guarded(job.work)
            pause_ms = job.interval_ms

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do `job`. A failing disk is not a bug: what it holds goes offline."""
        try:
            await job()
        except (StorageError, OSError):
            self.take_failed_offline()
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            self._on_bug(bug)

    async def _shrink_isrs(self) -> None:
        for partition in self._hosted:
            if partition.leadership is not None:
                partition.leadership.maybe_shrink_isr()

    async def _report_moves(self) -> None:
        while True:
            await self._observer.logs_moved()
            await self._guarded(self._observer.report_moves)

    async def checkpoint_high_watermarks(self) -> None:
        """Write where every partition's high watermark is, for the next start."""
        async with self._checkpoint_turns:
            marks = {each.topic_partition: each.log.lasting_high_watermark for each in self._hosted}
            if self._roles is not None:
                # Those whose log is not open yet keep what was written last time.
                marks = self._roles.checkpointed | marks
            await self._seams.offload(partial(self._log_manager.checkpoint_high_watermarks, marks))

    async def shutdown(self) -> None:
        """Stop fetching and write the last high watermarks. The logs are their manager's to
        close; whoever is killed does not come here, and writes nothing.
        """
        if self._roles is not None:
            await self._roles.fetchers.close_all()
        await self.checkpoint_high_watermarks()
        self._gauges.unregister()
        self._topic_meters.unregister()
        self.replicas.bytes_in.unregister(self._metrics)

    # Metadata.

    async def apply_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take the roles that `image` gives us in what `delta` names. The callable `metadata`
        must give `image`, or a newer one, by now.
        """
        assert self._roles is not None, "run() is started before metadata is applied"
        async with self._one_change_at_a_time:
            await self._roles.apply(image, delta)

    def begin_controlled_shutdown(self) -> None:
        """From now on a replica that leaves the ISR, or loses its leader, stops following."""
        assert self._roles is not None, "a broker that shuts down has been started"
        self._roles.shutting_down = True

    # Requests.

    async def append_records(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        internal_topics_allowed: bool = False,
        from_client: bool = True,
        guards: Mapping[TopicPartition, VerificationGuard] = NO_GUARDS,
        markers_bump_epoch: bool = False,
    ) -> dict[TopicPartition, ProduceResult]:
        """Append to each partition this broker leads, and with acks=-1 wait for the followers.

        One result per entry, whatever happens. The batches are stamped in place: their
        memory must be writable, and is not looked at any more when this returns. A coordinator
        (not `from_client`) also writes markers, and offsets of transactions. `guards` are of
        what opens transactions (`verification.py`).
        """
        return await self._produce.append(
            entries,
            required_acks=required_acks,
            timeout_ms=timeout_ms,
            internal_topics_allowed=internal_topics_allowed,
            from_client=from_client,
            guards=guards,
            markers_bump_epoch=markers_bump_epoch,
        )

    async def delete_records(
        self, offsets: Mapping[TopicPartition, Offset], *, timeout_ms: int
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """Give up what lies below each offset (-1: all that is committed), here and, before this
        returns or the time is up, on every live follower. One result per entry.
        """
        return await self._delete_records.delete(offsets, timeout_ms=timeout_ms)

    async def fetch_records(
        self, params: FetchParams, wanted: Wanted, session: FetchSession | None = None
    ) -> Answers:
        """Read every partition that is wanted, after waiting for `params.min_bytes` if need be.

        One answer per partition, in the order of `wanted`; each of them has a name. In a session
        `wanted` is what is not settled there, and what moves meanwhile is answered too.
        """
        return await self._fetch.fetch(params, wanted, session)

    def fetch_terms(self, params: FetchParams) -> Hashable:
        """What every answer to such a fetch depends on, beside the partitions."""
        return (
            params.replica_id,
            params.replica_epoch,
            self._around.metadata().broker_epoch(params.replica_id),
            params.isolation,
            params.client_metadata,  # its rack: which replica is preferred
        )

    def list_offsets(
        self,
        topic_partition: TopicPartition,
        *,
        timestamp: int,
        isolation: Isolation | None,
        current_leader_epoch: LeaderEpoch = -1,
        replica_id: int = -1,
        allowance: Allowance | None = None,
        after: LongSearch | None = None,
    ) -> ListOffsetsResult:
        """Where `timestamp` is. `isolation` counts only for a consumer (`replica_id` -1);
        OFFSET_NOT_AVAILABLE is LEADER_NOT_AVAILABLE to versions below 5.

        Raise LongLookUpError where that takes more than `allowance`: `finish_look_up`.
        """
        try:
            found, offset, epoch = offset_for_timestamp(
                self._hosted.get(topic_partition),
                timestamp=timestamp,
                isolation=isolation,
                current_leader_epoch=current_leader_epoch,
                replica_id=replica_id,
                allowance=allowance,
                after=after,
            )
        except LongLookUpError:
            raise
        except KafkaError as error:
            return ListOffsetsResult(error=error.code)
        except StorageError as error:
            return self._failed_look_up(error)
        return ListOffsetsResult(timestamp=found, offset=offset, leader_epoch=epoch)

    async def finish_look_up(
        self, look_up: Callable[[LongSearch | None], ListOffsetsResult]
    ) -> ListOffsetsResult:
        """Return what `look_up`, which is `list_offsets`, comes to with long searches in threads.

        The log may change meanwhile, so every call asks the replica that is here then.
        """
        search = None
        while True:
            try:
                return look_up(search)
            except LongLookUpError as error:
                search = error.search
            try:
                await self._seams.offload(search.run)
            except StorageError as error:
                return self._failed_look_up(error)

    def _failed_look_up(self, error: StorageError) -> ListOffsetsResult:
        self.take_failed_offline()
        return ListOffsetsResult(error=code_of(error))

    def offset_for_leader_epoch(
        self,
        topic_partition: TopicPartition,
        *,
        leader_epoch: LeaderEpoch,
        current_leader_epoch: LeaderEpoch = -1,
    ) -> EpochEndResult:
        """Where `leader_epoch`, or the greatest one below it, ends in the log led here."""
        try:
            partition = self._hosted.get(topic_partition)
            partition.check_access(current_leader_epoch, leader_only=True)
        except KafkaError as error:
            return EpochEndResult(error=error.code)
        end = partition.log.end_offset_for_epoch(leader_epoch)
        return EpochEndResult(leader_epoch=end.leader_epoch, end_offset=end.offset)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The replica of that partition; KafkaError where there is none online."""
        return self._hosted.get(topic_partition)

    @property
    def producer_id_count(self) -> int:
        """Pairs of a producer and a partition that remembers it (ProducerIdCount)."""
        return sum(len(each.log.producers.producers) for each in self._hosted)

    def snapshot(self, topic_partition: TopicPartition) -> PartitionSnapshot | None:
        """Where the replica of that partition stands; None where there is none online."""
        partition = self._hosted.find(topic_partition)
        return None if partition is None else partition.snapshot()

    def describe(self) -> dict[TopicPartition, PartitionSnapshot]:
        """The same of every partition online, by name."""
        online = self._hosted.online
        return {each: online[each].snapshot() for each in sorted(online)}

    @property
    def online(self) -> Mapping[TopicPartition, Partition]:
        """Every partition that is held here and well."""
        return self._hosted.online

    def followed_by(self, topic_partition: TopicPartition) -> int:
        """How many fetchers of ours have it: one at most."""
        return 0 if self._roles is None else self._roles.fetchers.followed_by(topic_partition)

    @property
    def offline_partitions(self) -> list[TopicPartition]:
        return sorted(self._hosted.offline)

    # Failing.

    def _on_old_segments_deleted(self, topic_partition: TopicPartition) -> None:
        """Who fetches here is told with the next answer, whom we fetch from by our next fetch."""
        self.purgatories.fetch.check(topic_partition)
        if self._roles is not None:
            self._roles.fetchers.log_start_moved(topic_partition)

    def _on_log_failure(self, partition: Partition, error: StorageError) -> None:
        self._on_failure(partition.topic_partition, partition.topic_id, error)

    def _on_failure(
        self, topic_partition: TopicPartition, topic_id: TopicId, error: StorageError
    ) -> None:
        """Its log failed: nothing more is asked of it, nor of those in the same directory."""
        self._hosted.take_offline(topic_partition, topic_id)
        self._sink(PartitionFailed(partition=topic_partition, cause=str(error)))
        if self._roles is not None:
            self._roles.fetchers.remove_fetcher_for_partitions([topic_partition])
            self._roles.fetchers.add_failed_partition(topic_partition)
        self.purgatories.check(topic_partition)
        self.take_failed_offline()

    def take_failed_offline(self) -> None:
        """A log directory fails as a whole; its logs say so, each of them. To be called when
        one has failed in a thread, where nobody here was told.
        """
        for partition in self._hosted:
            if (
                partition.log.failure is not None
                and partition.topic_partition in self._hosted.online
            ):
                cause = KafkaStorageError(str(partition.log.failure))
                self._on_log_failure(partition, cause)
