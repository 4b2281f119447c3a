"""The replicas of one broker, and their tasks; `__init__` has a map of the package."""

from collections.abc import Awaitable, Callable, Iterator

import attrs
import trio

from replication.config import DynamicBrokerConfig
from replication.leader.rules.quota import ReplicationQuotas
from replication.metadata.rules.image import MetadataDelta, MetadataImage
from replication.metrics import MetricsRegistry
from replication.net.pace import in_steps
from replication.net.seams import NodeClock, Offload
from replication.replica_manager.compaction import Compaction
from replication.replica_manager.delete_records import DeleteRecordsPath
from replication.replica_manager.failures import LogFailures
from replication.replica_manager.fetch import FetchPath
from replication.replica_manager.followed import LocalReplicas
from replication.replica_manager.gauges import ReplicaGauges
from replication.replica_manager.high_watermarks import HighWatermarks
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.jobs import LogJobs, PeriodicJob
from replication.replica_manager.observer import Observer
from replication.replica_manager.offsets import OffsetsPath
from replication.replica_manager.produce import ProducePath
from replication.replica_manager.purgatories import Purgatories
from replication.replica_manager.roles import RoleChanges
from replication.replica_manager.topic_meters import TopicMeters
from replication.steps import Steps
from storage.attributes import define
from storage.errors import StorageError
from storage.manager.log_manager import LogManager

SHORTEST_PAUSE_SECONDS = 0.001
PROPOSING = 4
"""The work of proposing an ISR change, by a task of its own, in items of a list."""


@define(eq=False, kw_only=True, repr=False)
class ReplicaManager:
    """Its parts, and their life: `run` first, then `apply_metadata` for the whole image."""

    config: DynamicBrokerConfig
    hosted: HostedPartitions
    purgatories: Purgatories
    produce: ProducePath
    fetch: FetchPath
    offsets: OffsetsPath
    delete_records: DeleteRecordsPath
    replicas: LocalReplicas
    roles: RoleChanges
    high_watermarks: HighWatermarks
    failures: LogFailures
    quotas: ReplicationQuotas
    compaction: Compaction
    one_change_at_a_time: trio.Lock
    """Held while roles change, and by the jobs that must not meet such a change."""
    log_jobs: LogJobs
    observer: Observer
    gauges: ReplicaGauges
    topic_meters: TopicMeters
    metrics: MetricsRegistry
    log_manager: LogManager
    clock: NodeClock
    offload: Offload
    on_bug: Callable[[BaseException], None]
    _runs: bool = attrs.field(init=False, default=False)

    # The tasks.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after the replicas until cancelled; `started` once metadata may be applied."""
        await self.high_watermarks.read()
        async with trio.open_nursery() as nursery:
            self.observer.nursery = nursery
            self.roles.fetchers.nursery = nursery
            self._runs = True
            for job in self._jobs():
                nursery.start_soon(self._every, job)
            nursery.start_soon(self._report_moves)
            nursery.start_soon(self.compaction.run)
            task_status.started()

    def _jobs(self) -> Iterator[PeriodicJob]:
        """Yield what is done every so many milliseconds."""
        config = self.config.static
        lag_ms = config.replica_lag_time_max_ms / 2
        marks_ms = config.replica_high_watermark_checkpoint_interval_ms
        yield PeriodicJob(lag_ms, lag_ms, self._shrink_isrs)
        yield PeriodicJob(marks_ms, marks_ms, self.high_watermarks.write)
        yield from self.log_jobs.jobs()

    async def _every(self, job: PeriodicJob) -> None:
        """Do `job` at its interval, for ever."""
        pause_ms = job.delay_ms
        while True:
            await self.clock.sleep(max(pause_ms / 1000, SHORTEST_PAUSE_SECONDS))
            await self._guarded(job.work)
            pause_ms = job.interval_ms

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        """Do `job`. A failing disk is no bug: the partitions on it go offline."""
        try:
            await job()
        except (StorageError, OSError):
            self.failures.take_failed_offline()
        except Exception as bug:  # noqa: BLE001 - the boundary of a background job
            self.on_bug(bug)

    async def _shrink_isrs(self) -> None:
        await in_steps(self._each_isr_shrunk())

    def _each_isr_shrunk(self) -> Steps[None]:
        for partition in self.hosted:
            yield 1
            # In a pause it may have been removed, or another may have its name.
            if (leadership := partition.leadership) is None or not self.hosted.holds(partition):
                continue
            before = leadership.isr_state
            leadership.maybe_shrink_isr()
            if leadership.isr_state is not before:
                yield PROPOSING

    async def _report_moves(self) -> None:
        while True:
            await self.observer.logs_moved()
            await self._guarded(self.observer.report_moves)

    async def shutdown(self) -> None:
        """Stop fetching and write the last high watermarks.

        The logs are closed by their manager. A broker that is killed does not come here, and
        writes nothing.
        """
        await self.roles.fetchers.close_all()
        await self.high_watermarks.write()
        self.gauges.unregister()
        self.topic_meters.unregister()
        self.replicas.bytes_in.unregister(self.metrics)

    # Metadata.

    async def apply_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take the roles that `image` gives this broker in the partitions that `delta` names.

        `hosted.metadata` must return `image`, or a newer one, by now.
        """
        assert self._runs, "run() is started before metadata is applied"
        async with self.one_change_at_a_time:
            await self.roles.apply(image, delta)
