"""The log of a coordinator: its batches, and the state that is read from it."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.coordinator.log import LONG_RECORDS, CoordinatorLog
from replication.coordinator.rules import KeyAndValue
from replication.errors import ErrorCode
from replication.transactions.coordinator import TransactionShard
from replication.transactions.rules.records import key_of, read_batch, value_of
from replication.transactions.rules.transaction import Transaction
from storage.batch.compression import Codec
from storage.batch.record_batch import NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader
from storage.batch.records import Record, encode_batch
from tests.replication.leader.leader_side import LOCAL, REMOTE, TOPIC_ID, registration
from tests.replication.replica_manager.replica_manager_side import CLOCK, TP, Node, inline
from tests.replication.replica_manager.test_loop_stalls import Counting

EMPTY = Transaction(transactional_id="kept", producer_id=7, producer_epoch=0, timeout_ms=60_000)


def log_of(node: Node) -> CoordinatorLog:
    return CoordinatorLog(
        partition=TP,
        leader_epoch=node.state().leader_epoch,
        replica_manager=node.manager,
        clock=CLOCK,
        timeout_ms=1000,
        codec=Codec.NONE,
    )


@pytest.mark.parametrize(
    ("producer", "written"),
    [(None, (NO_PRODUCER_ID, NO_SEQUENCE)), ((7, 0), (7, 0))],
    ids=["of the coordinator", "of a transaction"],
)
async def test_every_batch_of_a_transaction_begins_at_sequence_0(
    autojump_clock: MockClock, producer: tuple[int, int] | None, written: tuple[int, int]
) -> None:
    """Kafka writes 0 there (CoordinatorRuntime), and no leader compares it."""
    config = BrokerConfig(node_id=LOCAL, transaction_partition_verification_enable=False)
    async with Node(config=config).running() as node, trio.open_nursery() as nursery:
        await node.lead(isr=(LOCAL,))
        log = log_of(node)
        nursery.start_soon(log.run)
        for number in range(2):
            record = KeyAndValue(b"key %d" % number, b"value")
            submission = log.submit([record], producer=producer)
            await submission.wait()
            assert submission.error is ErrorCode.NONE
        headers: list[BatchHeader] = []
        await log.read(lambda header, _: header, headers.append, chunk_bytes=1000, offload=inline)
        log.close()
    assert [(each.producer_id, each.base_sequence) for each in headers] == [written] * 2


def record(name: str, producer_id: int) -> Record:
    transaction = attrs.evolve(EMPTY, transactional_id=name, producer_id=producer_id)
    return Record(timestamp=0, key=key_of(name), value=value_of(transaction))


async def test_the_last_record_of_an_id_counts_and_a_tombstone_deletes_it(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead(isr=(LOCAL,))
        for batch in (
            [record("kept", 7), record("gone", 8), record("back", 9)],
            [Record(timestamp=0, key=key_of(name), value=None) for name in ("gone", "back")],
            [record("back", 10), record("kept", 11)],
        ):
            await node.produce(records=memoryview(bytearray(encode_batch(batch))))
        shard = TransactionShard(TOPIC_ID, log_of(node))
        await shard.log.read(read_batch, shard.load, chunk_bytes=100, offload=inline)
    found = {name: slot.current.producer_id for name, slot in shard.slots.items()}
    assert found == {"kept": 11, "back": 10}


@pytest.mark.parametrize("leads_on", [True, False])
async def test_a_long_batch_is_encoded_away_from_the_loop_and_checked_after_it(
    autojump_clock: MockClock, leads_on: bool
) -> None:
    """Another broker may lead by then, and have written."""
    node = Node(config=BrokerConfig(node_id=LOCAL))
    async with node.running(), trio.open_nursery() as nursery:
        await node.lead(isr=(LOCAL,))
        offload = node.manager.offload = Counting()
        log = log_of(node)
        nursery.start_soon(log.run)
        records = [KeyAndValue(b"key %d" % each, b"value") for each in range(LONG_RECORDS + 1)]

        async def lose() -> None:
            offload.meanwhile = trio.lowlevel.checkpoint
            await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))

        if not leads_on:
            offload.meanwhile = lose
        before = offload.calls
        submission = log.submit(records)
        await submission.wait()
        log.close()
        assert offload.calls > before
        if leads_on:
            assert submission.error is ErrorCode.NONE
            assert node.state().log_end_offset == LONG_RECORDS + 1
        else:
            assert submission.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert node.state().log_end_offset == 0
