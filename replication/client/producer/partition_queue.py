"""The batches of one partition, waiting and sent, and their sequences.

    append ─> [ waiting ........ ] ─take─> sent ─┬─ acked ──> gone, the next is expected
                ^ ^                              ├─ put back: first in line again
                | └── filling: the last one      └─ given up ─> its sequences are lost
                └──── sent again: before all that was never sent

Rule 1: batches are sent in the order of their sequences, and one at a time after a failure. A
batch is sent again only as the first of all that have no answer yet, but for those that rule 4 asks for.

Rule 2: the next batch gets the sequence after the last one. After a batch was given up whose
records may or may not be written, nothing new is sent before all others have been answered: then
either the last acked sequence is the one before the next (it was written), or there is a gap, and
sequences begin anew at 0 under the next producer epoch. A refused batch is a gap at once; but the
batches sent before it are answered first, since what may be written already must not be sent
under another identity. (Kafka's client does not wait, and may write such a batch twice.)

Rule 3: after a change of producer id or epoch, all batches sent under the old one are waited for
first.

Rule 4: a broker's answer leads to a verdict on a batch:

    it is written               NONE, DUPLICATE_SEQUENCE_NUMBER           ACKED
    it is too large             MESSAGE_TOO_LARGE, of several records     SPLIT
    send it again               any retriable error                       RETRY
    its producer is unknown     UNKNOWN_PRODUCER_ID                       see below
    one before it is missing    OUT_OF_ORDER_SEQUENCE_NUMBER              see below
    it is refused               all other errors                          FAILED

A missing batch is on its way or waits to be sent again: then this one is sent again as well,
behind it. If all before it have been acked, the broker has lost records, or never had a batch that
was given up: an idempotent producer goes on under its next epoch, from sequence 0, and a
transactional one cannot (its transaction is aborted). Or it has forgotten that it has this batch:
it remembers five of a producer, and after a restart the last one. So what has been sent behind it is
sent again first, as it is, one at a time: if one of these is written, so are all before it. (Kafka's
client does not ask, and may write them all twice.)

Rule 5: the second batch waits until the first one has been acked. A broker that knows nothing of an
idempotent producer takes any sequence for its first: it would write the second batch before the
first, if that was refused or went to the leader before. (Kafka's client does not wait: KAFKA-15591,
KAFKA-14312.) A transaction needs no such wait: a batch that is out of order aborts it.

(Kafka: TxnPartitionEntry, TransactionManager, RecordAccumulator.shouldStopDrainBatches,
Sender.completeBatch.)
"""

import enum
from collections import deque
from typing import Final

import attrs

from replication.client.producer.batch import NOBODY, ProducerBatch, ProducerIdAndEpoch, Stamp
from replication.errors import ErrorCode
from storage.attributes import define
from storage.batch.record_batch import MAX_SEQUENCE, next_sequence
from storage.types import NO_OFFSET, Offset, TopicPartition

NO_LAST_SEQUENCE: Final = -1


def sequence_before(one: int, other: int) -> bool:
    """Return whether `one` came before `other`; sequences begin at 0 again after the largest."""
    return 0 < ((other - one) & MAX_SEQUENCE) <= MAX_SEQUENCE // 2


@define(eq=False)
class PartitionQueue:
    """The waiting and the sent batches of one partition."""

    partition: TopicPartition
    waiting: deque[ProducerBatch] = attrs.field(factory=deque, init=False)
    sent: list[ProducerBatch] = attrs.field(factory=list, init=False)
    """Batches without an outcome that were sent, by sequence; some of them wait again."""
    in_flight: int = attrs.field(default=0, init=False)
    """The number of sent batches that are on their way now."""
    identity: ProducerIdAndEpoch = attrs.field(default=NOBODY, init=False)
    next_sequence: int = attrs.field(default=0, init=False)
    last_acked_sequence: int = attrs.field(default=NO_LAST_SEQUENCE, init=False)
    last_acked_offset: Offset = attrs.field(default=NO_OFFSET, init=False)
    unresolved: int | None = attrs.field(default=None, init=False)
    """The sequence after the last batch that was given up without an answer."""
    gap: int | None = attrs.field(default=None, init=False)
    """The sequence of the first batch that was refused for good."""

    # Sending.

    def next_batch(
        self, identity: ProducerIdAndEpoch | None, *, one_at_a_time: bool
    ) -> ProducerBatch | None:
        """Return the batch that may be sent next, whether or not its time has come.

        `identity`: the present one of the producer; None if it is not idempotent.
        `one_at_a_time`: whether a broker could write batches in another order than ours.
        """
        if not self.waiting or (one_at_a_time and self.in_flight):
            return None
        batch = self.waiting[0]
        if identity is None:
            return batch
        if identity == NOBODY:
            return None
        if batch.has_sequence:
            first = next((each for each in self.sent if not each.out_of_order), self.sent[-1])
            return first if first in self.waiting else None
        if self.unresolved is not None or self.gap is not None:
            return None
        if self.sent and (self.identity != identity or self._may_be_unknown(batch)):
            return None
        return batch

    def _may_be_unknown(self, batch: ProducerBatch) -> bool:
        """Return whether a broker may take `batch` for the producer's first one (Rule 5)."""
        return self.last_acked_sequence == NO_LAST_SEQUENCE and not batch.transactional

    def take(self, batch: ProducerBatch, identity: ProducerIdAndEpoch | None) -> None:
        """Send the batch that `next_batch` has just returned."""
        self.waiting.remove(batch)
        batch.is_closed = True
        batch.attempts += 1
        self.in_flight += 1
        if identity is not None and not batch.has_sequence:
            if self.identity != identity:
                assert not self.sent, "nothing of the old one is on its way"
                self.start_sequences_at_beginning(identity)
            batch.stamp(identity, self.next_sequence, transactional=batch.transactional)
            self.next_sequence = next_sequence(self.next_sequence, batch.count)
        if batch not in self.sent:
            self.sent.append(batch)

    # Outcomes. `batch` is no longer on its way after each of these.

    def acked(self, batch: ProducerBatch, sent_as: Stamp, *, base_offset: Offset) -> bool:
        """Remove a batch that is written; return whether the sequences of the others are right.

        They are wrong if it had got a new sequence meanwhile, and was written under the old one.
        """
        self._answered()
        self.sent.remove(batch)
        if base_offset != NO_OFFSET:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.count - 1)
        if not batch.has_sequence:
            return True
        if sent_as != batch.stamped:
            return False
        last = self.last_acked_sequence
        if last == NO_LAST_SEQUENCE or sequence_before(last, batch.last_sequence):
            self.last_acked_sequence = batch.last_sequence
        return True

    def written_with(self, batch: ProducerBatch, sent_as: Stamp) -> list[ProducerBatch]:
        """Remove the batches that must be written because `batch` behind them is; return them."""
        if sent_as != batch.stamped:
            return []
        before = self.sent[: self.sent.index(batch)]
        written = [each for each in before if each.out_of_order and each in self.waiting]
        for each in written:
            self._remove(each)
        return written

    def put_back(self, batch: ProducerBatch, *, not_before: float) -> None:
        """Put a batch back to be sent again, before all that follow it."""
        self._answered()
        batch.not_before = not_before
        self._insert(batch)

    def put_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put parts in the place of a batch that was too large."""
        self._answered()
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts if batch.has_sequence else []
        for part in parts:
            self._insert(part)

    def gave_up(self, batch: ProducerBatch) -> None:
        """Remove a batch that is not sent again, and that may or may not be written."""
        self._remove(batch)
        if batch.has_sequence:
            after = next_sequence(batch.last_sequence)
            if self.unresolved is None or sequence_before(self.unresolved, after):
                self.unresolved = after

    def refused(self, batch: ProducerBatch) -> None:
        """Remove a batch that a broker has refused for good."""
        self._remove(batch)
        first, gap = batch.base_sequence, self.gap
        if batch.transactional:
            self._close_gap(batch)
        elif batch.has_sequence and (gap is None or sequence_before(first, gap)):
            self.gap = first

    def must_begin_anew(self) -> bool:
        """Return whether there is a gap in the sequences, and all before it are answered."""
        if self.gap is not None:
            return not self.sent or sequence_before(self.gap, self.sent[0].base_sequence)
        if self.unresolved is None or self.sent:
            return False
        self.unresolved = None
        return not self.is_next_sequence(self.next_sequence)

    # Sequences.

    def is_next_sequence(self, sequence: int) -> bool:
        """Return whether all sequences before this one have been acked."""
        if self.last_acked_sequence == NO_LAST_SEQUENCE:
            return sequence == 0
        return sequence == next_sequence(self.last_acked_sequence)

    def next_in_doubt(self, batch: ProducerBatch) -> ProducerBatch:
        """Return the first of the batches that `batch` is asked for, or `batch` itself."""
        before = self.sent[: self.sent.index(batch)]
        return before[0] if before and all(each.out_of_order for each in before) else batch

    def start_sequences_at_beginning(self, identity: ProducerIdAndEpoch) -> None:
        """Give all unanswered batches new sequences, from 0 on, under `identity`."""
        sequence = 0
        for batch in self.sent:
            batch.restamp(identity, sequence)
            sequence = next_sequence(sequence, batch.count)
        self.identity, self.next_sequence = identity, sequence
        self.last_acked_sequence, self.unresolved, self.gap = NO_LAST_SEQUENCE, None, None

    def _close_gap(self, failed: ProducerBatch) -> None:
        """Move the later sequences up; only inside a transaction, whose epoch cannot change."""
        for batch in self.sent:
            if sequence_before(failed.base_sequence, batch.base_sequence):
                sequence = (batch.base_sequence - failed.count) & MAX_SEQUENCE
                batch.restamp(batch.identity, sequence)
        self.next_sequence = (self.next_sequence - failed.count) & MAX_SEQUENCE

    def _remove(self, batch: ProducerBatch) -> None:
        if batch in self.waiting:
            self.waiting.remove(batch)
        else:
            self._answered()
        if batch in self.sent:
            self.sent.remove(batch)

    def _answered(self) -> None:
        assert self.in_flight > 0, "only what is on its way can be answered"
        self.in_flight -= 1

    def _insert(self, batch: ProducerBatch) -> None:
        """Insert a batch before the first that has to follow it."""
        at = 0
        for other in self.waiting:
            if not other.attempts or _goes_before(batch, other):
                break
            at += 1
        self.waiting.insert(at, batch)


def _goes_before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    if batch.has_sequence and other.has_sequence:
        return sequence_before(batch.base_sequence, other.base_sequence)
    return batch.created_at < other.created_at


class Verdict(enum.Enum):
    """The verdicts of the table above."""

    ACKED = "acked"
    SPLIT = "split"
    RETRY = "retry"
    ASK_BEHIND = "ask behind"
    """Send again first what was sent behind it: that tells whether it is written."""
    BUMP_AND_RETRY = "bump and retry"
    """Begin sequences anew under the next epoch, then send it again."""
    RESTART_AND_RETRY = "restart and retry"
    """Begin sequences anew under the same epoch, then send it again."""
    FAILED = "failed"


def judge(
    error: ErrorCode,
    batch: ProducerBatch,
    queue: PartitionQueue,
    *,
    log_start_offset: Offset = NO_OFFSET,
) -> Verdict:
    """Return the verdict on `batch`, whether or not there is time left to send it again."""
    match error:
        case ErrorCode.NONE | ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return Verdict.ACKED
        case ErrorCode.MESSAGE_TOO_LARGE if batch.count > 1:
            return Verdict.SPLIT
        case ErrorCode.UNKNOWN_PRODUCER_ID if batch.has_sequence:
            return _of_unknown_producer(batch, queue, log_start_offset)
        case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.has_sequence:
            return _of_out_of_order(batch, queue)
        case _:
            return Verdict.RETRY if error.retriable else Verdict.FAILED


def _of_unknown_producer(
    batch: ProducerBatch, queue: PartitionQueue, log_start_offset: Offset
) -> Verdict:
    if log_start_offset == NO_OFFSET or batch.sequence_was_reset:
        return Verdict.RETRY
    if not batch.transactional:
        return Verdict.BUMP_AND_RETRY
    # All of its records have been deleted, and the state of the producer with them.
    if queue.last_acked_offset < log_start_offset:
        return Verdict.RESTART_AND_RETRY
    return Verdict.FAILED


def _of_out_of_order(batch: ProducerBatch, queue: PartitionQueue) -> Verdict:
    settled = queue.unresolved is None
    first = queue.next_in_doubt(batch)
    if settled and (first.sequence_was_reset or not queue.is_next_sequence(first.base_sequence)):
        return Verdict.RETRY
    if batch.transactional:
        return Verdict.FAILED
    if settled or first.base_sequence == queue.unresolved:
        may_be_written = batch.attempts > 1 and batch is not queue.sent[-1]
        return Verdict.ASK_BEHIND if may_be_written else Verdict.BUMP_AND_RETRY
    return Verdict.RETRY
