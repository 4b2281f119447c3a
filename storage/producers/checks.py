"""What a leader asks of a batch, given what it knows of its producer (KIP-98, KIP-890).

    epoch          not below the last one; that of a marker, under version 2, above it
    sequence       the next one, or 0 in a new epoch
    coordinator    of a marker: not one that has been replaced

(ProducerAppendInfo in Kafka.)
"""

from storage.batch.record_batch import NO_PRODUCER_EPOCH, BatchHeader, next_sequence
from storage.batch.records import EndTransactionMarker
from storage.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from storage.producers.snapshot import ProducerState
from storage.producers.verification import TransactionTerms


def check_epoch(state: ProducerState, header: BatchHeader, terms: TransactionTerms) -> None:
    last = state.producer_epoch
    if header.is_control and terms.marker_bumps_epoch and header.producer_epoch == last:
        # Under version 2 a marker ends what has the epoch before. With nothing open it is one
        # that has been written already; else it is late, and what is open is not what it ends.
        if state.transaction_first_offset is None:
            return
    elif header.producer_epoch >= last:
        return
    raise InvalidProducerEpochError(
        f"epoch {header.producer_epoch} of producer {header.producer_id} comes too late:"
        f" its last is {last}"
    )


def check_sequence(state: ProducerState, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != state.producer_epoch:
        if first != 0 and state.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} starts epoch {header.producer_epoch}"
                f" at sequence {first}, not at 0"
            )
    elif first != next_sequence(state.last_sequence):
        raise OutOfOrderSequenceError(
            f"sequence {first} of producer {header.producer_id}, epoch {header.producer_epoch},"
            f" does not follow {state.last_sequence}"
        )


def check_coordinator(state: ProducerState | None, marker: EndTransactionMarker | None) -> None:
    if (
        state is not None
        and marker is not None
        and marker.coordinator_epoch < state.coordinator_epoch
    ):
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {marker.coordinator_epoch} of producer {state.producer_id}"
            f" is older than {state.coordinator_epoch}, its last"
        )
