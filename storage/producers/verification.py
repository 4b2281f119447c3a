"""Whether the transaction that a batch would begin in this log is known to its coordinator (KIP-890).

    begin ──> a guard is kept ── the coordinator is asked ──> append with that guard: taken
                   │                                          with none, or another: refused
                   └ a transactional batch or an end marker comes first: the guard is gone,
                     and what was asked before says nothing of what comes now

Rule 1: only what opens a transaction needs a guard. An open transaction has been verified.

Rule 2: a guard is compared by identity. Its producer may have ended one
transaction and begun the next while the coordinator was asked (ABA).

Rule 3: the lowest sequence seen is what may come first. A batch whose check has failed is sent
again, and one behind it must not go before it.

(VerificationGuard, VerificationStateEntry in Kafka.)
"""

import attrs

from storage.attributes import define, frozen
from storage.batch.record_batch import BatchHeader
from storage.errors import InvalidTransactionStateError, OutOfOrderSequenceError


@frozen(eq=False)
class VerificationGuard:
    """A token that is equal to itself alone."""


@frozen(kw_only=True)
class TransactionTerms:
    """The terms on which a leader takes a batch of a transaction."""

    must_be_verified: bool = False
    guard: VerificationGuard | None = None
    marker_bumps_epoch: bool = False
    """Whether an end marker has the epoch after that of its transaction (transaction.version 2)."""


NO_TERMS = TransactionTerms()


@define(eq=False, kw_only=True)
class Verification:
    """One producer whose transaction the coordinator is asked about."""

    since_ms: int
    producer_epoch: int
    lowest_sequence: int
    bumps_epoch: bool
    """Its producer has a new epoch for each transaction, and so begins each at sequence 0."""
    guard: VerificationGuard = attrs.field(factory=VerificationGuard)

    def saw(self, producer_epoch: int, sequence: int, *, bumps_epoch: bool) -> None:
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
            self.bumps_epoch = bumps_epoch
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


@define(eq=False)
class Verifications:
    """The verifications of one log, by producer id."""

    by_producer: dict[int, Verification] = attrs.field(factory=dict)

    def begin(
        self,
        producer_id: int,
        *,
        producer_epoch: int,
        sequence: int,
        bumps_epoch: bool,
        now_ms: int,
    ) -> VerificationGuard:
        """Return the guard of a verification; the same one until a batch or an end marker comes."""
        known = self.by_producer.get(producer_id)
        if known is None:
            known = self.by_producer[producer_id] = Verification(
                since_ms=now_ms,
                producer_epoch=producer_epoch,
                lowest_sequence=sequence,
                bumps_epoch=bumps_epoch,
            )
        known.saw(producer_epoch, sequence, bumps_epoch=bumps_epoch)
        return known.guard

    def holds(self, producer_id: int, guard: VerificationGuard) -> bool:
        known = self.by_producer.get(producer_id)
        return known is not None and known.guard is guard

    def done(self, producer_id: int) -> None:
        self.by_producer.pop(producer_id, None)

    def remove_expired(self, *, now_ms: int, expiration_ms: int) -> None:
        self.by_producer = {
            producer_id: each
            for producer_id, each in self.by_producer.items()
            if now_ms - each.since_ms < expiration_ms
        }

    # Of a batch that is about to be appended.

    def check_guard(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Raise InvalidTransactionStateError where `guard` is not that of the batch, which opens a
        transaction.
        """
        known = self.by_producer.get(header.producer_id)
        if known is None or known.guard is not guard:
            raise InvalidTransactionStateError(
                f"a batch of producer {header.producer_id}, epoch {header.producer_epoch}, is not"
                " part of a transaction that is going on"
            )

    def check_sequence(self, header: BatchHeader, *, is_first: bool) -> None:
        """`is_first`: nothing is known of this producer under this epoch."""
        known = self.by_producer.get(header.producer_id)
        if known is None:
            return
        allowed = 0 if known.bumps_epoch and is_first else known.lowest_sequence
        if header.base_sequence > allowed:
            raise OutOfOrderSequenceError(
                f"sequence {header.base_sequence} of producer {header.producer_id} comes before"
                f" {allowed}, which has not been appended yet"
            )
