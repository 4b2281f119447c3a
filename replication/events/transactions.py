"""Transactions, as their coordinator sees them (KIP-98)."""

from typing import ClassVar

import attrs

from replication.events.event import Event
from storage.types import LeaderEpoch, TopicPartition


@attrs.frozen(kw_only=True)
class TransactionsLoaded(Event):
    """A coordinator has read what it is to look after."""

    name: ClassVar[str] = "transactions_loaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    transactions: int  # so many


@attrs.frozen(kw_only=True)
class TransactionsUnloaded(Event):
    """This broker coordinates them no more."""

    name: ClassVar[str] = "transactions_unloaded"
    partition: TopicPartition
    leader_epoch: LeaderEpoch
    cause: str


@attrs.frozen(kw_only=True)
class TransactionPrepared(Event):
    """How a transaction ends is written down, and nothing can change it any more."""

    name: ClassVar[str] = "transaction_prepared"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # or aborts
    partitions: int  # that have to be told


@attrs.frozen(kw_only=True)
class TransactionCompleted(Event):
    """Every partition that it wrote to has been told."""

    name: ClassVar[str] = "transaction_completed"
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool  # or aborted
