"""The records that have no outcome yet, in batches that fill, wait, travel and come back.

    append ─> queue of its partition ─> drain ─> a request for each leader that is ready
                      ^                             │
                      └────────── retried ──────────┤
                                          outcome <─┘   acked, failed, in parts

A batch is sent when one of these holds, and not before its back-off is over:

    it is full, or another one waits behind it       linger.ms has passed since it began
    a task waits for room                            a task flushes

Rule 1: room is counted in bytes, from the append of a record to its outcome. A task that finds
none waits (`buffer.memory`): that is how a slow cluster slows its producers down.

Rule 2: a request holds one batch of a partition, and partitions take turns.

Rule 3: a batch that is neither acked nor refused `delivery.timeout.ms` after its first record has
failed. If it is on its way then, its answer only decides which sequence is next.

(Kafka: RecordAccumulator, Sender, TransactionManager of a producer without transactions.)
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import attrs

from replication.client.errors import TransactionAbortedError
from replication.client.producer.batch import (
    NOBODY,
    Acked,
    Failed,
    InParts,
    Outcome,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordRun,
    Stamp,
)
from replication.client.producer.partition_queue import PartitionQueue, Verdict, judge
from replication.errors import ErrorCode, KafkaError
from storage.attributes import define, frozen
from storage.batch.compression import Codec
from storage.batch.record_batch import HEADER_SIZE, MAX_PRODUCER_EPOCH
from storage.batch.records import RecordFields
from storage.types import NO_OFFSET, Offset, TopicPartition

NEVER = float("inf")


class SentBatch(NamedTuple):
    """A batch of a request, with the identity and the node to which it was sent."""

    batch: ProducerBatch
    stamp: Stamp
    node: int


class Drained(NamedTuple):
    """The requests that can be sent now."""

    requests: dict[int, list[SentBatch]]
    """The batches by the leader's node."""
    next_at: float
    """The moment to look again, if nothing happens before."""
    leaderless: set[str]
    """Topics of partitions with waiting batches and without a known leader."""


@frozen(kw_only=True)
class BatchAnswer:
    """A broker's answer about a batch, or the error that stands for a missing answer."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    record_errors: dict[int, str] = attrs.field(factory=dict)


@define(eq=False, kw_only=True)
class RecordAccumulator:
    """The unsent and unacked records; times are in seconds of the node's clock, sizes in bytes."""

    batch_size: int
    linger: float
    buffer_memory: int
    max_request_size: int
    delivery_timeout: float
    retries: int
    backoff: Callable[[int], float]
    """Returns the wait in seconds after so many attempts."""
    idempotent: bool
    transactional: bool = False
    one_at_a_time: bool = False
    codec: Codec = Codec.NONE
    identity: ProducerIdAndEpoch = NOBODY
    flushing: int = 0
    """The number of tasks that wait until everything is sent."""
    waiting_for_room: int = 0
    may_send: Callable[[TopicPartition], bool] = lambda _: True
    """Returns whether a partition may be sent to; a transaction must contain it first."""
    needs_new_epoch: bool = attrs.field(default=False, init=False)
    """Whether a transaction has a gap in its sequences: its coordinator gives the next epoch."""
    used: int = attrs.field(default=0, init=False)
    _queues: dict[TopicPartition, PartitionQueue] = attrs.field(factory=dict, init=False)
    # The queues with waiting batches, in the order of their turns.
    _turns: dict[TopicPartition, PartitionQueue] = attrs.field(factory=dict, init=False)
    # Batches that may have no outcome yet, in the order in which they time out.
    _by_age: deque[ProducerBatch] = attrs.field(factory=deque, init=False)
    # Partitions whose sequences begin anew when there is a producer id again.
    _to_restart: set[TopicPartition] = attrs.field(factory=set, init=False)

    # Filling.

    def has_room(self, size: int) -> bool:
        """Return whether a record of that size may be appended. The first always may."""
        return not self.used or self.used + size <= self.buffer_memory

    def append(
        self,
        partition: TopicPartition,
        record: RecordFields,
        size: int,
        *,
        now: Callable[[], float],
    ) -> tuple[ProducerBatch, int]:
        """Append a record; return its batch and its place there. `now` is called for a new batch."""
        batch = self._batch_for(partition, size, now)
        records = batch.records
        records.append(record)
        self._grew(batch, size)
        return batch, len(records) - 1

    def append_run(
        self, partition: TopicPartition, run: RecordRun, *, now: Callable[[], float]
    ) -> tuple[ProducerBatch, int, int]:
        """Append what fits; return the batch, the place of the first record, and their number."""
        batch = self._batch_for(partition, run.next_size, now)
        records, index = batch.records, len(batch.records)
        some, size = run.take(min(self.batch_size - batch.size, self.buffer_memory - self.used))
        records += some
        self._grew(batch, size)
        return batch, index, len(some)

    def _grew(self, batch: ProducerBatch, size: int) -> None:
        batch.size += size
        self.used += size
        if batch.size >= self.batch_size:
            batch.is_closed = True

    def _batch_for(
        self, partition: TopicPartition, size: int, now: Callable[[], float]
    ) -> ProducerBatch:
        """Return the batch that takes the next record."""
        queue = self._queues.get(partition) or self._new_queue(partition)
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or batch.is_closed:
            return self._new_batch(queue, now())
        if batch.size + size > self.batch_size:
            batch.is_closed = True
            return self._new_batch(queue, now())
        return batch

    def _new_batch(self, queue: PartitionQueue, now: float) -> ProducerBatch:
        batch = ProducerBatch(
            partition=queue.partition, created_at=now, transactional=self.transactional
        )
        queue.waiting.append(batch)
        self._by_age.append(batch)
        self._turns.setdefault(queue.partition, queue)
        return batch

    def waiting_batches(self, partition: TopicPartition) -> int:
        queue = self._queues.get(partition)
        return 0 if queue is None else len(queue.waiting)

    @property
    def has_waiting(self) -> bool:
        """Whether there are batches to send, now or later."""
        return bool(self._turns)

    def unfinished(self) -> list[ProducerBatch]:
        """Return the batches without an outcome, the oldest first."""
        return [batch for batch in self._by_age if batch.outcome is None]

    # Sending.

    def drain(
        self,
        leader: Callable[[TopicPartition], int | None],
        may_send_to: Callable[[int], bool],
        *,
        now: float,
    ) -> Drained:
        """Take the batches that are ready, as a request for each node that may be sent one."""
        requests: dict[int, list[SentBatch]] = {}
        sizes: dict[int, int] = {}
        next_at, leaderless = NEVER, set()
        for partition, queue in list(self._turns.items()):
            batch = queue.next_batch(self._sends_as, one_at_a_time=self.one_at_a_time)
            if batch is None or not self.may_send(partition):
                continue
            ready_at = self._ready_at(batch, queue)
            if ready_at > now:
                next_at = min(next_at, ready_at)
                continue
            node = leader(partition)
            if node is None:
                leaderless.add(partition.topic)
            elif may_send_to(node):
                size = sizes.get(node, 0) + batch.size
                if node in requests and size > self.max_request_size:
                    next_at = now  # in another request
                    continue
                sizes[node] = size
                queue.take(batch, self._sends_as)
                requests.setdefault(node, []).append(SentBatch(batch, batch.stamped, node))
                self._move_to_end(queue)
                following = queue.next_batch(self._sends_as, one_at_a_time=self.one_at_a_time)
                if following is not None:
                    next_at = min(next_at, self._ready_at(following, queue))
        return Drained(requests, min(next_at, self.next_timeout), leaderless)

    @property
    def _sends_as(self) -> ProducerIdAndEpoch | None:
        return self.identity if self.idempotent else None

    def _ready_at(self, batch: ProducerBatch, queue: PartitionQueue) -> float:
        hurry = self.flushing or self.waiting_for_room
        if batch.is_closed or len(queue.waiting) > 1 or hurry:
            return batch.not_before
        return max(batch.not_before, batch.created_at + self.linger)

    def _move_to_end(self, queue: PartitionQueue) -> None:
        """Give all other partitions their turn before this one."""
        self._turns.pop(queue.partition, None)
        if queue.waiting:
            self._turns[queue.partition] = queue

    # Answers.

    def answered(self, sent: SentBatch, answer: BatchAnswer, *, now: float) -> Verdict:
        """Take the answer about a batch that was on its way; return the verdict on it."""
        batch, queue = sent.batch, self._queues[sent.batch.partition]
        verdict = judge(answer.error, batch, queue, log_start_offset=answer.log_start_offset)
        if verdict is Verdict.ACKED:
            for each in queue.written_with(batch, sent.stamp):
                self._resolve(each, Acked(NO_OFFSET))
            if not queue.acked(batch, sent.stamp, base_offset=answer.base_offset):
                self._bump_epoch(queue)
            self._resolve(
                batch,
                Acked(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset),
            )
        elif verdict is Verdict.FAILED:
            queue.refused(batch)
            self._resolve(batch, self._failed(answer))
        elif not self._may_retry(batch, now=now):
            queue.gave_up(batch)
            self._resolve(batch, self._failed(answer))
            verdict = Verdict.FAILED
        elif verdict is Verdict.SPLIT:
            self._split(batch, queue)
        else:
            self._retry(batch, queue, verdict, now=now)
        self._settle(queue)
        return verdict

    def _retry(
        self, batch: ProducerBatch, queue: PartitionQueue, verdict: Verdict, *, now: float
    ) -> None:
        queue.put_back(batch, not_before=now + self.backoff(batch.attempts))
        batch.out_of_order = verdict is Verdict.ASK_BEHIND
        if verdict is Verdict.BUMP_AND_RETRY:
            self._bump_epoch(queue)
        elif verdict is Verdict.RESTART_AND_RETRY:
            queue.start_sequences_at_beginning(self.identity)

    def _split(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        halves = tuple(batch.halves())
        queue.put_parts(batch, [half for _, half in halves])
        self._by_age.extendleft(half for _, half in halves)
        batch.resolve(InParts(halves))  # its halves have taken over its room

    def _may_retry(self, batch: ProducerBatch, *, now: float) -> bool:
        in_time = batch.outcome is None and now < batch.created_at + self.delivery_timeout
        return in_time and batch.attempts <= self.retries

    def _failed(self, answer: BatchAnswer) -> Failed:
        error: KafkaError = KafkaError(answer.error, answer.message)
        if answer.error is ErrorCode.TRANSACTION_ABORTABLE:
            error = TransactionAbortedError(answer.message)
        of_records: dict[int, Exception] = {
            index: KafkaError(
                answer.error if len(answer.record_errors) == 1 else ErrorCode.INVALID_RECORD,
                message or answer.message,
            )
            for index, message in answer.record_errors.items()
        }
        return Failed(error, of_records)

    def _resolve(self, batch: ProducerBatch, outcome: Outcome) -> None:
        """Set the outcome of a batch, unless it has timed out."""
        if batch.outcome is None:
            self.used -= batch.size - HEADER_SIZE
            batch.resolve(outcome)

    # Time.

    @property
    def next_timeout(self) -> float:
        """The moment at which the oldest batch times out."""
        while self._by_age and self._by_age[0].outcome is not None:
            self._by_age.popleft()
        return self._by_age[0].created_at + self.delivery_timeout if self._by_age else NEVER

    def expire(self, *, now: float) -> list[ProducerBatch]:
        """Fail the batches whose time is up; return them."""
        expired = []
        while self.next_timeout <= now:
            batch = self._by_age.popleft()
            queue = self._queues[batch.partition]
            if batch in queue.waiting:
                queue.gave_up(batch)
                self._settle(queue)
            self._resolve(batch, Failed(_out_of_time(batch, self.delivery_timeout)))
            expired.append(batch)
        return expired

    def give_up(self, error: Exception) -> None:
        """Fail all batches without an outcome, and send nothing more."""
        for batch in self.unfinished():
            self._resolve(batch, Failed(error))
        for queue in self._queues.values():
            queue.waiting.clear()
        self._turns.clear()

    def give_up_unsent(self, error: Exception) -> None:
        """Fail the batches that were never sent; those on their way are not sent again."""
        for queue in self._queues.values():
            for batch in list(queue.waiting):
                queue.gave_up(batch)
                self._resolve(batch, Failed(error))
                self.needs_new_epoch |= batch.has_sequence
            self._settle(queue)

    # Producer ids and epochs.

    def became(self, identity: ProducerIdAndEpoch) -> None:
        """Take the id and epoch that a broker has given the producer."""
        self.identity, self.needs_new_epoch = identity, False
        for partition, queue in self._queues.items():
            if partition in self._to_restart or not queue.sent:
                queue.start_sequences_at_beginning(identity)
        self._to_restart.clear()

    def _bump_epoch(self, queue: PartitionQueue) -> None:
        """Begin a partition's sequences anew; others follow when none of theirs is on its way."""
        if self.transactional:
            self.needs_new_epoch = True
            return
        producer_id, epoch = self.identity
        if self.identity == NOBODY or epoch == MAX_PRODUCER_EPOCH:
            self.identity = NOBODY  # another id is asked for
            self._to_restart.add(queue.partition)
            return
        self.identity = ProducerIdAndEpoch(producer_id, epoch + 1)
        queue.start_sequences_at_beginning(self.identity)

    def _settle(self, queue: PartitionQueue) -> None:
        if queue.must_begin_anew():
            self._bump_epoch(queue)
        if queue.waiting:
            self._turns.setdefault(queue.partition, queue)
        else:
            self._turns.pop(queue.partition, None)

    def _new_queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues[partition] = PartitionQueue(partition)
        return queue


def _out_of_time(batch: ProducerBatch, seconds: float) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{batch.count} records for {batch.partition} were not delivered within {seconds:g} s",
    )
