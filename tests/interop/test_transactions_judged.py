"""Transactions on Apache Kafka's brokers, judged as Jepsen does: no anomaly is in what clients saw.

    s1, s2   send transactions over all partitions of `in`, and commit, abort or drop them
    c1, c2   copy `in` to `out`, each transaction with its offsets (KIP-447)
    r1       reads `in` and `out`, read_committed, in a group of the new protocol (KIP-848)
    r2       reads both, read_uncommitted

They are the programs of the simulator (`scenarios.world.clients`), here over real sockets, while
brokers are killed and frozen, and a copier too. `CHAOS_SEED` picks another run, `CHAOS_FAULTS` a
longer one.
"""

import os
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from replication.client.consumer.records import ConsumerRecord
from replication.events import EventSink, ignore
from replication.net import production_seams
from replication.net.seams import Seams
from replication.wire.produce import ACKS_ALL
from scenarios.checkers.anomalies import mistakes
from scenarios.checkers.client_accounts import (
    FinalRecords,
    mistakes_about_copy,
    mistakes_about_groups,
    with_a_failure,
)
from scenarios.story.observed import final_operations, reader_operations, transaction_operation
from scenarios.world.client import Outcome, SentRecords
from scenarios.world.clients.copying import Copier
from scenarios.world.clients.machine import Program, Time
from scenarios.world.clients.reading import Reader
from scenarios.world.clients.sending import SendingClient
from scenarios.world.clients.witness import Ending, Witness, WitnessedTransaction
from scenarios.world.history import ClientOperation, History
from storage.types import Offset, TopicPartition
from tests.interop.bad_luck import PATIENCE_SECONDS, BadLuck
from tests.interop.kafka import Kafka
from tests.interop.own_clients import asked_until, consumer_of, make_topic

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SEED = int(os.environ.get("CHAOS_SEED", "1"))
FAULTS = int(os.environ.get("CHAOS_FAULTS", "3"))
SOURCE, TARGET = "in", "out"
SOURCES = [TopicPartition(SOURCE, partition) for partition in range(3)]
COPY = TopicPartition(TARGET, 0)
PARTITIONS = [*SOURCES, COPY]
PROPERTIES = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
}
TRANSACTIONAL = {"transaction.timeout.ms": "10000", "delivery.timeout.ms": "60000"}
MEMBER = {"session.timeout.ms": "6000"}


class _Now(Time):
    @property
    def now(self) -> float:
        return time.monotonic()


@attrs.frozen
class ThisMachine:
    """A program that is killed here is cancelled; its sockets are closed, and that is all."""

    time: Time = attrs.field(factory=_Now)

    def node(self, _: str) -> Seams:
        return production_seams()

    def sink(self, _: str) -> EventSink:
        return ignore

    def kill(self, name: str) -> None: ...

    def stopped(self, name: str) -> None: ...


@attrs.define(eq=False)
class Clients:
    """The programs of a run, past ones too, and what they saw."""

    servers: list[str]
    nursery: trio.Nursery
    chance: random.Random
    witness: Witness = attrs.field(factory=Witness)
    machines: ThisMachine = attrs.field(factory=ThisMachine)
    programs: list[Program] = attrs.field(factory=list)
    _sent: int = 0

    def begin(self, program: Program) -> None:
        self.programs.append(program)
        self.nursery.start_soon(program.run)

    def sender(self, name: str) -> SendingClient:
        program = SendingClient(
            name=name,
            world=self.machines,
            servers=self.servers,
            config={"transactional.id": name, **TRANSACTIONAL},
            finish=self._finish,
        )
        self.begin(program)
        return program

    def _finish(self, batch: SentRecords, outcome: Outcome) -> None:
        batch.outcome, batch.answered_at = outcome, time.monotonic()

    def copier(self, name: str) -> Copier:
        program = Copier(
            name=name,
            world=self.machines,
            servers=self.servers,
            config={"transactional.id": name, **TRANSACTIONAL, **MEMBER},
            witness=self.witness,
            group="copiers",
            source=SOURCE,
            target=COPY,
        )
        self.begin(program)
        return program

    def reader(self, name: str, *, group: str | None, config: Mapping[str, str]) -> None:
        alone = group is None
        self.begin(
            Reader(
                name=name,
                world=self.machines,
                servers=self.servers,
                config=dict(config),
                witness=self.witness,
                chance=random.Random(self.chance.random()),
                group=group,
                partitions=PARTITIONS if alone else (),
                topics=() if alone else (SOURCE, TARGET),
            )
        )

    def transact(self, sender: SendingClient) -> WitnessedTransaction:
        """Send some values to some partitions in one transaction."""
        batches = []
        for _ in range(self.chance.randint(1, 6)):
            self._sent += 1
            batch = SentRecords(self.chance.choice(SOURCES), (f"v{self._sent}",), ACKS_ALL)
            batch.producer, batch.attempts = sender.name, 2
            batches.append(batch)
        transaction = WitnessedTransaction(producer=sender.name, batches=batches)
        self.witness.transactions.append(transaction)
        (end,) = self.chance.choices(["commit", "abort", "drop"], [8, 2, 1])
        sender.transact(transaction, end)
        return transaction

    async def keep_sending(self, sender: SendingClient, stopped: trio.Event) -> None:
        transaction = self.transact(sender)
        while not stopped.is_set():
            if transaction.done:
                transaction = self.transact(sender)
            await trio.sleep(self.chance.random() / 10)

    async def end(self, *kinds: type[Program]) -> None:
        for each in self.programs:
            if isinstance(each, kinds) and not each.killed:
                each.end()
                await each.ended.wait()


@asynccontextmanager
async def running(kafka: Kafka) -> AsyncIterator[Clients]:
    async with trio.open_nursery() as nursery:
        yield Clients(kafka.bootstrap_servers.split(","), nursery, random.Random(SEED))
        nursery.cancel_scope.cancel()


async def read_to_the_end(kafka: Kafka, isolation: str) -> list[ConsumerRecord]:
    """Return all records that a consumer with this isolation level reads, up to the log ends."""
    found: list[ConsumerRecord] = []
    async with consumer_of(kafka, isolation_level=isolation) as consumer:
        consumer.assign(PARTITIONS)
        ends = await consumer.end_offsets(PARTITIONS)
        with trio.fail_after(PATIENCE_SECONDS):
            while any([await consumer.position(each) < ends[each] for each in PARTITIONS]):
                found += await consumer.poll(timeout_ms=500)
    return found


async def final_records(kafka: Kafka) -> dict[TopicPartition, FinalRecords]:
    everything = await read_to_the_end(kafka, "read_uncommitted")
    committed = await read_to_the_end(kafka, "read_committed")

    def of(partition: TopicPartition, records: list[ConsumerRecord]) -> dict[Offset, str]:
        return {
            each.offset: (each.value or b"").decode()
            for each in records
            if each.topic_partition == partition
        }

    return {
        each: FinalRecords(all=of(each, everything), committed=of(each, committed))
        for each in PARTITIONS
    }


def history_of(witness: Witness, final: Mapping[TopicPartition, FinalRecords]) -> History:
    sent_last = {
        (batch.partition, batch.values[0]): batch
        for each in witness.transactions
        for batch in each.batches
    }
    counted = frozenset(map(id, sent_last.values()))
    operations: list[ClientOperation] = [
        transaction_operation(each, PARTITIONS, counted) for each in witness.transactions
    ]
    for partition, there in final.items():
        operations += reader_operations(partition, witness.happened[partition])
        operations += final_operations(partition, there)
    return History(operations=operations)


def mistakes_of(witness: Witness, final: Mapping[TopicPartition, FinalRecords]) -> list[str]:
    found = [str(each) for each in mistakes(history_of(witness, final))]
    found += [each for transaction in witness.transactions for each in with_a_failure(transaction)]
    for partition in PARTITIONS:
        found += mistakes_about_groups(witness.happened[partition], final[partition])
    sources = {str(each): list(final[each].committed.values()) for each in SOURCES}
    sent = [value for values in sources.values() for value in values]
    found += mistakes_about_copy(sources, sent, list(final[COPY].committed.values()))
    return found


def without_one_of(
    final: Mapping[TopicPartition, FinalRecords], partition: TopicPartition
) -> dict[TopicPartition, FinalRecords]:
    """Return the records of a cluster that had lost a committed one."""
    there = final[partition]
    lost = max(there.committed)

    def kept(records: Mapping[Offset, str]) -> dict[Offset, str]:
        return {offset: value for offset, value in records.items() if offset != lost}

    return {**final, partition: FinalRecords(all=kept(there.all), committed=kept(there.committed))}


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param((), id="three brokers of Apache Kafka"),
        pytest.param((3,), id="one of three is ours"),
    ],
)
async def test_no_anomaly_is_in_what_clients_saw(tmp_path: Path, ours: tuple[int, ...]) -> None:
    chance = random.Random(SEED)
    async with Kafka(data_dir=tmp_path, brokers=3, ours=ours, properties=PROPERTIES) as kafka:
        await make_topic(kafka, SOURCE, *[(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        await make_topic(kafka, TARGET, (2, 3, 1))
        luck = BadLuck(kafka, chance, partial(time.sleep, 0.05))
        async with running(kafka) as clients:
            senders = [clients.sender("s1"), clients.sender("s2")]
            first, second = clients.copier("c1"), clients.copier("c2")
            clients.reader(
                "r1",
                group="readers",
                config={"group.protocol": "consumer", "isolation.level": "read_committed"},
            )
            clients.reader("r2", group=None, config={})
            stopped = trio.Event()
            for each in senders:
                clients.nursery.start_soon(clients.keep_sending, each, stopped)
            await trio.to_thread.run_sync(luck.wait_until_in_sync)
            for _ in range(FAULTS):
                await trio.to_thread.run_sync(luck.strike)
            first.kill()
            await first.ended.wait()
            clients.copier("c1")
            await trio.to_thread.run_sync(luck.strike)
            stopped.set()
            await clients.end(SendingClient)

            async def copied_all() -> bool:
                final = await final_records(kafka)
                sources = sum(len(final[each].committed) for each in SOURCES)
                return len(final[COPY].committed) == sources

            await asked_until(copied_all, bool, seconds=PATIENCE_SECONDS)
            await clients.end(Copier, Reader)
            assert second.committed > 0
        final = await final_records(kafka)
    witness = clients.witness
    story = f"seed {SEED}: {luck.happened}"
    endings = [each.ending for each in witness.transactions]
    assert endings.count(Ending.COMMITTED) > 20, story
    assert endings.count(Ending.ABORTED) > 2, story
    assert all(witness.happened[each] for each in PARTITIONS), story
    assert mistakes_of(witness, final) == [], story
    assert mistakes_of(witness, without_one_of(final, SOURCES[0])), "a loss would be seen"
