"""The batches of one partition: which wait, which were sent, and under which sequences.

    append ─> [ waiting ........ ] ─take─> sent ─┬─ acked ──> gone, the next is expected
                ^ ^                              ├─ put back: first in line again
                | └── filling: the last one      └─ given up ─> what its sequences were is lost
                └──── tried again: before all that was never sent

Rule 1: in the order of sequences, and one at a time once something goes wrong. What is tried
again goes out only as the first of all that have no answer yet.

Rule 2: the next batch gets the sequence after the last one. Where a batch was given up whose
records may or may not be there, nothing new is sent before all others have been answered:
then either the last acked sequence is the one before the next (it was there), or there is a
gap, and sequences begin anew at 0 under the next producer epoch. Where one was refused there
is a gap at once; but what was sent before it is answered for first, since what may be there
already must not be sent as another one. (Kafka's client does not wait, and may write such a
batch twice.)

Rule 3: after a change of producer id or epoch, all that was sent under the old one is waited
for first.

(Kafka: TxnPartitionEntry, TransactionManager, RecordAccumulator.shouldStopDrainBatches.)
"""

from collections import deque
from typing import Final

import attrs

from replication.client.producer.batch import NOBODY, ProducerBatch, ProducerIdentity, Stamp
from storage.batch.record_batch import MAX_SEQUENCE, next_sequence
from storage.types import NO_OFFSET, Offset, TopicPartition

NO_LAST_SEQUENCE: Final = -1


def sequence_before(one: int, other: int) -> bool:
    """Whether `one` was handed out before `other`, which may have begun at 0 again since."""
    return 0 < ((other - one) & MAX_SEQUENCE) <= MAX_SEQUENCE // 2


@attrs.define(eq=False)
class PartitionQueue:
    partition: TopicPartition
    waiting: deque[ProducerBatch] = attrs.field(factory=deque, init=False)
    sent: list[ProducerBatch] = attrs.field(factory=list, init=False)
    """Those without an outcome that were sent at least once, in order of their sequences; some
    of them are waiting again."""
    in_flight: int = attrs.field(default=0, init=False)
    """How many of `sent` are on their way right now."""
    identity: ProducerIdentity = attrs.field(default=NOBODY, init=False)
    next_sequence: int = attrs.field(default=0, init=False)
    last_acked_sequence: int = attrs.field(default=NO_LAST_SEQUENCE, init=False)
    last_acked_offset: Offset = attrs.field(default=NO_OFFSET, init=False)
    unresolved: int | None = attrs.field(default=None, init=False)
    """The sequence after the last batch that was given up unanswered."""
    gap: int | None = attrs.field(default=None, init=False)
    """The sequence of the first batch that was refused for good, and that nothing fills."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.sent

    # Sending.

    def next_batch(
        self, identity: ProducerIdentity | None, *, one_at_a_time: bool
    ) -> ProducerBatch | None:
        """What may be sent next, if anything may, whether or not it is time for it.

        `identity`: of the producer by now; None where it has none and asks for none.
        `one_at_a_time`: where nothing tells the broker what order batches were in.
        """
        if not self.waiting or (one_at_a_time and self.in_flight):
            return None
        batch = self.waiting[0]
        if identity is None:
            return batch
        if identity == NOBODY:
            return None
        if batch.has_sequence:
            return batch if batch is self.sent[0] else None
        if self.unresolved is not None or self.gap is not None:
            return None
        if self.sent and self.identity != identity:
            return None
        return batch

    def take(self, batch: ProducerBatch, identity: ProducerIdentity | None) -> None:
        """It is being sent; `next_batch` has just named it."""
        assert self.waiting[0] is batch, "in order"
        self.waiting.popleft()
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

    # What came of it. `batch` is no longer on its way, whatever it was.

    def acked(self, batch: ProducerBatch, sent_as: Stamp, *, base_offset: Offset) -> bool:
        """Whether the sequences that others have got meanwhile are right. They are not where it
        had got another one too, and is there under the one that it was sent as.
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

    def put_back(self, batch: ProducerBatch, *, not_before: float) -> None:
        """To be tried again: before all that comes after it."""
        self._answered()
        batch.not_before = not_before
        self._insert(batch)

    def put_parts(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """In the place of one that was too large."""
        self._answered()
        at = self.sent.index(batch)
        self.sent[at : at + 1] = parts if batch.has_sequence else []
        for part in parts:
            self._insert(part)

    def gave_up(self, batch: ProducerBatch) -> None:
        """Whether it is there nobody knows, and it is not asked for again."""
        self._remove(batch)
        if batch.has_sequence:
            after = next_sequence(batch.last_sequence)
            if self.unresolved is None or sequence_before(self.unresolved, after):
                self.unresolved = after

    def refused(self, batch: ProducerBatch) -> None:
        """A broker has said that it is not there, and never will be."""
        self._remove(batch)
        first, gap = batch.base_sequence, self.gap
        if batch.transactional:
            self._close_gap(batch)
        elif batch.has_sequence and (gap is None or sequence_before(first, gap)):
            self.gap = first

    def must_begin_anew(self) -> bool:
        """Whether sequences have to: there is a gap, and all before it have been answered."""
        if self.gap is not None:
            return not self.sent or sequence_before(self.gap, self.sent[0].base_sequence)
        if self.unresolved is None or self.sent:
            return False
        self.unresolved = None
        return not self.is_next_sequence(self.next_sequence)

    # Sequences.

    def is_next_sequence(self, sequence: int) -> bool:
        """Whether the broker waits for it: all before have been acked."""
        if self.last_acked_sequence == NO_LAST_SEQUENCE:
            return sequence == 0
        return sequence == next_sequence(self.last_acked_sequence)

    def start_sequences_at_beginning(self, identity: ProducerIdentity) -> None:
        """Everything unanswered is to be sent anew, from sequence 0 on, as of `identity`."""
        sequence = 0
        for batch in self.sent:
            batch.restamp(identity, sequence)
            sequence = next_sequence(sequence, batch.count)
        self.identity, self.next_sequence = identity, sequence
        self.last_acked_sequence, self.unresolved, self.gap = NO_LAST_SEQUENCE, None, None

    def _close_gap(self, failed: ProducerBatch) -> None:
        """Those behind it move up: only inside a transaction, whose epoch cannot change."""
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
        """Before the first that is to go after it."""
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
