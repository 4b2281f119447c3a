"""One partition of a coordinator's topic: read to its end, then written in order, with acks=all.

    submit ─┐
    submit ─┤ queue ──> one batch ──> appended, replicated ──> each submission has its outcome
    submit ─┘            └ meanwhile the next batch gathers

Rule 1: no record is appended while the log is read: clients may not, and this is the coordinator.
So the log holds all there is, and since this broker leads, all of it is or will be committed.

Rule 2: the submission that came first stands first in the log. One batch is under way at a time,
and the submissions that gather behind it go together: a slow follower costs one round trip, not
one for each commit. The records of one submission are in one batch, so all of them are written
or none.

Rule 3: the log belongs to one leader epoch. Nothing is read or written once the replica has
another one: another broker may have written meanwhile.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode, KafkaError
from replication.net.pace import in_steps
from replication.net.seams import NodeClock, Offload
from replication.replica_manager import ProduceResult, ReplicaManager
from replication.steps import Steps
from replication.wire.produce import ACKS_ALL
from storage.attributes import define
from storage.batch.compression import Codec
from storage.batch.record_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    walk,
)
from storage.batch.records import Record, encode_batch
from storage.log.file_region import FileRegion
from storage.producers.verification import VerificationGuard
from storage.types import NO_OFFSET, LeaderEpoch, Offset, TopicPartition

GATHER_BYTES: Final = 256 << 10
LONG_RECORDS: Final = 512
"""A batch of more records, or of more than `GATHER_BYTES`, is encoded away from the loop."""
LONGEST_NAME: Final = 2**15 - 64  # the most that a record holds, less the end of a member id

Batch = TypeVar("Batch")
BatchReader = Callable[[BatchHeader, memoryview], Batch]


@define(eq=False)
class Submission:
    """Records on their way into the log, and the outcome."""

    records: Sequence[KeyAndValue]
    producer: tuple[int, int] | None = None
    """The producer id and epoch of their transaction, if they have one."""
    guard: VerificationGuard | None = None
    """The guard of a submission that opens the transaction (KIP-890)."""
    error: ErrorCode = ErrorCode.NONE
    log_offset: Offset = NO_OFFSET
    """The base offset of their batch. With an error, it says that they may be in the log after all."""
    _done: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def size(self) -> int:
        return sum(map(_size, self.records))

    @property
    def is_in_log(self) -> bool:
        """Whether the log has the records, even if they were not replicated in time."""
        return self.error is ErrorCode.NONE or self.log_offset != NO_OFFSET

    async def wait(self) -> None:
        await self._done.wait()

    def finish(self, error: ErrorCode, log_offset: Offset) -> None:
        self.error, self.log_offset = error, log_offset
        self._done.set()


@define(eq=False, kw_only=True)
class CoordinatorLog:
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    replica_manager: ReplicaManager
    clock: NodeClock
    timeout_ms: int
    codec: Codec
    _queue: deque[Submission] = attrs.field(factory=deque, init=False)
    _submitted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    async def read(
        self,
        read_batch: BatchReader[Batch],
        add: Callable[[Batch], None],
        *,
        chunk_bytes: int,
        offload: Offload,
    ) -> None:
        """Call `add` with the result of `read_batch` for each batch that the log has now, in order.

        `read_batch` is called in a worker thread, for `chunk_bytes` of the log at a time. Raise
        KafkaError, StorageError or ProtocolError where the log cannot be read.
        """
        replica = self.replica_manager.hosted.get(self.partition)
        log = replica.log
        position, end = log.log_start_offset, log.log_end_offset
        while position < end:
            replica.check_access(self.leader_epoch, leader_only=True)
            data = log.read(position, chunk_bytes, max_offset_exclusive=end, min_one=True)
            if data.records is None:
                break  # compacted to the end
            batches = await offload(partial(_read_region, data.records, read_batch))
            if not batches:
                break
            await in_steps(_add_each(batches, add))
            position = batches[-1][0]

    def submit(
        self,
        records: Sequence[KeyAndValue],
        *,
        producer: tuple[int, int] | None = None,
        guard: VerificationGuard | None = None,
    ) -> Submission:
        assert records, "a submission has records"
        submission = Submission(records, producer, guard)
        if self._closed:
            submission.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        else:
            self._queue.append(submission)
            self._submitted.set()
        return submission

    @property
    def is_closed(self) -> bool:
        """Whether nothing is written any more: another broker may."""
        return self._closed

    def close(self) -> None:
        """Refuse what has not been written yet, and everything from now on."""
        self._closed = True
        while self._queue:
            self._queue.popleft().finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        self._submitted.set()

    async def run(self) -> None:
        """Write what is submitted, until closed."""
        while not self._closed:
            await self._submitted.wait()
            self._submitted = trio.Event()
            while self._queue:
                batch = self._gather()
                records = [each for one in batch for each in one.records]
                result = ProduceResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)
                try:
                    result = await self._append(records, batch[0].producer, batch[0].guard)
                finally:  # every submission has an outcome, also where this fails
                    for one in batch:
                        one.finish(result.error, result.base_offset)

    def _gather(self) -> list[Submission]:
        """Return the next submissions, which go into one batch.

        A large submission is alone, so that only itself can be too large. A submission of a
        transaction is alone, because its batch has the id of its producer.
        """
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and batch[0].producer == self._queue[0].producer is None:
            size += self._queue[0].size
            if size > GATHER_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _append(
        self,
        records: Sequence[KeyAndValue],
        producer: tuple[int, int] | None,
        guard: VerificationGuard | None,
    ) -> ProduceResult:
        encode = partial(self._encoded, records, producer, self.clock.wall_ms())
        is_long = len(records) > LONG_RECORDS or sum(map(_size, records)) > GATHER_BYTES
        batch = await self.replica_manager.offload(encode) if is_long else encode()
        # No checkpoint lies between this look at the epoch and the append.
        if (error := self._fence()) is not ErrorCode.NONE:
            await trio.lowlevel.checkpoint()
            return ProduceResult(error=error)
        results = await self.replica_manager.produce.append(
            timeout_ms=self.timeout_ms,
            required_acks=ACKS_ALL,
            entries={self.partition: batch},
            internal_topics_allowed=True,
            from_client=False,
            guards={} if guard is None else {self.partition: guard},
        )
        return results[self.partition]

    def _encoded(
        self, records: Sequence[KeyAndValue], producer: tuple[int, int] | None, now_ms: int
    ) -> memoryview:
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = encode_batch(
            (Record(timestamp=now_ms, key=each.key, value=each.value) for each in records),
            codec=self.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            # No leader compares the sequence of a transaction's batch (CoordinatorRuntime).
            base_sequence=NO_SEQUENCE if producer is None else 0,
            transactional=producer is not None,
        )
        return memoryview(bytearray(batch))

    def _fence(self) -> ErrorCode:
        try:
            replica = self.replica_manager.hosted.get(self.partition)
            replica.check_access(self.leader_epoch, leader_only=True)
        except KafkaError as error:
            known = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return error.code if error.code in known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE


def _add_each(
    batches: Sequence[tuple[Offset, int, Batch]], add: Callable[[Batch], None]
) -> Steps[None]:
    for _, records, batch in batches:
        add(batch)
        yield max(1, records)


def _read_region(
    region: FileRegion, read_batch: BatchReader[Batch]
) -> list[tuple[Offset, int, Batch]]:
    """Return what the batches of `region` hold, each after its next offset and number of records."""
    try:
        records = memoryview(region.read())
    finally:
        region.release()
    return [
        (
            header.next_offset,
            header.record_count,
            read_batch(header, records[position : position + header.size]),
        )
        for position, header in walk(records)
    ]


def _size(record: KeyAndValue) -> int:
    return len(record.key) + len(record.value or b"")


def is_too_long(*names: str | None) -> bool:
    """Return whether a record cannot hold one of `names`; requests may contain longer names."""
    return any(len((name or "").encode()) > LONGEST_NAME for name in names)
