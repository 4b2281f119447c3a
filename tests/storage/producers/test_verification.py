"""What opens a transaction has been asked about (KIP-890): guards, from the question to the append."""

from typing import Any

import pytest

from storage.batch.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    encode_batch,
    encode_control_batch,
)
from storage.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from storage.log.log import Log
from storage.producers.verification import TransactionTerms, VerificationGuard
from tests.storage.logs import new_disk, open_log

PRODUCER = 7


def opened() -> Log:
    return open_log(new_disk())


def begin(
    log: Log, *, epoch: int = 0, sequence: int = 0, bumps_epoch: bool = False, now_ms: int = 0
) -> VerificationGuard | None:
    return log.producers.begin_verification(
        PRODUCER,
        producer_epoch=epoch,
        sequence=sequence,
        bumps_epoch=bumps_epoch,
        now_ms=now_ms,
    )


def append(
    log: Log,
    guard: VerificationGuard | None = None,
    *,
    sequence: int = 0,
    epoch: int = 0,
    transactional: bool = True,
    must_be_verified: bool = True,
    from_client: bool = True,
) -> None:
    encoded = encode_batch(
        [Record(timestamp=0, value=b"x")],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence if from_client else -1,
        transactional=transactional,
    )
    terms = TransactionTerms(must_be_verified=must_be_verified, guard=guard)
    _append(log, encoded, terms=terms, from_client=from_client)


def end(log: Log, *, epoch: int = 0, bumps_epoch: bool = False) -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, coordinator_epoch=0)
    encoded = encode_control_batch(marker, timestamp=0, producer_id=PRODUCER, producer_epoch=epoch)
    terms = TransactionTerms(must_be_verified=True, marker_bumps_epoch=bumps_epoch)
    _append(log, encoded, terms=terms, from_client=False)


def _append(log: Log, encoded: bytes, **options: Any) -> None:
    log.append_as_leader(memoryview(bytearray(encoded)), leader_epoch=0, wall_ms=0, **options)


@pytest.mark.conformance("UL-113")
def test_the_first_batch_of_a_transaction_shows_the_guard_and_uses_it_up() -> None:
    log = opened()
    guard = begin(log, sequence=1)
    assert guard is not None
    append(log, sequence=0, transactional=False)
    assert begin(log, sequence=1) is guard, "nothing of a transaction has come yet"
    append(log, guard, sequence=1)
    assert begin(log, sequence=2) is None, "it is open: nobody has to be asked"
    append(log, sequence=2)
    end(log)
    next_guard = begin(log, sequence=3)
    assert next_guard not in (None, guard)
    with pytest.raises(InvalidTransactionStateError):
        append(log, guard, sequence=3)
    append(log, next_guard, sequence=3)


@pytest.mark.conformance("UL-114")
def test_a_marker_without_a_transaction_removes_the_guard() -> None:
    log = opened()
    guard = begin(log)
    end(log)
    with pytest.raises(InvalidTransactionStateError):
        append(log, guard)
    assert begin(log) is not guard


@pytest.mark.conformance("UL-115")
def test_an_append_without_verification_removes_the_guard() -> None:
    log = opened()
    guard = begin(log)
    assert guard is not None
    append(log, must_be_verified=False)
    assert not log.producers.is_verifying(PRODUCER, guard)
    assert begin(log, sequence=1) is None


@pytest.mark.conformance("UL-116")
@pytest.mark.parametrize("from_client", [True, False])
def test_a_transaction_is_not_opened_without_its_guard(from_client: bool) -> None:
    log = opened()
    for guard in (None, VerificationGuard()):
        with pytest.raises(InvalidTransactionStateError):
            append(log, guard, from_client=from_client)
    begin(log)
    with pytest.raises(InvalidTransactionStateError):
        append(log, from_client=from_client)
    assert log.log_end_offset == 0
    append(log, begin(log), from_client=from_client)


def test_a_retry_needs_no_guard() -> None:
    log = opened()
    append(log, begin(log))
    end(log)
    append(log)
    assert log.log_end_offset == 2, "it is there already"


def test_a_transaction_open_under_another_epoch_is_verified() -> None:
    log = opened()
    append(log, begin(log))
    assert begin(log, epoch=1) is not None
    with pytest.raises(InvalidTransactionStateError):
        append(log, epoch=1)


def test_a_coordinator_that_comes_too_late_is_refused_by_its_epoch() -> None:
    log = opened()
    append(log, begin(log, epoch=1), epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        append(log, epoch=0, from_client=False)


@pytest.mark.parametrize(
    ("first", "then", "epoch", "refused"),
    [
        pytest.param(0, 0, 0, False, id="the same again"),
        pytest.param(0, 1, 0, True, id="one behind it"),
        pytest.param(3, 2, 0, False, id="one before it"),
        pytest.param(0, 0, 1, False, id="under the next epoch"),
        pytest.param(0, 4, 1, False, id="nothing is known of the next epoch"),
    ],
)
def test_the_lowest_sequence_that_was_asked_for_comes_first(
    first: int, then: int, epoch: int, refused: bool
) -> None:
    log = opened()
    begin(log, sequence=first)
    guard = begin(log, sequence=then, epoch=epoch)
    if refused:
        with pytest.raises(OutOfOrderSequenceError):
            append(log, guard, sequence=then, epoch=epoch)
    else:
        append(log, guard, sequence=then, epoch=epoch)


def test_in_version_2_each_transaction_begins_at_0() -> None:
    log = opened()
    guard = begin(log, sequence=4, bumps_epoch=True)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, guard, sequence=4)


def test_a_marker_of_version_2_bears_a_later_epoch_than_what_it_ends() -> None:
    log = opened()
    append(log, begin(log, bumps_epoch=True))
    end(log, epoch=1, bumps_epoch=True)
    end(log, epoch=1, bumps_epoch=True)  # it was not answered, and comes again
    append(log, begin(log, epoch=1, bumps_epoch=True), epoch=1)
    for epoch in (0, 1):
        with pytest.raises(InvalidProducerEpochError):
            end(log, epoch=epoch, bumps_epoch=True)  # late: this is the next transaction
    with pytest.raises(InvalidProducerEpochError):
        append(log, sequence=1, epoch=0)
    end(log, epoch=2, bumps_epoch=True)
    log.producers.on_high_watermark_updated(log.log_end_offset)
    assert log.producers.first_unstable_offset is None, "nothing hangs"


def test_a_verification_without_an_append_expires() -> None:
    log = opened()
    guard = begin(log, now_ms=1000)
    assert guard is not None
    expiration_ms = log.producers.expiration_ms
    log.producers.remove_expired(999 + expiration_ms)
    assert log.producers.is_verifying(PRODUCER, guard)
    log.producers.remove_expired(1000 + expiration_ms)
    assert not log.producers.is_verifying(PRODUCER, guard)
