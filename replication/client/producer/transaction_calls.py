"""What a program asks of a producer with a `transactional.id`."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from replication.client.errors import IllegalStateError, TransactionAbortedError
from replication.client.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from replication.client.producer.transactions import Transactions
from replication.errors import KafkaError, PeerUnavailableError
from storage.types import TopicPartition


class TransactionCalls(ABC):
    """Of an open producer."""

    __slots__ = ()

    _transactions: Transactions | None

    @abstractmethod
    def _check_open(self) -> None:
        """Whether it still sends; the error that says why not raises."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """What is sent inside is there for readers of what is committed as a whole, or not at
        all. TransactionAbortedError where it could not be committed.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._abort_if_possible()
            raise
        try:
            await self.commit_transaction()
        except TransactionAbortedError:
            await self.abort_transaction()
            raise

    async def _abort_if_possible(self) -> None:
        """The error that it was left by says more than one of the abort would."""
        with contextlib.suppress(KafkaError, PeerUnavailableError):
            await self.abort_transaction()

    def begin_transaction(self) -> None:
        """IllegalStateError inside a transaction; ProducerFencedError where another producer has
        the transactional id.
        """
        self._in_transactions.begin()

    async def commit_transaction(self) -> None:
        """TransactionAbortedError where something that was sent failed: abort it then."""
        await self._in_transactions.commit()

    async def abort_transaction(self) -> None:
        """Nothing of it is shown to who reads committed records; sends of it that are on their way fail."""
        await self._in_transactions.abort()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """How far a group has read, committed with the transaction (KIP-447)."""
        member = ConsumerGroupMetadata(group_id=group) if isinstance(group, str) else group
        wanted = {
            partition: OffsetAndMetadata(each) if isinstance(each, int) else each
            for partition, each in offsets.items()
        }
        await self._in_transactions.send_offsets(wanted, member)

    @property
    def _in_transactions(self) -> Transactions:
        self._check_open()
        if self._transactions is None:
            raise IllegalStateError("a producer without transactional_id has no transactions")
        return self._transactions
