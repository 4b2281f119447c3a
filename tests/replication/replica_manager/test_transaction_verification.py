"""A leader asks before a batch opens a transaction (KIP-890): whom, when, and what becomes of it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.errors import ErrorCode, KafkaError
from replication.replica_manager import (
    ProduceResult,
    Support,
    TransactionalBatches,
    TransactionVerification,
    refusals,
    support_of_offset_commit,
    support_of_produce,
    the_one_producer,
)
from storage.batch.records import ControlRecordType, Record, encode_batch
from storage.types import TopicPartition
from tests.replication.leader.leader_side import REMOTE, registration
from tests.replication.leader.transactional_batches import PRODUCER, append, ended
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node, beside

SWITCH = "transaction.partition.verification.enable"


@attrs.define(eq=False)
class Coordinators:
    """Answer what the script says, one line for each question; then that all is well."""

    script: list[ErrorCode] = attrs.field(factory=list)
    asked: list[tuple[frozenset[TopicPartition], bool]] = attrs.field(factory=list)
    before_answer: Callable[[], None] = lambda: None

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert (transactional_id, producer) == ("tx", (PRODUCER, 0))
        self.asked.append((partitions, verify_only))
        await trio.lowlevel.checkpoint()
        self.before_answer()
        return dict.fromkeys(partitions, self.script.pop(0) if self.script else ErrorCode.NONE)


@attrs.define(eq=False, kw_only=True)
class Stage:
    node: Node
    coordinators: Coordinators
    verification: TransactionVerification

    async def produce(
        self, *partitions: TopicPartition, sequence: int = 0, support: Support = Support.ABORTABLE
    ) -> Mapping[TopicPartition, ProduceResult]:
        """As the handler of Produce does it."""
        wanted = partitions or (TP,)
        batches = TransactionalBatches(
            transactional_id="tx",
            producer_id=PRODUCER,
            producer_epoch=0,
            sequences=dict.fromkeys(wanted, sequence),
        )
        verified = await self.verification.verify(batches, support)
        refused = refusals(verified.errors, support)
        entries = {each: batch(sequence) for each in wanted if each not in refused}
        return refused | await self.node.manager.produce.append(
            timeout_ms=1000, required_acks=1, entries=entries, guards=verified.guards
        )

    async def error(self, sequence: int = 0, support: Support = Support.ABORTABLE) -> ErrorCode:
        return (await self.produce(sequence=sequence, support=support))[TP].error

    async def switch(self, *, on: bool) -> None:
        self.node.manager.config.update({None: {SWITCH: str(on).lower()}})
        await trio.lowlevel.checkpoint()


def batch(sequence: int) -> memoryview:
    encoded = encode_batch(
        [Record(timestamp=0, value=b"x")],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return memoryview(bytearray(encoded))


@asynccontextmanager
async def leading(*script: ErrorCode, verifies: bool = True) -> AsyncIterator[Stage]:
    async with Node().running() as node:
        await node.learn(registration(), registration())
        coordinators = Coordinators([*script])
        verification = TransactionVerification(
            replicas=node.manager.hosted,
            config=node.manager.config,
            clock=CLOCK,
            coordinators=coordinators,
        )
        stage = Stage(node=node, coordinators=coordinators, verification=verification)
        await stage.switch(on=verifies)
        yield stage


@pytest.mark.conformance("RM-104", "PT-62")
async def test_the_first_batch_is_asked_about_until_the_answer_is_yes() -> None:
    async with leading(ErrorCode.INVALID_TXN_STATE) as stage:
        assert await stage.error() is ErrorCode.INVALID_TXN_STATE
        assert stage.node.state().log_end_offset == 0
        assert await stage.error() is ErrorCode.NONE
        assert stage.coordinators.asked == [(frozenset({TP}), True)] * 2
        assert await stage.error(sequence=1) is ErrorCode.NONE
        assert len(stage.coordinators.asked) == 2, "it is open"
        append(stage.node, ended(ControlRecordType.COMMIT))
        assert await stage.error(sequence=2) is ErrorCode.NONE
        assert len(stage.coordinators.asked) == 3, "and this is the next one"


@pytest.mark.conformance("RM-105")
async def test_what_comes_behind_a_batch_that_was_refused_does_not_go_before_it() -> None:
    async with leading(ErrorCode.NOT_COORDINATOR) as stage:
        assert await stage.error() is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await stage.error(sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await stage.error() is ErrorCode.NONE
        assert await stage.error(sequence=1) is ErrorCode.NONE


@pytest.mark.conformance("RM-106")
async def test_one_question_for_all_partitions_of_a_request() -> None:
    async with leading() as stage:
        results = await stage.produce(TP, SECOND)
        assert {each.error for each in results.values()} == {ErrorCode.NONE}
        assert stage.coordinators.asked == [(frozenset({TP, SECOND}), True)]


async def test_guards_come_in_the_order_of_the_batches() -> None:
    async with leading() as stage:
        await stage.node.learn(*[registration()] * 12)
        wanted = [TopicPartition("topic", each) for each in range(12)]
        batches = TransactionalBatches(
            transactional_id="tx",
            producer_id=PRODUCER,
            producer_epoch=0,
            sequences=dict.fromkeys(wanted, 0),
        )
        verified = await stage.verification.verify(batches, Support.ABORTABLE)
        assert [*verified.guards] == wanted


@pytest.mark.conformance("RM-108", "RM-112")
async def test_who_does_not_lead_asks_nobody() -> None:
    async with leading() as stage:
        await stage.node.learn(registration(leader=REMOTE, leader_epoch=2), registration())
        gone = TopicPartition("topic", 9)
        results = await stage.produce(TP, gone)
        assert results[TP].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert results[gone].error in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert stage.coordinators.asked == []


@pytest.mark.conformance("RM-109")
async def test_where_nothing_is_verified_nobody_is_asked_nor_about_what_is_open_then() -> None:
    async with leading(verifies=False) as stage:
        assert await stage.error() is ErrorCode.NONE
        await stage.switch(on=True)
        assert await stage.error(sequence=1) is ErrorCode.NONE
        assert stage.coordinators.asked == []


@pytest.mark.conformance("RM-110")
async def test_when_verification_is_switched_off_the_next_append_goes_through() -> None:
    async with leading(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) as stage:
        assert await stage.error() is ErrorCode.NOT_ENOUGH_REPLICAS
        producers = stage.node.manager.hosted.get(TP).log.producers
        guard = producers.begin_verification(
            PRODUCER, producer_epoch=0, sequence=0, bumps_epoch=False, now_ms=0
        )
        assert guard is not None
        await stage.switch(on=False)
        assert await stage.error() is ErrorCode.NONE
        assert not producers.is_verifying(PRODUCER, guard)
        assert len(stage.coordinators.asked) == 1


@pytest.mark.conformance("RM-107")
def test_a_request_is_of_one_producer() -> None:
    with pytest.raises(KafkaError) as refused:
        the_one_producer([(7, 0), (8, 0)])
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert the_one_producer([(7, 0), (7, 0)]) == (7, 0)
    assert the_one_producer([]) is None


@pytest.mark.parametrize(
    ("said", "support", "answered"),
    [
        (ErrorCode.PRODUCER_FENCED, Support.BASIC, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, Support.BASIC, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, Support.ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, Support.BASIC, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Support.ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Support.ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, Support.ADDS_PARTITIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            Support.BASIC,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ],
)
async def test_a_producer_gets_an_error_that_it_can_handle(
    said: ErrorCode, support: Support, answered: ErrorCode
) -> None:
    async with leading(said) as stage:
        assert await stage.error(support=support) is answered


def test_what_a_client_makes_of_transactions_is_in_its_versions() -> None:
    assert [support_of_produce(each) for each in (10, 11, 12)] == [*Support]
    assert [support_of_offset_commit(each) for each in (3, 4, 5)] == [*Support]


async def test_the_transaction_before_is_waited_for_a_little(autojump_clock: MockClock) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    async with leading(busy, busy) as stage:
        assert await stage.error(support=Support.ADDS_PARTITIONS) is ErrorCode.NONE
        assert [verify_only for _, verify_only in stage.coordinators.asked] == [False] * 3
    async with leading(*[busy] * 100) as stage:
        began = CLOCK.now()
        assert await stage.error(support=Support.ADDS_PARTITIONS) is busy
        assert CLOCK.now() == pytest.approx(began + 0.1)


async def test_an_end_that_comes_while_the_coordinator_is_asked_has_it_asked_again() -> None:
    async with leading() as stage:
        ends = [partial(append, stage.node, ended(ControlRecordType.ABORT))]
        stage.coordinators.before_answer = lambda: ends.pop()() if ends else None
        stage.coordinators.script = [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
        assert await stage.error() is ErrorCode.TRANSACTION_ABORTABLE
        assert len(stage.coordinators.asked) == 2


async def test_an_end_that_comes_before_the_append_refuses_it() -> None:
    async with leading() as stage:
        batches = TransactionalBatches(
            transactional_id="tx", producer_id=PRODUCER, producer_epoch=0, sequences={TP: 0}
        )
        verified = await stage.verification.verify(batches, Support.ABORTABLE)
        append(stage.node, ended(ControlRecordType.ABORT))
        results = await stage.node.manager.produce.append(
            timeout_ms=1000, required_acks=1, entries={TP: batch(0)}, guards=verified.guards
        )
        assert results[TP].error is ErrorCode.INVALID_TXN_STATE


async def test_who_asks_may_go_away(autojump_clock: MockClock) -> None:
    async with leading() as stage:
        with trio.CancelScope() as scope:
            stage.coordinators.before_answer = scope.cancel
            await stage.error()
        stage.coordinators.before_answer = lambda: None
        async with beside(stage.error) as again:
            pass
        assert again.result is ErrorCode.NONE
