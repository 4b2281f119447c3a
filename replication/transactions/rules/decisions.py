"""What a transaction coordinator answers, and what it writes down before it does.

    request ─> rule ─> an ErrorCode: the answer; nothing changes
                   └─> a Transaction: to be appended; while it is, the slot has it as `pending`,
                       and a request for another change is answered CONCURRENT_TRANSACTIONS

A request is checked in this order: is the id known, is it this producer's, is it this epoch's,
is nothing under way, and does the state allow it. Under version 2 (KIP-890) it is checked first
whether anything is under way: that may be about to give the requester the very id that it has.

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
from storage.batch.record_batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.types import TopicPartition


@attrs.define(eq=False)
class Slot:
    """One transactional id at its coordinator."""

    current: Transaction
    """What is in the log."""
    pending: Transaction | None = None
    """What is being appended, and becomes current when it is there."""
    fencing: Transaction | None = None
    """The owner is being fenced; the abort that does it is what comes next."""
    fence_failed: bool = False
    """The abort could not be written. Its epoch is not used up."""

    @property
    def is_changing(self) -> bool:
        return self.pending is not None or self.fencing is not None

    @property
    def is_busy(self) -> bool:
        """Changing, or being completed."""
        return self.is_changing or self.current.state.is_prepared

    def begin(self, transaction: Transaction) -> Transaction:
        assert self.pending is None, "one change at a time"
        self.pending, self.fencing = transaction, None
        return transaction

    def appended(self) -> Transaction:
        assert self.pending is not None, "what was begun is done"
        self.current, self.pending, self.fence_failed = self.pending, None, False
        return self.current

    def failed(self) -> None:
        """Drop the pending change, which is not in the log; keep an epoch that only fences for the next try."""
        assert self.pending is not None, "what was begun has failed"
        if self.pending.producer_epoch > self.current.producer_epoch and (
            self.pending.state is TransactionState.PREPARE_ABORT and not self.pending.bumps_epoch
        ):
            self.current = attrs.evolve(self.current, producer_epoch=self.pending.producer_epoch)
            self.fence_failed = True
        self.pending = None


@attrs.frozen
class Fence:
    """The transaction that is going on has to be aborted first, under this epoch."""

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
    """Give a producer that begins, or goes on after an error (KIP-360), the next epoch.

    `expected` is the producer id and epoch that it believes to have.
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
    """Return whether the id may be this producer's.

    It may just have been made; it may be the producer's; or it was, until epochs ran out, and the
    answer that said so was lost.
    """
    return (
        current.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == current.producer_id
        or (producer_id == current.previous_producer_id and is_exhausted(producer_epoch))
    )


def _next_epoch(current: Transaction, expected: int | None) -> tuple[int, int] | None:
    """Return the epoch to give, and the one to remember; None where another producer has taken over."""
    if expected is None:
        return current.producer_epoch + 1, NO_PRODUCER_EPOCH
    if current.producer_epoch in (NO_PRODUCER_EPOCH, expected):
        return current.producer_epoch + 1, current.producer_epoch
    if expected == current.last_producer_epoch:  # it asks again
        return current.producer_epoch, current.last_producer_epoch
    return None


def add_partitions(
    slot: Slot | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    bumps_epoch: bool = False,
    now_ms: int,
) -> TransactionDecision:
    """Add partitions to the transaction, before the first record is written to them."""
    if slot is not None and slot.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _of_its_owner(slot, producer_id=producer_id, producer_epoch=producer_epoch)
    if error is not ErrorCode.NONE or slot is None:
        return error
    current = slot.current
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return ErrorCode.NONE
    return current.with_partitions(partitions, bumps_epoch=bumps_epoch, now_ms=now_ms)


def verify_partitions(
    slot: Slot | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return whether each partition is in the transaction, for a leader that appends (KIP-890)."""
    error = _of_its_owner(slot, producer_id=producer_id, producer_epoch=producer_epoch)
    if error is ErrorCode.NONE and slot is not None and slot.current.state.is_prepared:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE or slot is None:
        return dict.fromkeys(partitions, error)
    return {
        each: ErrorCode.NONE if each in slot.current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def _of_its_owner(slot: Slot | None, *, producer_id: int, producer_epoch: int) -> ErrorCode:
    if slot is None or slot.current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if slot.current.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def end(
    slot: Slot | None,
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    bumps_epoch: bool,
    spare_producer_id: int,
    now_ms: int,
) -> TransactionDecision:
    """Commit or abort for the owner; NONE for a request that has been carried out already."""
    if slot is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if bumps_epoch:
        decision = _end_and_bump(slot, (producer_id, producer_epoch), commit=commit)
    else:
        decision = _end(slot, (producer_id, producer_epoch), commit=commit)
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

    at rest    asked for by the epoch before     by the present one
    empty      fenced                            an abort gives the next epoch, a commit cannot be
    aborted    an abort: the same answer         the same
    committed  a commit: the same answer         the same
    """
    if slot.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    current = slot.current
    if _asks_again(current, *producer):
        # The last epoch, by which somebody was fenced, is nobody's.
        was_told = current.state is not TransactionState.EMPTY and not current.is_last_epoch
        return (
            _ended_before(current.state, commit=commit) if was_told else ErrorCode.PRODUCER_FENCED
        )
    if producer[0] != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer[1] != current.producer_epoch or current.is_last_epoch:
        return ErrorCode.PRODUCER_FENCED
    if current.state is not TransactionState.ONGOING and commit:
        return ErrorCode.INVALID_TXN_STATE
    return None


def _asks_again(current: Transaction, producer_id: int, producer_epoch: int) -> bool:
    """Return whether the requester is the producer before the last end, which gave it another epoch or id.

    Where that end was of version 1 it gave nothing, and the epoch before is somebody's who was
    fenced. (Kafka does not ask which it was.)
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
    """Abort for `fencing`: nobody but the coordinator itself aborts under that epoch.

    Under version 2 it is the epoch that its owner would have got by aborting, and gets where it
    asks for that: it may go on.
    """
    assert slot.fencing is not None, "its owner has just been fenced"
    aborting = slot.current if bumps_epoch else slot.fencing
    return aborting.prepared(
        commit=False, bumps_epoch=bumps_epoch, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
    )


def time_out(slot: Slot, *, now_ms: int) -> bool:
    """Return whether the transaction has gone on for too long; its owner is being fenced then."""
    current = slot.current
    late = (
        current.state is TransactionState.ONGOING
        and not slot.is_changing
        and now_ms > current.started_ms + current.timeout_ms
    )
    if late:
        slot.fencing = current.fenced(again=slot.fence_failed)
    return late


def is_forgotten(slot: Slot, *, expiration_ms: int, now_ms: int) -> bool:
    """Return whether nobody has used the id for so long that a tombstone may replace it."""
    current = slot.current
    rests = current.state.is_at_rest and not slot.is_changing
    return rests and now_ms >= current.updated_ms + expiration_ms
