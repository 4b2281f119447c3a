"""The decisions of a transaction coordinator: an answer, or a transaction to write first.

    request ─> rule ─> an ErrorCode: the answer; nothing changes
                   └─> a Transaction: to be appended; meanwhile it is the slot's `pending`,
                       and a request for another change is answered CONCURRENT_TRANSACTIONS

The checks of a request are, in this order: the id exists, the producer id and the epoch are the
present ones, no change is being written, and the state allows the change. Under version 2 (KIP-890)
the check for a change comes first: that change may give the producer the id that it names.

(TransactionCoordinator in Kafka.)
"""

from typing import TypeAlias

import attrs

from replication.errors import ErrorCode
from replication.transactions.rules.transaction import (
    Transaction,
    TransactionState,
    is_exhausted,
)
from storage.attributes import define, frozen
from storage.batch.record_batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.types import TopicPartition


@define(eq=False)
class Slot:
    """One transactional id at its coordinator."""

    current: Transaction
    """The transaction in the log."""
    pending: Transaction | None = None
    """The transaction that is being appended, and becomes current after that."""
    fencing: Transaction | None = None
    """The transaction under the epoch that fences its producer; its abort is written next."""
    fence_failed: bool = False
    """Whether the last such abort could not be written, so that its epoch is used again."""

    @property
    def is_changing(self) -> bool:
        return self.pending is not None or self.fencing is not None

    @property
    def is_busy(self) -> bool:
        """Whether the transaction is changing, or prepared."""
        return self.is_changing or self.current.state.is_prepared

    def begin(self, transaction: Transaction) -> Transaction:
        assert self.pending is None, "one change at a time"
        self.pending, self.fencing = transaction, None
        return transaction

    def appended(self) -> Transaction:
        assert self.pending is not None, "a change was begun"
        self.current, self.pending, self.fence_failed = self.pending, None, False
        return self.current

    def failed(self) -> None:
        """Drop the pending change, which is not in the log; keep an epoch that only fences for the
        next try.
        """
        assert self.pending is not None, "a change was begun"
        if self.pending.producer_epoch > self.current.producer_epoch and (
            self.pending.state is TransactionState.PREPARE_ABORT and not self.pending.bumps_epoch
        ):
            self.current = attrs.evolve(self.current, producer_epoch=self.pending.producer_epoch)
            self.fence_failed = True
        self.pending = None


@frozen
class Fence:
    """The ongoing transaction must be aborted first, under this epoch."""

    producer_epoch: int


TransactionDecision: TypeAlias = ErrorCode | Transaction


def created(
    transactional_id: str, *, producer_id: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """Return the transaction of a new id, which is not in the log before it has an epoch."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def init_producer_id(
    slot: Slot,
    *,
    expected: tuple[int, int] | None,
    timeout_ms: int,
    spare_producer_id: int,
    now_ms: int,
) -> TransactionDecision | Fence:
    """Give the next epoch to a producer that begins, or continues after an error (KIP-360).

    `expected` is the producer id and epoch that the producer has so far.
    """
    current = slot.current
    if slot.is_changing:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_be_its_own(current, *expected):
        return ErrorCode.PRODUCER_FENCED
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        slot.fencing = current.fenced(again=slot.fence_failed)
        return Fence(slot.fencing.producer_epoch)
    if current.is_epoch_exhausted and (expected is None or expected[1] == current.producer_epoch):
        return current.with_next_producer_id(
            spare_producer_id,
            remembers_epoch=expected is not None,
            timeout_ms=timeout_ms,
            now_ms=now_ms,
        )
    epochs = _next_epoch(current, None if expected is None else expected[1])
    if epochs is None:
        return ErrorCode.PRODUCER_FENCED
    return current.with_next_epoch(epochs[0], last=epochs[1], timeout_ms=timeout_ms, now_ms=now_ms)


def _may_be_its_own(current: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether this producer may own the transactional id.

    The id is new; or this is its producer; or it was until epochs ran out, and the answer with the
    new producer id was lost.
    """
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == current.producer_id
        or (producer_id == current.previous_producer_id and is_exhausted(producer_epoch))
    )


def _next_epoch(current: Transaction, expected: int | None) -> tuple[int, int] | None:
    """Return the next epoch and the last one; None where another producer has taken over."""
    if expected is None:
        return current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if current.producer_epoch in (NO_PRODUCER_EPOCH, expected):
        return current.producer_epoch + 1, current.producer_epoch
    if expected == current.last_producer_epoch:  # a repeated request
        return current.producer_epoch, current.last_producer_epoch
    return None


def add_partitions(
    slot: Slot | None,
    producer: tuple[int, int],
    *,
    partitions: frozenset[TopicPartition],
    bumps_epoch: bool = False,
    now_ms: int,
) -> TransactionDecision:
    """Add partitions to the transaction, before the first record is written to them."""
    if slot is not None and slot.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _error_of_producer(slot, producer)
    if error is not ErrorCode.NONE or slot is None:
        return error
    current = slot.current
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return ErrorCode.NONE
    return current.with_partitions(partitions, bumps_epoch=bumps_epoch, now_ms=now_ms)


def verify_partitions(
    slot: Slot | None,
    producer: tuple[int, int],
    *,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return whether each partition is in the transaction, for a leader that appends (KIP-890)."""
    error = _error_of_producer(slot, producer)
    if error is ErrorCode.NONE and slot is not None and slot.current.state.is_prepared:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE or slot is None:
        return dict.fromkeys(partitions, error)
    return {
        each: ErrorCode.NONE if each in slot.current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def _error_of_producer(slot: Slot | None, producer: tuple[int, int]) -> ErrorCode:
    if slot is None or slot.current.producer_id != producer[0]:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if slot.current.producer_epoch != producer[1]:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def end(
    slot: Slot | None,
    producer: tuple[int, int],
    *,
    commit: bool,
    bumps_epoch: bool,
    spare_producer_id: int,
    now_ms: int,
) -> TransactionDecision:
    """Decide to commit or to abort; NONE for a repeated request that has been carried out."""
    if slot is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if bumps_epoch:
        decision = _end_and_bump(slot, producer, commit=commit)
    else:
        decision = _end(slot, producer, commit=commit)
    if decision is not None:
        return decision
    rotates = bumps_epoch and slot.current.is_epoch_exhausted
    return slot.current.prepared(
        commit=commit,
        bumps_epoch=bumps_epoch,
        next_producer_id=spare_producer_id if rotates else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _end(slot: Slot, producer: tuple[int, int], *, commit: bool) -> ErrorCode | None:
    """Return why the transaction does not end now; None where it ends."""
    current = slot.current
    if producer[0] != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer[1] != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if slot.is_changing:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        return None
    doing = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    if current.state is doing:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _ended_before(current.state, commit=commit)


def _end_and_bump(slot: Slot, producer: tuple[int, int], *, commit: bool) -> ErrorCode | None:
    """Return why a transaction of version 2 does not end now; None where it ends.

    at rest    request of the epoch before       request of the present epoch
    empty      fenced                            an abort gives the next epoch, a commit is invalid
    aborted    an abort: NONE                    as for empty
    committed  a commit: NONE                    as for empty
    """
    if slot.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    current = slot.current
    if _repeats_its_end(current, *producer):
        # No producer has the last epoch, which only fences the producer before.
        has_ended = current.state is not TransactionState.EMPTY and not current.is_last_epoch
        return (
            _ended_before(current.state, commit=commit) if has_ended else ErrorCode.PRODUCER_FENCED
        )
    if producer[0] != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer[1] != current.producer_epoch or current.is_last_epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state is not TransactionState.ONGOING and commit:
        return ErrorCode.INVALID_TXN_STATE
    return None


def _repeats_its_end(current: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether a producer repeats its last EndTxn, which gave it another epoch or id.

    An end of version 1 gave neither, and the producer of the epoch before was fenced. (Kafka does
    not distinguish these.)
    """
    if current.state is TransactionState.ONGOING or not current.bumps_epoch:
        return False
    if producer_id == current.producer_id:
        return producer_epoch == current.producer_epoch - 1
    rotated = current.producer_epoch == 0 and producer_id == current.previous_producer_id
    return rotated and producer_epoch == MAX_PRODUCER_EPOCH - 1


def _ended_before(state: TransactionState, *, commit: bool) -> ErrorCode:
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return ErrorCode.NONE if state is done else ErrorCode.INVALID_TXN_STATE


def abort_fenced(slot: Slot, *, bumps_epoch: bool = False, now_ms: int) -> Transaction:
    """Return the abort under the epoch of `fencing`, which no producer has.

    Under version 2 an abort by the producer would have given it that epoch, and a repeated request
    does: the producer may continue.
    """
    assert slot.fencing is not None, "the producer has just been fenced"
    aborting = slot.current if bumps_epoch else slot.fencing
    return aborting.prepared(
        commit=False, bumps_epoch=bumps_epoch, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
    )


def time_out(slot: Slot, *, now_ms: int) -> bool:
    """Begin to fence the producer of a transaction that has timed out; return whether it has."""
    current = slot.current
    late = (
        current.state is TransactionState.ONGOING
        and not slot.is_changing
        and now_ms > current.started_ms + current.timeout_ms
    )
    if late:
        slot.fencing = current.fenced(again=slot.fence_failed)
    return late


def has_expired(slot: Slot, *, expiration_ms: int, now_ms: int) -> bool:
    """Return whether the id has been idle for so long that a tombstone may replace it."""
    current = slot.current
    rests = current.state.is_at_rest and not slot.is_changing
    return rests and now_ms >= current.updated_ms + expiration_ms
