"""Produce: append to each partition, then wait for its followers if the request asks for that.

    flush.messages   records that are due are synced first, away from the loop
    acks  0, 1       answered once this broker's log has the records
    acks  -1         refused if the ISR is too small; else answered for each partition when its
                     high watermark has passed the records, or when the time is up

If the ISR was too small before the append, the log holds nothing of it (NOT_ENOUGH_REPLICAS); if
it became too small after it, the log holds the records (NOT_ENOUGH_REPLICAS_AFTER_APPEND): a
producer that sends them again may write them twice.

The checks of one request have an `Allowance` on the event loop. When half of it is spent, other
tasks have a turn before the next partition; a batch that needs more than is left is checked in a
thread.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import attrs
import trio

from replication.errors import ErrorCode, KafkaError
from replication.events import DuplicateRecognised, EventSink, ignore
from replication.leader.partition import Partition
from replication.leader.purgatory import Purgatory
from replication.net.seams import NodeClock, Offload
from replication.replica_manager.delayed import DelayedOutcomes
from replication.replica_manager.hosted import HostedPartitions
from replication.replica_manager.results import ProduceResult, code_of
from replication.replica_manager.topic_meters import TopicMeters
from replication.wire.metadata import INTERNAL_TOPICS
from replication.wire.produce import ACKS_ALL
from storage.attributes import define
from storage.batch.allowance import STEPS_PER_BATCH, Allowance
from storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaStorageError,
    LongCheckError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    ShortageError,
    StorageError,
)
from storage.log.append import LogAppendInfo
from storage.log.log import Log, PreparedAppend, prepare_append
from storage.producers.verification import TransactionTerms, VerificationGuard
from storage.types import NO_OFFSET, Offset, TopicPartition

_ACKS: Final = frozenset({ACKS_ALL, 0, 1})
NO_GUARDS: Final[Mapping[TopicPartition, VerificationGuard]] = {}
_EXPECTED: Final = (CorruptRecordError, RecordTooLargeError, RecordBatchTooLargeError)


@define
class Appended:
    """The results of a request so far, and the offsets that its followers have yet to reach."""

    results: dict[TopicPartition, ProduceResult] = attrs.field(factory=dict)
    required: dict[TopicPartition, Offset] = attrs.field(factory=dict)

    def conclude(self, outcomes: Mapping[TopicPartition, ErrorCode]) -> None:
        """Note the `outcomes` of the wait; a partition without one has run out of time."""
        for each in self.required:
            error = outcomes.get(each, ErrorCode.REQUEST_TIMED_OUT)
            if error is not ErrorCode.NONE:
                # A failure after the append keeps the offsets of the records, as a success does.
                self.results[each] = attrs.evolve(self.results[each], error=error)


@define(eq=False, kw_only=True)
class ProducePath:
    """The path of Produce requests, which wait for followers in `purgatory`."""

    hosted: HostedPartitions
    purgatory: Purgatory[TopicPartition]
    clock: NodeClock
    offload: Offload
    meters: TopicMeters
    flush_to: Callable[[Log, Offset], Awaitable[None]]
    on_storage_failure: Callable[[Partition, KafkaStorageError], None]
    verifies: Callable[[], bool] = lambda: True
    """Returns whether a batch that opens a transaction must have been verified."""
    sink: EventSink = ignore

    async def append(
        self,
        entries: Mapping[TopicPartition, memoryview],
        *,
        required_acks: int,
        timeout_ms: int,
        internal_topics_allowed: bool = False,
        from_client: bool = True,
        guards: Mapping[TopicPartition, VerificationGuard] = NO_GUARDS,
        markers_bump_epoch: bool = False,
    ) -> dict[TopicPartition, ProduceResult]:
        """Append as `append_here` does, and with acks=-1 wait for the followers."""
        appended = await self.append_here(
            entries,
            required_acks=required_acks,
            internal_topics_allowed=internal_topics_allowed,
            from_client=from_client,
            guards=guards,
            markers_bump_epoch=markers_bump_epoch,
        )
        await self.wait_for_followers(appended, timeout_ms=timeout_ms)
        return appended.results

    async def append_here(
        self,
        entries: Mapping[TopicPartition, memoryview],
        *,
        required_acks: int,
        internal_topics_allowed: bool = False,
        from_client: bool = True,
        guards: Mapping[TopicPartition, VerificationGuard] = NO_GUARDS,
        markers_bump_epoch: bool = False,
    ) -> Appended:
        """Append to each partition led here, and do not wait for the followers.

        Return one result per entry. The batches are stamped in place: their memory must be
        writable, and is no longer used when this returns. A coordinator (not `from_client`) also
        writes markers, and offsets of transactions. `guards` belong to the batches that open
        transactions (`verification.py`).
        """
        if required_acks not in _ACKS:
            refused = ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS)
            return Appended(dict.fromkeys(entries, refused))
        appended = Appended()
        results, required = appended.results, appended.required
        unflushed: list[Partition] = []
        allowance = Allowance()
        for topic_partition, records in entries.items():
            if allowance.is_low:
                await trio.lowlevel.checkpoint()
                allowance = Allowance()
            allowance.spend(STEPS_PER_BATCH)
            if topic_partition.topic in INTERNAL_TOPICS and not internal_topics_allowed:
                results[topic_partition] = ProduceResult(error=ErrorCode.INVALID_TOPIC_EXCEPTION)
                continue
            result = results[topic_partition] = await self._append_to(
                topic_partition,
                records,
                required_acks=required_acks,
                from_client=from_client,
                terms=TransactionTerms(
                    must_be_verified=self.verifies(),
                    guard=guards.get(topic_partition),
                    marker_bumps_epoch=markers_bump_epoch,
                ),
                required=required,
                unflushed=unflushed,
                allowance=allowance,
            )
            self.meters.produced(
                topic_partition,
                size=len(records),
                messages=required.get(topic_partition, result.base_offset) - result.base_offset,
                error=result.error,
            )
        if unflushed:
            await self._flush(unflushed, results, required)
        if required_acks != ACKS_ALL:
            required.clear()
        return appended

    async def _append_to(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        *,
        required_acks: int,
        from_client: bool,
        terms: TransactionTerms,
        required: dict[TopicPartition, Offset],
        unflushed: list[Partition],
        allowance: Allowance,
    ) -> ProduceResult:
        """Append to one partition.

        Its end offset is added to `required`, for the wait; it is added to `unflushed` if it has
        to be synced.
        """

        def append(records: memoryview | PreparedAppend) -> LogAppendInfo:
            return self.hosted.get(topic_partition).append_as_leader(
                records,
                required_acks=required_acks,
                wall_ms=self.clock.wall_ms(),
                from_client=from_client,
                terms=terms,
                allowance=allowance,
            )

        partition = self.hosted.find(topic_partition)
        try:
            try:
                info = append(records)
            except LongCheckError:
                assert partition is not None, "only a partition that is here checks records"
                prepare = partial(
                    prepare_append,
                    records,
                    partition.log.config,
                    wall_ms=self.clock.wall_ms(),
                    from_client=from_client,
                )
                prepared = await self.offload(prepare)
                partition = self.hosted.find(topic_partition)
                info = append(prepared)
        except KafkaError as error:
            return ProduceResult(error=error.code, error_message=str(error))
        except KafkaStorageError as error:
            assert partition is not None, "only a partition that is here has a log that fails"
            self.on_storage_failure(partition, error)
            return ProduceResult(error=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
        except StorageError as error:
            assert partition is not None, "only a partition that is here refuses records"
            return _refused(partition, error)
        assert partition is not None, "just appended to"
        if info.duplicate:
            self._report_duplicate(partition, info)
        if partition.log.flush_is_due:
            unflushed.append(partition)
        required[topic_partition] = info.last_offset + 1
        return ProduceResult(
            base_offset=info.last_offset if info.first_offset is None else info.first_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )

    def _report_duplicate(self, partition: Partition, info: LogAppendInfo) -> None:
        assert info.first_offset is not None, "a duplicate has the offset of the first one"
        self.sink(
            DuplicateRecognised(
                partition=partition.topic_partition,
                leader_epoch=partition.leader_epoch,
                base_offset=info.first_offset,
                last_offset=info.last_offset,
            )
        )

    async def _flush(
        self,
        unflushed: list[Partition],
        results: dict[TopicPartition, ProduceResult],
        required: dict[TopicPartition, Offset],
    ) -> None:
        """Sync these; a partition that cannot be synced is refused, and does not wait."""
        for partition in unflushed:
            topic_partition = partition.topic_partition
            try:
                await self.flush_to(partition.log, required[topic_partition])
            except KafkaStorageError as error:
                if self.hosted.holds(partition):
                    self.on_storage_failure(partition, error)
                results[topic_partition] = ProduceResult(
                    error=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error)
                )
                del required[topic_partition]
            except ShortageError as error:
                results[topic_partition] = _refused(partition, error)
                del required[topic_partition]
            else:
                partition.flushed()

    async def wait_for_followers(self, appended: Appended, *, timeout_ms: int) -> None:
        """Wait until the followers have what they need, and note in the results where they fail."""
        if not appended.required:
            await trio.lowlevel.checkpoint()
            return
        delayed = self._delayed(appended)
        await self.purgatory.wait(delayed, appended.required, timeout_ms=timeout_ms)
        appended.conclude(delayed.outcomes)

    def call_when_followed(
        self, appended: Appended, *, timeout_ms: int, done: Callable[[], object]
    ) -> Callable[[], object]:
        """Call `done` when the same wait is over; return a function that gives it up."""
        delayed = self._delayed(appended)

        def conclude() -> None:
            appended.conclude(delayed.outcomes)
            done()

        self.purgatory.call_when_done(
            delayed, appended.required, timeout_ms=timeout_ms, done=conclude
        )
        return partial(self.purgatory.give_up, delayed)

    def _delayed(self, appended: Appended) -> DelayedOutcomes:
        return DelayedOutcomes(self.hosted, dict(appended.required), Partition.produced)


def _refused(partition: Partition, error: StorageError) -> ProduceResult:
    # Errors that ReplicaManager.appendToLocalLog expects are answered without a log start.
    return ProduceResult(
        error=code_of(error),
        error_message=str(error),
        log_start_offset=(
            NO_OFFSET if isinstance(error, _EXPECTED) else partition.log.log_start_offset
        ),
        record_errors=error.record_errors if isinstance(error, InvalidRecordError) else {},
    )
