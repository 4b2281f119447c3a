"""What a cleaner remembers of transactions while it goes over their batches."""

from storage.batch.record_batch import BatchHeader, read_header
from storage.batch.records import ControlRecordType, EndTransactionMarker, encode_batch
from storage.cleaner.transactions import CleanedTransactions
from storage.log.index.transaction_index import AbortedTransaction
from tests.storage.logs import batch

ABORTED = AbortedTransaction(producer_id=7, first_offset=10, last_offset=15, last_stable_offset=16)
ABORT = EndTransactionMarker(ControlRecordType.ABORT, 0)


def at(offset: int) -> BatchHeader:
    return read_header(
        batch(at=offset, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )


def test_a_transaction_that_two_segments_tell_of_ends_once() -> None:
    transactions = CleanedTransactions()
    transactions.add_aborted([ABORTED])
    assert transactions.on_batch(at(10))
    assert not transactions.on_control_batch(at(15), ABORT)
    assert transactions.take_met() == [ABORTED]
    # The next segment's index has it too; by then the producer has begun another.
    transactions.add_aborted([ABORTED])
    assert not transactions.on_batch(at(20))


def test_a_marker_that_was_emptied_goes_and_one_that_is_not_known_stays() -> None:
    transactions = CleanedTransactions()
    emptied = read_header(encode_batch([], control=True))
    assert transactions.on_control_batch(emptied, None)
    assert not transactions.on_control_batch(at(3), None)
