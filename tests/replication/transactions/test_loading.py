"""A coordinator reads its transactions from the log when its leader epoch begins."""

import attrs
from trio.testing import MockClock

from replication.transactions.loading import load
from replication.transactions.rules import Transaction, key_of, value_of
from storage.batch.records import Record, encode_batch
from tests.replication.leader.leader_side import LOCAL
from tests.replication.replica_manager.replica_manager_side import TP, Node, inline

EMPTY = Transaction(transactional_id="kept", producer_id=7, producer_epoch=0, timeout_ms=60_000)


def record(name: str, producer_id: int) -> Record:
    transaction = attrs.evolve(EMPTY, transactional_id=name, producer_id=producer_id)
    return Record(timestamp=0, key=key_of(name), value=value_of(transaction))


async def test_the_last_record_of_an_id_counts_and_a_tombstone_forgets_it(
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
        leader_epoch = node.state().leader_epoch
        found = await load(
            node.manager, TP, leader_epoch=leader_epoch, chunk_bytes=100, offload=inline
        )
    assert {name: each.producer_id for name, each in found.items()} == {"kept": 11, "back": 10}
