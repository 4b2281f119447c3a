"""A program that produces with our Producer, in the order of its tasks.

Rule 1: each record has an outcome of its own: acked at its offset, or an error after which it may
be there or not.

Rule 2: a transaction ends as it was asked to. If it cannot be committed it is aborted; if that
fails too its result is unknown, and the producer begins again under the same transactional id,
which aborts what was left open.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio

from replication.client.producer import Producer
from replication.errors import KafkaError
from replication.net.seams import Seams
from scenarios.world.client import AckedBatch, NoAnswer, Outcome, SentRecords, key_of
from scenarios.world.clients.machine import Program
from scenarios.world.clients.witness import LEFT, THERE, Ending, WitnessedTransaction

OurProducer: TypeAlias = Producer[bytes, bytes]
Job: TypeAlias = Callable[[OurProducer, trio.Nursery], Awaitable[None]]
Finish: TypeAlias = Callable[[SentRecords, Outcome], None]


@attrs.define(eq=False, kw_only=True)
class SendingClient(Program):
    finish: Finish
    _jobs: deque[Job] = attrs.field(factory=deque, init=False)
    _unanswered: list[SentRecords] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.when_ended.append(self._leave)

    # Tasks.

    def send(self, batches: list[SentRecords]) -> None:
        """Send batches of one value each."""
        self._unanswered += batches

        async def job(producer: OurProducer, nursery: trio.Nursery) -> None:
            for batch in batches:
                await self._send(producer, nursery, batch)

        self._put(job)

    def transact(self, transaction: WitnessedTransaction, end: str) -> None:
        """Send batches in one transaction; `end` says whether to commit it, abort it once all is
        sent, or drop it at any point.
        """
        self._unanswered += transaction.batches

        async def job(producer: OurProducer, nursery: trio.Nursery) -> None:
            try:
                await self._transact(producer, nursery, transaction, end)
            finally:
                transaction.done = True

        self._put(job)

    def _put(self, job: Job) -> None:
        self._jobs.append(job)
        self.wake()

    # Work.

    async def work(self, seams: Seams) -> None:
        producer: OurProducer = Producer(self.servers, seams=seams, **self.keywords())
        async with producer:
            async with trio.open_nursery() as nursery:
                failure = await self._do_all(producer, nursery)
            if failure is not None:
                raise failure

    async def _do_all(self, producer: OurProducer, nursery: trio.Nursery) -> KafkaError | None:
        """Do every task until the program is to end; return the error that ends this producer, if
        any.
        """
        while self._jobs or not self.ending:
            if not self._jobs:
                await self.changed()
                continue
            try:
                await self._jobs.popleft()(producer, nursery)
            except KafkaError as error:
                return error
        return None

    async def _send(self, producer: OurProducer, nursery: trio.Nursery, batch: SentRecords) -> None:
        (value,) = batch.values
        key = key_of(value)
        batch.sent_at = self.world.time.now
        try:
            delivery = await producer.send_soon(
                batch.partition.topic,
                value.encode(),
                None if key is None else key.encode(),
                partition=batch.partition.partition,
            )
        except KafkaError as error:
            self._answered(batch, self._failed(error))
            return

        async def wait() -> None:
            try:
                metadata = await delivery.wait()
            except KafkaError as error:
                self._answered(batch, self._failed(error))
            else:
                known = metadata.offset >= 0
                self._answered(batch, AckedBatch(metadata.offset) if known else THERE)

        nursery.start_soon(wait)

    async def _transact(
        self,
        producer: OurProducer,
        nursery: trio.Nursery,
        transaction: WitnessedTransaction,
        end: str,
    ) -> None:
        transaction.began_at = self.world.time.now
        try:
            producer.begin_transaction()
            for batch in transaction.batches:
                await self._send(producer, nursery, batch)
            if end == "abort":
                await producer.flush()
            if end == "commit":
                transaction.commit_asked_at = self.world.time.now
                await producer.commit_transaction()
                transaction.end(Ending.COMMITTED, self.world.time.now)
                return
        except KafkaError as error:
            self.note(error)
        await producer.abort_transaction()
        transaction.end(Ending.ABORTED, self.world.time.now)

    def _failed(self, error: KafkaError) -> Outcome:
        self.note(error)
        return NoAnswer(error.code.name)

    def _answered(self, batch: SentRecords, outcome: Outcome) -> None:
        if batch.outcome is None:
            self._unanswered.remove(batch)
            self.finish(batch, outcome)

    def _leave(self) -> None:
        for batch in list(self._unanswered):
            self._answered(batch, LEFT)
        self._jobs.clear()
