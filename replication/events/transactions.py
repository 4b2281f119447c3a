"""Events of transactions, reported by their coordinator (KIP-98)."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, TopicPartition


@attrs.frozen(kw_only=True)
class TransactionsLoaded(Event):
    """A broker has become coordinator of the transactions in one partition."""

    name: ClassVar[str] = "transactions_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    transactions: int  # the number of transactional ids


@attrs.frozen(kw_only=True)
class TransactionsUnloaded(Event):
    """A broker no longer coordinates the transactions of a partition."""

    name: ClassVar[str] = "transactions_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class TransactionPrepared(Event):
    """The outcome of a transaction is written, and can no longer change."""

    name: ClassVar[str] = "transaction_prepared"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # whether it commits; else it aborts
    partitions: int  # the number of partitions that get a marker


@attrs.frozen(kw_only=True)
class TransactionCompleted(Event):
    """Every partition of a transaction has its end marker."""

    name: ClassVar[str] = "transaction_completed"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # whether it was committed; else it was aborted
