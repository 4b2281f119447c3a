"""What a coordinator's writer puts into its log."""

import pytest
import trio
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.coordinator.log import LogWriter
from replication.coordinator.rules.records import KeyAndValue
from replication.errors import ErrorCode
from storage.batch.compression import Codec
from storage.batch.record_batch import NO_PRODUCER_ID, NO_SEQUENCE, walk
from tests.replication.leader.leader_side import LOCAL
from tests.replication.replica_manager.replica_manager_side import CLOCK, TP, Node


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
        writer = LogWriter(
            partition=TP,
            leader_epoch=node.state().leader_epoch,
            replica_manager=node.manager,
            clock=CLOCK,
            timeout_ms=1000,
            codec=Codec.NONE,
        )
        nursery.start_soon(writer.run)
        for number in range(2):
            record = KeyAndValue(b"key %d" % number, b"value")
            submission = writer.submit([record], producer=producer)
            await submission.wait()
            assert submission.error is ErrorCode.NONE
        writer.close()
        log = node.manager.hosted.get(TP).log
        data = log.read(0, 1000, max_offset_exclusive=log.log_end_offset, min_one=True)
        assert data.records is not None
        headers = [header for _, header in walk(data.records.read())]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [written] * 2
