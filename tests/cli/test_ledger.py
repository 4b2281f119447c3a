"""The ledger counts what became of every record, and believes only the bytes."""

from replication.cli.demo_workload import Ledger, LedgerVerdict


def ledger_of(*values: bytes) -> Ledger:
    ledger = Ledger()
    for value in values:
        ledger.on_send(value)
    return ledger


def test_a_record_acked_and_read_back_is_committed() -> None:
    ledger = ledger_of(b"a", b"b")
    for number, value in enumerate((b"a", b"b")):
        ledger.on_ack(number)
        ledger.on_read(number, value)
    assert ledger.verdict() == LedgerVerdict(2, 2, 0, 0, 0, 0)


def test_an_acked_record_that_is_missing_is_lost() -> None:
    ledger = ledger_of(b"a", b"b")
    ledger.on_ack(0)
    ledger.on_ack(1)
    ledger.on_read(0, b"a")
    assert ledger.verdict().acked_and_lost == 1


def test_a_record_that_was_never_acked_may_still_be_there() -> None:
    ledger = ledger_of(b"a", b"b")
    ledger.on_read(0, b"a")
    verdict = ledger.verdict()
    assert (verdict.never_acked, verdict.never_acked_but_there) == (2, 1)


def test_a_record_read_several_times_counts_as_one_duplicate() -> None:
    ledger = ledger_of(b"a")
    ledger.on_ack(0)
    for _ in range(300):
        ledger.on_read(0, b"a")
    assert ledger.verdict().duplicated == 1


def test_a_record_with_other_bytes_does_not_count_as_read() -> None:
    ledger = ledger_of(b"a")
    ledger.on_ack(0)
    ledger.on_read(0, b"b")
    ledger.on_read(7, b"a")
    assert ledger.altered == 2
    assert ledger.verdict().acked_and_lost == 1


def test_a_record_sent_and_not_acked_is_in_flight() -> None:
    ledger = ledger_of(b"a", b"b", b"c")
    ledger.on_ack(1)
    assert ledger.in_flight == 2
