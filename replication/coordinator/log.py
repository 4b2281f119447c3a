"""Records into one partition of a coordinator's topic: in order, with acks=all, by the batch.

    submit ─┐
    submit ─┤ queue ──> one batch ──> appended, replicated ──> each submission has its outcome
    submit ─┘            └ meanwhile the next batch gathers

Rule 1: what was submitted first stands first in the log. One batch is out at a time, and
what gathers behind it goes together: a slow follower costs a round trip, not one for each
commit. What one submission holds is in one batch, and so there as a whole or not at all.

Rule 2: a writer belongs to one leader epoch. Where the replica has another one by now nothing
is written: another broker may have written since we read the log.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from replication.coordinator.rules.records import KeyAndValue
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import NodeClock
from replication.replica_manager import ProduceResult, ReplicaManager
from replication.replica_manager.produce import ACKS_ALL
from storage.batch.compression import Codec
from storage.batch.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from storage.batch.records import Record, encode_batch
from storage.producers.verification import VerificationGuard
from storage.types import NO_OFFSET, LeaderEpoch, Offset, TopicPartition

GATHER_BYTES: Final = 256 << 10
LONGEST_NAME: Final = 2**15 - 64  # what a record holds, and room for what a member id ends in


@attrs.define(eq=False)
class Submission:
    """Records on their way, and what came of them."""

    records: Sequence[KeyAndValue]
    producer: tuple[int, int] | None = None
    """The producer id and epoch of the transaction that they belong to, if any."""
    guard: VerificationGuard | None = None
    """The guard of a submission that opens the transaction (KIP-890)."""
    error: ErrorCode = ErrorCode.NONE
    log_offset: Offset = NO_OFFSET
    """Where their batch begins. Beside an error it says that they may be in the log after all."""
    _done: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def size(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self.records)

    async def wait(self) -> None:
        await self._done.wait()

    def finish(self, error: ErrorCode, log_offset: Offset) -> None:
        self.error, self.log_offset = error, log_offset
        self._done.set()


@attrs.define(eq=False, kw_only=True)
class LogWriter:
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    replica_manager: ReplicaManager
    clock: NodeClock
    timeout_ms: int
    codec: Codec
    _queue: deque[Submission] = attrs.field(factory=deque, init=False)
    _submitted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def submit(
        self,
        records: Sequence[KeyAndValue],
        *,
        producer: tuple[int, int] | None = None,
        guard: VerificationGuard | None = None,
    ) -> Submission:
        assert records, "nothing to write is nobody's to write"
        submission = Submission(records, producer, guard)
        if self._closed:
            submission.finish(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        else:
            self._queue.append(submission)
            self._submitted.set()
        return submission

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
                finally:  # whatever happens here, nobody is left waiting
                    for one in batch:
                        one.finish(result.error, result.base_offset)

    def _gather(self) -> list[Submission]:
        """Return the next submissions, which go into one batch.

        A large one is alone, so that it alone is too large. One of a transaction is alone,
        because its batch has its producer's id.
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
        # No checkpoint lies between this look at the epoch and the append.
        if (error := self._fence()) is not ErrorCode.NONE:
            await trio.lowlevel.checkpoint()
            return ProduceResult(error=error)
        now = self.clock.wall_ms()
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = encode_batch(
            (Record(timestamp=now, key=each.key, value=each.value) for each in records),
            codec=self.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=NO_SEQUENCE
            if producer is None
            else 0,  # nobody compares it (CoordinatorRuntime)
            transactional=producer is not None,
        )
        results = await self.replica_manager.produce.append(
            timeout_ms=self.timeout_ms,
            required_acks=ACKS_ALL,
            entries={self.partition: memoryview(bytearray(batch))},
            internal_topics_allowed=True,
            from_client=False,
            guards={} if guard is None else {self.partition: guard},
        )
        return results[self.partition]

    def _fence(self) -> ErrorCode:
        try:
            replica = self.replica_manager.hosted.get(self.partition)
            replica.check_access(self.leader_epoch, leader_only=True)
        except KafkaError as error:
            known = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return error.code if error.code in known else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE


def is_too_long(*names: str | None) -> bool:
    """Return whether a record cannot hold one of `names`: requests may carry longer ones."""
    return any(len((name or "").encode()) > LONGEST_NAME for name in names)
