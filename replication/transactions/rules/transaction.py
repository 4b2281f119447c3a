"""One transactional id: who may write under it, and where its transaction stands (KIP-98).

              InitProducerId            AddPartitions            EndTxn
    (nothing) ──────────────> EMPTY ───────────────> ONGOING ─┬─> PREPARE_COMMIT ─> COMPLETE_COMMIT
                                ^                       ^     └─> PREPARE_ABORT ──> COMPLETE_ABORT
                                │                       │                                │
                                └── InitProducerId ─────┴──────── AddPartitions ─────────┘

Rule 1: what is prepared will be done. From the moment PREPARE_COMMIT or PREPARE_ABORT is in
the log every partition gets its marker, however often the coordinator changes in between.

Rule 2: InitProducerId gives the next epoch, and with it fences the owner of the last one. Where
a transaction is going on it is aborted first, under an epoch that nobody is given: so that
neither its old owner nor the new one can write meanwhile.

Rule 3: an epoch is not given out past 32,766; then there is a new producer id, from epoch 0.
The last one is left for aborting what is going on.

Rule 4: under version 2 (KIP-890) each end gives the next epoch, so that nothing which comes late
of one transaction can be taken for a part of the next. The markers bear that epoch. Its owner
may abort what has no partition, too: it cannot know whether what it sent has arrived.

A `Transaction` is a value, and so is each that it turns into: what is in the log is one of
them. (TransactionMetadata, TxnTransitMetadata in Kafka.)
"""

import enum
from typing import Final

import attrs

from storage.batch.record_batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.types import TopicPartition

NO_TIME: Final = -1


class TransactionState(enum.IntEnum):
    """By the numbers that stand in the log; PREPARE_EPOCH_FENCE never does."""

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
        """As Kafka's tools say it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is going on, nor about to be written."""
        return self in _AT_REST


_AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


@attrs.frozen(kw_only=True)
class Transaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The one that it has once it is complete, where epochs have run out (KIP-890)."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The one before, if its owner may ask again for what it has been answered already."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    bumps_epoch: bool = False
    """Each end of a transaction gives the next epoch: transactions of version 2 (KIP-890)."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_last_epoch(self) -> bool:
        """Nobody was given it: by it somebody was fenced."""
        return self.producer_epoch >= MAX_PRODUCER_EPOCH

    @property
    def commits(self) -> bool:
        assert self.state.is_prepared, "only what is prepared is going to be done"
        return self.state is TransactionState.PREPARE_COMMIT

    # What it can turn into.

    def with_next_epoch(
        self, producer_epoch: int, *, last: int, timeout_ms: int, now_ms: int
    ) -> "Transaction":
        assert self.state.is_at_rest, "a transaction that is going on is ended first"
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
        assert not self.state.is_prepared, "what is prepared does not grow"
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
        of_nothing = bumps_epoch and not commit and self.state.is_at_rest
        assert of_nothing or self.state is TransactionState.ONGOING, "only what is going on can end"
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        ending = attrs.evolve(
            self,
            state=state,
            started_ms=now_ms if of_nothing else self.started_ms,
            updated_ms=now_ms,
            bumps_epoch=bumps_epoch,
        )
        if not bumps_epoch:
            return ending
        assert self.producer_epoch < MAX_PRODUCER_EPOCH, "the last one is nobody's"
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
            # The last one that its owner knows of is still the one before.
            return attrs.evolve(done, producer_id=self.next_producer_id, producer_epoch=0)
        return done

    def fenced(self, *, again: bool) -> "Transaction":
        """Return the transaction under an epoch that fences its owner.

        With `again` the last such change could not be written, and its epoch is used.
        """
        assert self.state is TransactionState.ONGOING, "only who has begun something is fenced"
        epoch = self.producer_epoch if again else self.producer_epoch + 1
        assert epoch <= MAX_PRODUCER_EPOCH, "one epoch is left for this"
        return attrs.evolve(self, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)


def is_exhausted(producer_epoch: int) -> bool:
    """Return whether no epoch is given out after it (TransactionMetadata.isEpochExhausted)."""
    return producer_epoch >= MAX_PRODUCER_EPOCH - 1
