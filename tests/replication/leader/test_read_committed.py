"""A fetch with read_committed: how far it reads, and which transactions it is to skip."""

from functools import partial

import pytest
from trio.testing import MockClock

from replication.leader.rules.fetch_data import FetchInfo, FetchPartitionData, Isolation
from storage.batch.records import ControlRecordType
from tests.replication.leader.leader_side import consumer_params
from tests.replication.leader.transactional_batches import PRODUCER, append, ended, in_transaction
from tests.replication.replica_manager.replica_manager_side import CLOCK, Node, beside


async def read_committed(
    node: Node, *, min_bytes: int = 1, max_wait_ms: int = 0
) -> FetchPartitionData:
    params = consumer_params(
        isolation=Isolation.LAST_STABLE, min_bytes=min_bytes, max_wait_ms=max_wait_ms
    )
    [(_, answer)] = await node.fetch(params, p0=FetchInfo(0))
    return answer


@pytest.mark.conformance("RM-6")
async def test_no_reader_sees_past_the_first_open_transaction(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        append(node, in_transaction(3))
        await node.follow(3)
        for min_bytes, max_wait_ms in ((0, 0), (1000, 1000)):
            began = CLOCK.now()
            answer = await read_committed(node, min_bytes=min_bytes, max_wait_ms=max_wait_ms)
            assert CLOCK.now() == pytest.approx(began + max_wait_ms / 1000)
            assert (answer.records, answer.last_stable_offset) == (None, 0)
            assert answer.aborted_transactions == ()
        append(node, ended(ControlRecordType.COMMIT))
        answer = await read_committed(node)
        assert (answer.records, answer.last_stable_offset) == (
            None,
            0,
        )  # its end is not replicated yet
        await node.follow(4)
        answer = await read_committed(node)
        assert answer.last_stable_offset == node.state().log_end_offset == 4
        assert answer.records_size == len(in_transaction(3)) + len(ended(ControlRecordType.COMMIT))
        assert answer.aborted_transactions == ()


@pytest.mark.conformance("RM-7")
async def test_a_fetch_that_has_waited_gets_the_aborted_transactions(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.lead()
        append(node, in_transaction(3))
        append(node, ended(ControlRecordType.ABORT))
        await node.follow(4)
        call = partial(read_committed, node, min_bytes=10_000, max_wait_ms=1000)
        async with beside(call) as fetched:
            assert not fetched.done
        assert fetched.at == pytest.approx(1.0)
        [aborted] = fetched.result.aborted_transactions or ()
        assert (aborted.producer_id, aborted.first_offset) == (PRODUCER, 0)
        assert fetched.result.records_size > 0
