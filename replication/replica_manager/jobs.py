"""The background jobs of a broker's logs (the schedule in LogManager.startup in Kafka).

    every second                                     sync closed segments; unlink deleted files
    log.retention.check.interval.ms                  delete old segments
    log.flush.scheduler.interval.ms                  sync by flush.ms
    a leader's append                                sync by flush.messages
    log.flush.offset.checkpoint.interval.ms          recovery points
    log.flush.start.offset.checkpoint.interval.ms    log starts
    producer.id.expiration.check.interval.ms         forget silent producers

The first four of Kafka's own begin `log.initial.task.delay.ms` after the start.

Rule 1: what touches the disk for long is offloaded, on what was prepared on the loop.

Rule 2: a change of roles may close a log or write its leader epochs, so jobs that sync or delete
hold the same lock, `one_change_at_a_time`.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import compress

import attrs
import trio

from replication.config import BrokerConfig
from replication.events import EventSink, LogDeleted
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.net.pace import in_steps
from replication.net.seams import NodeClock, Offload
from replication.replica_manager.followed import FetcherManager
from replication.replica_manager.hosted import HostedPartitions
from replication.steps import each_of
from storage.attributes import define, frozen
from storage.config import LONG_MAX
from storage.errors import KafkaStorageError, ShortageError
from storage.log.log import Log
from storage.manager.checkpoint_plan import CheckpointPlan
from storage.manager.log_manager import LogManager
from storage.manager.pending_deletes import DoomedFile
from storage.types import Offset, TopicPartition

EVERY_SECOND_MS = 1000


@frozen
class PeriodicJob:
    """`work`, first after `delay_ms` and then every `interval_ms`."""

    delay_ms: float
    interval_ms: float
    work: Callable[[], Awaitable[None]]


@define(eq=False, kw_only=True)
class LogJobs:
    config: BrokerConfig
    hosted: HostedPartitions
    log_manager: LogManager
    clock: NodeClock
    offload: Offload
    sink: EventSink
    one_change_at_a_time: trio.Lock
    fetches: Purgatory[TopicPartition]
    fetchers: FetcherManager
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]
    _flushed: dict[TopicPartition, tuple[int, int]] = attrs.field(factory=dict, init=False)
    """How often each log had been flushed when it was last looked at, and the time before that."""
    _last_look_ms: int = attrs.field(default=-1, init=False)

    def jobs(self) -> Iterator[PeriodicJob]:
        config, delay_ms = self.config, self.config.log_initial_task_delay_ms
        yield PeriodicJob(EVERY_SECOND_MS, EVERY_SECOND_MS, self.flush_rolled)
        yield PeriodicJob(EVERY_SECOND_MS, EVERY_SECOND_MS, self.unlink_doomed)
        yield PeriodicJob(
            delay_ms, config.log_retention_check_interval_ms, self.delete_old_segments
        )
        if config.log_flush_scheduler_interval_ms < LONG_MAX:
            yield PeriodicJob(delay_ms, config.log_flush_scheduler_interval_ms, self.flush_dirty)
        yield PeriodicJob(
            delay_ms,
            config.log_flush_offset_checkpoint_interval_ms,
            self.checkpoint_recovery_points,
        )
        yield PeriodicJob(
            delay_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.checkpoint_log_start_offsets,
        )
        expiry_ms = config.producer_id_expiration_check_interval_ms
        yield PeriodicJob(expiry_ms, expiry_ms, self.expire_producers)

    # Syncing.

    async def flush_rolled(self) -> None:
        """Sync closed segments, so that a crash need not read them again."""
        rolled = self.log_manager.take_rolled()
        if rolled:
            await self._flush(rolled)

    async def flush_dirty(self) -> None:
        """Sync each log that has unsynced records and was not flushed for its `flush.ms`."""
        now_ms = self.clock.now_ms()
        logs = self.log_manager.logs()
        are_due = await in_steps(each_of(partial(self._is_due, now_ms), logs))
        due = list(compress(logs, are_due))
        self._last_look_ms = now_ms
        if due:
            await self._flush(due)

    def _is_due(self, now_ms: int, log: Log) -> bool:
        """Return whether `log` has unsynced records, and was flushed at least `flush.ms` ago."""
        known = self._flushed.get(log.topic_partition)
        if known is None or known[0] != log.local.flushes:
            known = self._flushed[log.topic_partition] = (log.local.flushes, self._last_look_ms)
        dirty = log.log_end_offset > log.recovery_point
        return dirty and (known[1] < 0 or now_ms - known[1] >= log.config.flush_ms)

    async def flush_to(self, log: Log, offset: Offset) -> None:
        """Sync the records below `offset` (flush.messages); raises KafkaStorageError.

        A caller that waits while another one syncs finds its records synced. Records that were
        truncated meanwhile need nothing.
        """
        while log.recovery_point < min(offset, log.log_end_offset):
            if log.failure is not None:
                raise KafkaStorageError(str(log.failure))
            if log.closed:
                return
            async with self.one_change_at_a_time:
                if log.recovery_point < offset:
                    await flush_log(log, self.offload)

    async def _flush(self, logs: list[Log]) -> None:
        for log in logs:
            async with self.one_change_at_a_time:  # a change of roles waits for one log at most
                await flush_log(log, self.offload)

    async def checkpoint_recovery_points(self) -> None:
        await self._carry_out(self.log_manager.plan_recovery_points())

    async def checkpoint_log_start_offsets(self) -> None:
        await self._carry_out(self.log_manager.plan_log_start_offsets())

    async def _carry_out(self, plans: list[CheckpointPlan]) -> None:
        """Write these checkpoints; one that a truncation has overtaken waits for the next round."""
        for plan in plans:
            try:
                await self.offload(plan.prepare)
                if plan.publish():
                    await self.offload(plan.settle)
            except ShortageError:
                raise
            except OSError as error:
                raise self.log_manager.fail(plan.directory, error) from error

    # Deleting.

    async def delete_old_segments(self) -> None:
        """Delete every segment that retention allows, on leaders and followers alike.

        Each log has a turn of the loop, so that a broker with many partitions answers in between.
        The files are unlinked later. (LogManager.cleanupLogs in Kafka.)
        """
        async with self.one_change_at_a_time:
            for partition in self.hosted:
                if self.hosted.holds(partition):
                    self._delete_old_segments(partition)
                await trio.lowlevel.checkpoint()

    def _delete_old_segments(self, partition: Partition) -> None:
        start = partition.log.log_start_offset
        try:
            partition.log.delete_old_segments(self.clock.wall_ms())
        except KafkaStorageError as error:
            self.on_storage_failure(partition, error)
        if partition.log.log_start_offset != start:
            self._on_log_start_moved(partition.topic_partition)

    def _on_log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Send the new log start to waiting followers, and with this broker's own next fetch."""
        self.fetches.check(topic_partition)
        self.fetchers.log_start_moved(topic_partition)

    async def unlink_doomed(self) -> None:
        """Unlink deleted files that have waited long enough (`storage.manager.pending_deletes`)."""
        doomed = self.log_manager.doomed
        due = doomed.due_by(self.clock.now_ms())
        if not due:
            return
        gone = await self.offload(partial(self.log_manager.unlink, due))
        doomed.forget(due)
        await in_steps(each_of(self._report_unlinked, gone))

    def _report_unlinked(self, gone: DoomedFile) -> None:
        if gone.log is not None:
            self.sink(LogDeleted(partition=gone.log, path=gone.path, cause=gone.cause))

    # Producers.

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        for partition in self.hosted:
            partition.log.producers.remove_expired(self.clock.wall_ms())
            await trio.lowlevel.checkpoint()


async def flush_log(log: Log, offload: Offload) -> None:
    """Sync everything in `log`, unless it is closed or has failed.

    The sync is planned on the loop, carried out away from it, and committed on the loop.
    """
    if log.closed or log.failed:
        return
    try:
        # Before the plan, which would write the leader epochs on the loop.
        await offload(log.leader_epoch_cache.flush)
    except ShortageError:
        raise
    except OSError as error:
        raise log.fail(error) from error
    plan = log.flush_plan()
    await offload(partial(log.local.sync, plan))
    log.local.commit_flush(plan)
