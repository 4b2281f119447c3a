"""Transactions: records in many partitions, of which all are committed or none (KIP-98).

    transaction     the state of one transactional id, and its transitions
    decisions       the answer to a request, and the record that is written before it
    records         the records of `__transaction_state`, in Kafka's bytes

All of it is values; the tasks that carry them are in replication/transactions.
"""

from replication.coordinator.rules import TRANSACTION_STATE_TOPIC
from replication.transactions.rules.decisions import (
    Fence,
    Slot,
    TransactionDecision,
    abort_fenced,
    add_partitions,
    created,
    end,
    has_expired,
    init_producer_id,
    time_out,
    verify_partitions,
)
from replication.transactions.rules.records import (
    TransactionEntry,
    key_of,
    parse,
    read_batch,
    value_of,
)
from replication.transactions.rules.transaction import (
    Transaction,
    TransactionState,
)

__all__ = [
    "TRANSACTION_STATE_TOPIC",
    "Fence",
    "Slot",
    "Transaction",
    "TransactionDecision",
    "TransactionEntry",
    "TransactionState",
    "abort_fenced",
    "add_partitions",
    "created",
    "end",
    "has_expired",
    "init_producer_id",
    "key_of",
    "parse",
    "read_batch",
    "time_out",
    "value_of",
    "verify_partitions",
]
