"""The state of one transactional id: its producer, and its transaction (KIP-98).

              InitProducerId            AddPartitions            EndTxn
    (nothing) ──────────────> EMPTY ───────────────> ONGOING ─┬─> PREPARE_COMMIT ─> COMPLETE_COMMIT
                                ^                       ^     └─> PREPARE_ABORT ──> COMPLETE_ABORT
                                │                       │                                │
                                └── InitProducerId ─────┴──────── AddPartitions ─────────┘

Rule 1: a prepared transaction is completed. From the moment PREPARE_COMMIT or PREPARE_ABORT is in
the log every partition gets its marker, however often the coordinator changes in between.

Rule 2: InitProducerId gives the next epoch, and with it fences the producer of the last one. An
ongoing transaction is aborted first, under an epoch that no producer receives: so neither the old
producer nor the new one can write meanwhile.

Rule 3: producers receive no epoch after 32,766, but a new producer id, with epoch 0. The last epoch
is left for aborting an ongoing transaction.

Rule 4: under version 2 (KIP-890) each end of a transaction gives the next epoch, so that no late
record of one transaction can become part of the next. The markers bear that epoch. The producer
may also abort a transaction without partitions: it cannot know whether its requests have arrived.

A `Transaction` is a value, and its transitions return others; the log contains one of them.
(TransactionMetadata, TxnTransitMetadata in Kafka.)
"""

import enum
from typing import Final, NamedTuple

import attrs

from storage.attributes import frozen
from storage.batch.record_batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.types import TopicPartition

NO_TIME: Final = -1


class TransactionState(enum.IntEnum):
    """The states, with their numbers in the log; PREPARE_EPOCH_FENCE is never in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name of the state in Kafka's tools."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is ongoing or prepared."""
        return self in _AT_REST


_AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


class ProducerIdentity(NamedTuple):
    """The id and the epoch of a producer (Kafka: ProducerIdAndEpoch)."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@frozen(kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the transaction is complete, where epochs have run out (KIP-890)."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before, if its producer may repeat the request that changed it."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    bumps_epoch: bool = False
    """Whether each end gives the next epoch, as in transactions of version 2 (KIP-890)."""

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_last_epoch(self) -> bool:
        """Whether the epoch is the last one, which only fences the producer before."""
        return self.producer_epoch >= MAX_PRODUCER_EPOCH

    @property
    def commits(self) -> bool:
        assert self.state.is_prepared, "only a prepared transaction has an outcome"
        return self.state is TransactionState.PREPARE_COMMIT

    # Transitions.

    def with_next_epoch(
        self, producer_epoch: int, *, last: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        assert self.state.is_at_rest, "an ongoing transaction is ended first"
        assert 0 <= producer_epoch <= MAX_PRODUCER_EPOCH, "epochs are exhausted before"
        return attrs.evolve(
            self,
            producer_epoch=producer_epoch,
            last_producer_epoch=last,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NO_TIME,
            updated_ms=now_ms,
        )

    def with_next_producer_id(
        self, producer_id: int, *, remembers_epoch: bool, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        last = self.producer_epoch if remembers_epoch else NO_PRODUCER_EPOCH
        rested = self.with_next_epoch(0, last=last, timeout_ms=timeout_ms, now_ms=now_ms)
        return attrs.evolve(rested, producer_id=producer_id)

    def with_partitions(
        self, added: frozenset[TopicPartition], *, bumps_epoch: bool, now_ms: int
    ) -> "Transaction":
        assert not self.state.is_prepared, "a prepared transaction gets no more partitions"
        return attrs.evolve(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | added,
            started_ms=now_ms if self.state.is_at_rest else self.started_ms,
            updated_ms=now_ms,
            bumps_epoch=bumps_epoch,
        )

    def prepared(
        self, *, commit: bool, bumps_epoch: bool, next_producer_id: int, now_ms: int
    ) -> "Transaction":
        is_empty = bumps_epoch and not commit and self.state.is_at_rest
        assert is_empty or self.state is TransactionState.ONGOING, "an ongoing transaction ends"
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        ending = attrs.evolve(
            self,
            state=state,
            started_ms=now_ms if is_empty else self.started_ms,
            updated_ms=now_ms,
            bumps_epoch=bumps_epoch,
        )
        if not bumps_epoch:
            return ending
        assert self.producer_epoch < MAX_PRODUCER_EPOCH, "no producer receives the last epoch"
        return attrs.evolve(
            ending,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
        )

    def completed(self, *, now_ms: int) -> "Transaction":
        state = (
            TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT
        )
        done = attrs.evolve(
            self,
            state=state,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
        if self.bumps_epoch and self.next_producer_id != NO_PRODUCER_ID:
            # Its producer still knows only the epoch before.
            return attrs.evolve(done, producer_id=self.next_producer_id, producer_epoch=0)
        return done

    def fenced(self, *, again: bool) -> "Transaction":
        """Return the transaction under an epoch that fences its producer.

        With `again` the last such change could not be written, and its epoch is used again.
        """
        assert self.state is TransactionState.ONGOING, (
            "the producer of an ongoing transaction is fenced"
        )
        epoch = self.producer_epoch if again else self.producer_epoch + 1
        assert epoch <= MAX_PRODUCER_EPOCH, "one epoch is left for fencing"
        return attrs.evolve(self, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)


def is_exhausted(producer_epoch: int) -> bool:
    """Return whether no producer receives a later epoch (TransactionMetadata.isEpochExhausted)."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
