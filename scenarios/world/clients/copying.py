"""A program that copies one topic to another, each record exactly once (KIP-98, 447).

    poll ─> begin ─> send each as `c(value)` ─> send offsets ─> commit
                                       └── anything fails: abort, and back to what is committed

Rule 1: it goes on from the committed position, whatever the result of its last transaction was. If
it does not know that result, or was fenced, it begins again: with a producer under the same
transactional id, which ends the open transaction, and a consumer that reads the committed
position.

Rule 2: so a read_committed reader finds each record of the one topic once in the other, and the
records of a partition in their order.
"""

import attrs

from replication.client.consumer import Consumer
from replication.client.consumer.records import ConsumerRecords
from replication.client.errors import TransactionAbortedError
from replication.client.producer import Producer
from replication.errors import KafkaError
from replication.net.seams import Seams
from replication.wire.produce import ACKS_ALL
from scenarios.world.client import SentRecords
from scenarios.world.clients.machine import RETRY_SECONDS, Program
from scenarios.world.clients.witness import Ending, Witness, WitnessedTransaction
from storage.types import TopicPartition

POLL_MS = 1_000
MOST_RECORDS = "20"
OF_CONSUMERS = (
    "session.timeout.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
)


def copied(value: str) -> str:
    return f"c({value})"


@attrs.define(eq=False, kw_only=True)
class Copier(Program):
    witness: Witness
    group: str
    source: str
    target: TopicPartition
    committed: int = attrs.field(default=0, init=False)
    """The number of transactions that were committed."""
    copying: bool = attrs.field(default=False, init=False)
    """Whether a transaction is open."""

    async def work(self, seams: Seams) -> None:
        producer: Producer[bytes, bytes] = Producer(
            self.servers, seams=seams, **self.keywords(but=OF_CONSUMERS)
        )
        consumer = Consumer(
            self.source,
            bootstrap_servers=self.servers,
            seams=seams,
            group_id=self.group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            max_poll_records=MOST_RECORDS,
            **self.keywords(*OF_CONSUMERS, "metadata.max.age.ms"),
        )
        async with producer, consumer:
            while not self.ending:
                try:
                    records = await consumer.poll(POLL_MS)
                except KafkaError as error:
                    self.note(error)
                    await seams.clock.sleep(RETRY_SECONDS)
                    continue
                if records:
                    self.copying = True
                    await self._copy(producer, consumer, records)
                    self.copying = False

    async def _copy(
        self, producer: Producer[bytes, bytes], consumer: Consumer, records: ConsumerRecords
    ) -> None:
        transaction = self._witnessed(records)
        try:
            async with producer.transaction():
                for batch in transaction.batches:
                    topic, partition = batch.partition
                    (value,) = batch.values
                    await producer.send_soon(topic, value.encode(), partition=partition)
                await producer.send_offsets_to_transaction(
                    records.next_offsets, consumer.group_metadata()
                )
                transaction.commit_asked_at = self.world.time.now
        except TransactionAbortedError as error:
            transaction.end(Ending.ABORTED, self.world.time.now)
            self.note(error)
            for source in records.partitions:
                await self._go_back(consumer, source)
        else:
            transaction.end(Ending.COMMITTED, self.world.time.now)
            self.committed += 1

    def _witnessed(self, records: ConsumerRecords) -> WitnessedTransaction:
        transaction = WitnessedTransaction(producer=self.name, began_at=self.world.time.now)
        for record in records:
            value = (record.value or b"").decode()
            transaction.copied.append((record.topic_partition, record.offset, value))
            transaction.batches.append(SentRecords(self.target, (copied(value),), ACKS_ALL))
        self.witness.transactions.append(transaction)
        return transaction

    async def _go_back(self, consumer: Consumer, partition: TopicPartition) -> None:
        committed = await consumer.committed(partition)
        if partition not in consumer.assignment():
            return
        if committed is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, committed)
