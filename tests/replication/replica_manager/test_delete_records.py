"""Deleting records: what is refused, who is waited for, and who learns of it."""

import random
from functools import partial

import pytest
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import FetchInfo
from replication.replica_manager import DeleteRecordsResult
from replication.wire.fetch import PartitionData
from storage.testing import FaultyFileSystem
from storage.types import Offset, TopicPartition
from tests.replication.leader.leader_side import (
    LOCAL,
    OTHER,
    REMOTE,
    Broker,
    batch,
    broker,
    consumer_params,
    epoch_of,
    fetch,
    follower_params,
    lead,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, SECOND, TP, Node, beside

ALL = (LOCAL, REMOTE, OTHER)


async def delete(
    node: Node, offset: Offset, *, of: TopicPartition = TP, timeout_ms: int = 1000
) -> DeleteRecordsResult:
    results = await node.manager.delete_records.delete({of: offset}, timeout_ms=timeout_ms)
    return results[of]


async def follow(node: Node, offset: Offset, *, start: Offset, replica: int = REMOTE) -> None:
    """A follower's fetch at `offset`, from a log that begins at `start`."""
    info = FetchInfo(offset, log_start_offset=start)
    await node.fetch(follower_params(replica), p0=info)


async def replicated(node: Node, records: int, *, isr: tuple[int, ...] = (LOCAL, REMOTE)) -> None:
    """Lead, with so many records that every other member of the ISR holds as well."""
    await node.learn(registration(isr=isr, replicas=isr))
    await node.produce(records)
    for replica in isr[1:]:
        await follow(node, records, start=0, replica=replica)
    assert node.state().high_watermark == records


async def test_records_are_deleted_when_every_live_follower_has_deleted_them(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await replicated(node, 10, isr=ALL)
        async with beside(partial(delete, node, 6)) as deleted:
            assert node.state().log_start_offset == 6
            await follow(node, 10, start=6)
            assert not deleted.done
            await follow(node, 10, start=5, replica=OTHER)
            assert not deleted.done
            await follow(node, 10, start=7, replica=OTHER)
        assert deleted.result == DeleteRecordsResult(low_watermark=6)
        assert deleted.at == pytest.approx(0.05)
        assert node.manager.purgatories.delete_records.waiting == 0


async def test_a_lonely_leader_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10, isr=(LOCAL,))
        assert await delete(node, 4) == DeleteRecordsResult(low_watermark=4)
        assert CLOCK.now() == 0


async def test_minus_one_is_the_high_watermark(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        await node.produce(5)
        async with beside(partial(delete, node, -1)) as deleted:
            await follow(node, 10, start=10)
        assert deleted.result == DeleteRecordsResult(low_watermark=10)
        assert node.state().log_end_offset == 15


async def test_what_was_deleted_before_is_deleted(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10, isr=(LOCAL,))
        await delete(node, 8)
        assert await delete(node, 3) == DeleteRecordsResult(low_watermark=8)
        assert node.state().log_start_offset == 8


@pytest.mark.parametrize("offset", [-2, 11, 2**40])
async def test_an_offset_outside_what_is_committed_is_refused(
    autojump_clock: MockClock, offset: Offset
) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        await node.produce(5)
        result = await delete(node, offset)
        assert result == DeleteRecordsResult(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert node.state().log_start_offset == 0


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
    ],
)
async def test_a_topic_that_is_only_compacted_keeps_its_records(
    autojump_clock: MockClock, policy: str, error: ErrorCode
) -> None:
    async with Node().running() as node:
        await node.learn(
            registration(isr=(LOCAL,), replicas=(LOCAL,)), configs={"cleanup.policy": policy}
        )
        await node.produce(records=batch(3))
        assert (await delete(node, 0)).error is error


async def test_who_does_not_lead_or_has_no_such_partition_says_so(
    autojump_clock: MockClock,
) -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    async with Node().running() as node:
        await node.learn(
            registration(leader=REMOTE), registration(leader=REMOTE, replicas=(REMOTE, OTHER))
        )
        asked = {TP: 0, SECOND: 0, TopicPartition("nothing", 0): 0, internal: 0}
        results = await node.manager.delete_records.delete(asked, timeout_ms=1000)
        assert {each: result.error for each, result in results.items()} == {
            TP: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            SECOND: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            TopicPartition("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            internal: ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert all(result.low_watermark == -1 for result in results.values())
        assert CLOCK.now() == 0


async def test_a_follower_that_does_not_follow_costs_the_time_that_was_given(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        result = await delete(node, 6, timeout_ms=700)
        assert result == DeleteRecordsResult(error=ErrorCode.REQUEST_TIMED_OUT, low_watermark=0)
        assert CLOCK.now() == pytest.approx(0.7)
        # The leader's own log begins there all the same.
        assert node.state().log_start_offset == 6


async def test_a_follower_that_dies_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        async with beside(partial(delete, node, 6)) as deleted:
            await node.learn(*[registration()], brokers=[broker(REMOTE, fenced=True)])
        assert deleted.result == DeleteRecordsResult(low_watermark=6)
        assert deleted.at == pytest.approx(0.05)


async def test_losing_the_lead_ends_the_wait(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        async with beside(partial(delete, node, 6)) as deleted:
            await node.learn(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
        assert deleted.result == DeleteRecordsResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_deleting_the_topic_ends_the_wait(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        async with beside(partial(delete, node, 6)) as deleted:
            await node.learn()
        assert deleted.result == DeleteRecordsResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_consumer_below_the_new_start_is_out_of_range(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await replicated(node, 10, isr=(LOCAL,))
        await delete(node, 6)
        ((_, below),) = await node.fetch(consumer_params(), p0=FetchInfo(5))
        ((_, at),) = await node.fetch(consumer_params(), p0=FetchInfo(6))
        assert (below.error, below.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
        assert (at.error, at.log_start_offset) == (ErrorCode.NONE, 6)
        assert at.records is not None


async def test_a_fetch_that_waited_meanwhile_is_answered_with_the_new_start(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await replicated(node, 10)
        params = follower_params(max_wait_ms=500)
        async with beside(lambda: node.fetch(params, p0=FetchInfo(10, log_start_offset=0))) as late:
            await delete(node, 6, timeout_ms=0)
        ((_, answer),) = late.result
        assert answer.log_start_offset == 6
        assert late.at == pytest.approx(0.5)


async def test_a_follower_takes_over_where_its_leaders_log_begins(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(registration(leader=REMOTE))
        for records, log_start_offset in ((batch(10, leader_epoch=1), 0), (None, 6)):
            node.manager.replicas.process_partition_data(
                TP,
                node.state().log_end_offset,
                1,
                PartitionData(
                    partition_index=0,
                    high_watermark=10,
                    log_start_offset=log_start_offset,
                    records=records,
                ),
            )
        assert node.state().log_start_offset == 6
        assert node.manager.replicas.log_start_offset(TP) == 6


@pytest.mark.parametrize(
    ("leader_epoch", "log_start_offset", "after"),
    [
        pytest.param(2, 3, 3, id="nothing of it was compared"),
        pytest.param(2, 2, 0, id="it goes on from what the leader has"),
        pytest.param(1, 3, 0, id="it is the leader's of before"),
    ],
)
@pytest.mark.parametrize("sent", [0, 2])
async def test_a_kill_brings_nothing_back_that_no_leader_has_compared(
    autojump_clock: MockClock, leader_epoch: int, log_start_offset: int, after: int, sent: int
) -> None:
    """The next leader has deleted all that this log has, and may have had something else there."""
    disk = FaultyFileSystem(random.Random(1))
    led = registration(leader=REMOTE, leader_epoch=leader_epoch, partition_epoch=2)
    async with Node(file_system=disk).running() as node:

        def append(records: memoryview | None, epoch: int, *, start: Offset) -> None:
            end = node.state().log_end_offset
            data = PartitionData(high_watermark=5, log_start_offset=start, records=records)
            node.manager.replicas.process_partition_data(TP, end, epoch, data)

        await node.learn(registration(leader=REMOTE))
        append(batch(3, leader_epoch=1), 1, start=0)
        await node.learn(led)
        more = batch(sent, base_offset=3, leader_epoch=leader_epoch) if sent else None
        append(more, leader_epoch, start=log_start_offset)
        assert node.state().log_start_offset == log_start_offset
        disk.detach()
    async with Node(file_system=disk.reopen()).running() as node:
        await node.learn(led)
        assert (node.state().log_start_offset, node.state().log_end_offset) == (after, 3 + sent)


def test_the_low_watermark_is_the_least_start_of_those_alive() -> None:
    around = Broker()
    partition = around.leader(isr=ALL, records=10)
    assert lead(partition).low_watermark == -1  # nobody has fetched yet
    for replica in (REMOTE, OTHER):
        fetch(partition, 10, replica=replica)
    assert lead(partition).low_watermark == 0
    assert around.log_starts_moved == 2
    fetch(partition, 10)
    assert around.log_starts_moved == 2
    partition.delete_records(8)
    follower = lead(partition).followers[REMOTE]
    follower.log_start_offset = 4
    assert lead(partition).low_watermark == 0
    around.set_broker(OTHER, fenced=True)
    assert lead(partition).low_watermark == 4
    around.set_broker(REMOTE, broker_epoch=epoch_of(REMOTE), in_controlled_shutdown=True)
    assert lead(partition).low_watermark == 4
    around.set_broker(REMOTE, fenced=True)
    assert lead(partition).low_watermark == 8


def test_a_new_leader_epoch_knows_no_followers_log_start() -> None:
    around = Broker()
    partition = around.leader(records=10)
    fetch(partition, 10)
    assert partition.deleted(0) is ErrorCode.NONE
    partition.make_follower(registration(leader=REMOTE, leader_epoch=2, partition_epoch=2))
    partition.make_leader(registration(leader_epoch=3, partition_epoch=3))
    assert partition.deleted(0) is None
