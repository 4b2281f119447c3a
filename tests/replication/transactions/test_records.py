"""Transactions as they stand in the log, in Kafka's bytes."""

import pytest
from hypothesis import given, strategies as st

from replication.errors import ProtocolError
from replication.transactions.rules.records import key_of, parse, value_of
from replication.transactions.rules.transaction import Transaction, TransactionState
from storage.types import TopicPartition

EPOCHS = st.integers(-1, 2**15 - 1)
IDS = st.integers(-1, 2**63 - 1)
transactions = st.builds(
    Transaction,
    transactional_id=st.text(min_size=1, max_size=5),
    producer_id=IDS,
    producer_epoch=EPOCHS,
    previous_producer_id=IDS,
    next_producer_id=IDS,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state < 6]),
    partitions=st.frozensets(
        st.builds(TopicPartition, st.sampled_from(("a", "b")), st.integers(0, 3))
    ),
    started_ms=IDS,
    updated_ms=IDS,
    bumps_epoch=st.booleans(),
)


@given(transactions)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    name = transaction.transactional_id
    entry = parse(key_of(name), value_of(transaction))
    assert entry is not None
    read = entry.transaction
    assert read is not None
    assert entry.transactional_id == name
    if transaction.state is TransactionState.EMPTY:
        assert read.partitions == frozenset()
    else:
        assert read.partitions == transaction.partitions
    for name in ("producer_id", "producer_epoch", "next_producer_id", "state", "bumps_epoch"):
        assert getattr(read, name) == getattr(transaction, name)
    for name in ("previous_producer_id", "timeout_ms", "started_ms", "updated_ms"):
        assert getattr(read, name) == getattr(transaction, name)


def test_the_bytes_are_kafkas() -> None:
    transaction = Transaction(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        started_ms=1,
        updated_ms=2,
    )
    # By TransactionLogKey.json and TransactionLogValue.json: version, then the fields; compact
    # lengths are one more than the length, and no tag is set.
    assert key_of("tx").hex(" ") == "00 00 00 02 74 78"
    assert value_of(transaction).hex() == (
        "0001"
        "0000000000000007"
        "0003"
        "0000ea60"
        "01"
        "02"
        "0274"
        "03"
        "00000000"
        "00000001"
        "00"
        "0000000000000002"
        "0000000000000001"
        "00"
    )


def test_version_0_is_read() -> None:
    value = bytes.fromhex(
        "0000000000000000000700030000ea6004ffffffff00000000000000020000000000000001"
    )
    entry = parse(key_of("tx"), value)
    assert entry is not None
    assert entry.transaction is not None
    assert entry.transaction.state is TransactionState.COMPLETE_COMMIT
    assert entry.transaction.partitions == frozenset()


def test_a_tombstone_forgets_the_id() -> None:
    assert parse(key_of("tx"), None) == ("tx", None)


def test_a_key_of_another_version_is_passed_over() -> None:
    assert parse(b"\0\x01\0\x02tx", b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\x01"),
        (b"\0", b"\0\x01"),
        (key_of("tx"), b"\0\x02"),
        (key_of("tx"), b"\0"),
        (key_of("tx"), bytes.fromhex("0000000000000000000700030000ea6063ffffffff")),
    ],
)
def test_what_is_no_record_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(key, value)


def test_states_are_called_as_kafkas_tools_call_them() -> None:
    assert TransactionState.PREPARE_COMMIT.label == "PrepareCommit"
    assert TransactionState.EMPTY.label == "Empty"
