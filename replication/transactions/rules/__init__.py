"""Transactions: records of many partitions that are there together or not at all (KIP-98).

    transaction     one transactional id, as a value, and what it can turn into
    rules           what its coordinator answers, and writes down before it does
    records         what stands in `__transaction_state`, in Kafka's bytes

All of it is values; the tasks that carry them are in replication/transactions.
"""

from replication.transactions.rules.decisions import (
    Decision,
    Fence,
    Slot,
    abort_fenced,
    add_partitions,
    created,
    end,
    init_producer_id,
    is_forgotten,
    time_out,
    verify_partitions,
)
from replication.transactions.rules.records import (
    TRANSACTION_STATE_TOPIC,
    TransactionEntry,
    key_of,
    parse,
    value_of,
)
from replication.transactions.rules.transaction import (
    EPOCH_BUMPING_VERSION,
    Transaction,
    TransactionState,
)

__all__ = [
    "EPOCH_BUMPING_VERSION",
    "TRANSACTION_STATE_TOPIC",
    "Decision",
    "Fence",
    "Slot",
    "Transaction",
    "TransactionEntry",
    "TransactionState",
    "abort_fenced",
    "add_partitions",
    "created",
    "end",
    "init_producer_id",
    "is_forgotten",
    "key_of",
    "parse",
    "time_out",
    "value_of",
    "verify_partitions",
]
