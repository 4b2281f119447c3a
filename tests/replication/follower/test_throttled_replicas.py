"""A leader that holds back who is out of sync, and nobody else (KIP-73)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import FetchInfo, FetchPartitionData
from replication.replica_manager.bytes_in import metric
from replication.wire.fetch import PartitionData
from tests.replication.leader.leader_side import (
    LOCAL,
    REMOTE,
    batch,
    consumer_params,
    follower_params,
    registration,
)
from tests.replication.replica_manager.replica_manager_side import CLOCK, TP, Node, beside

NAMED = {"leader.replication.throttled.replicas": f"0:{LOCAL}"}


@asynccontextmanager
async def leading(*, isr: tuple[int, ...] = (LOCAL,), rate: int = 10) -> AsyncIterator[Node]:
    """A leader of two records that has given more than it may already."""
    config = BrokerConfig(node_id=LOCAL, leader_replication_throttled_rate=rate)
    async with Node(config=config).running() as node:
        await node.learn(registration(isr=isr), configs=NAMED)
        await node.produce(2)
        node.manager.quotas.leader.record({TP: 100}, now_ms=CLOCK.now_ms())
        yield node


async def ask(node: Node, *, max_wait_ms: int = 0, replica: int = REMOTE) -> FetchPartitionData:
    params = follower_params(replica, max_wait_ms=max_wait_ms)
    ((_, answer),) = await node.fetch(params, p0=FetchInfo(0, log_start_offset=0))
    return answer


async def test_a_throttled_follower_out_of_sync_gets_no_records_and_no_error(
    autojump_clock: MockClock,
) -> None:
    async with leading() as node:
        answer = await ask(node)
        assert (answer.error, answer.records_size) == (ErrorCode.NONE, 0)
        assert answer.log_start_offset == 0
        await CLOCK.sleep(10.5)
        assert (await ask(node)).records_size > 0, "100 bytes in more than ten seconds"


async def test_a_follower_in_sync_is_never_throttled(autojump_clock: MockClock) -> None:
    async with leading(isr=(LOCAL, REMOTE)) as node:
        assert (await ask(node)).records_size > 0


async def test_a_consumer_is_never_held_back_and_costs_nothing(autojump_clock: MockClock) -> None:
    async with leading(rate=1000) as node:
        before = node.manager.quotas.leader.rate.per_second(now_ms=CLOCK.now_ms())
        ((_, answer),) = await node.fetch(consumer_params(), p0=FetchInfo(0))
        assert answer.records_size > 0
        assert node.manager.quotas.leader.rate.per_second(now_ms=CLOCK.now_ms()) == before


async def test_what_a_throttled_follower_is_given_is_counted(autojump_clock: MockClock) -> None:
    async with leading(rate=1000) as node:
        before = node.manager.quotas.leader.rate.per_second(now_ms=CLOCK.now_ms())
        size = (await ask(node)).records_size
        assert size > 0
        now = node.manager.quotas.leader.rate.per_second(now_ms=CLOCK.now_ms())
        assert now == before + size


async def test_a_fetch_that_waits_is_not_answered_early_with_nothing(
    autojump_clock: MockClock,
) -> None:
    async with leading() as node, beside(lambda: ask(node, max_wait_ms=500)) as waiting:
        await node.produce(1)
        await CLOCK.sleep(0.1)
        assert not waiting.done, "what it may not have does not end its wait"
    assert waiting.at >= 0.5
    assert waiting.result.records_size == 0


async def test_a_fetch_that_waited_until_the_rate_had_fallen_gets_its_records(
    autojump_clock: MockClock,
) -> None:
    async with leading(rate=90) as node:
        assert (await ask(node)).records_size == 0
        answer = await ask(node, max_wait_ms=1500)
        assert answer.records_size > 0


async def test_another_set_of_replicas_and_another_rate_count_from_then_on(
    autojump_clock: MockClock,
) -> None:
    async with leading() as node:
        await node.learn(registration(isr=(LOCAL,), partition_epoch=1), configs={})
        assert (await ask(node)).records_size > 0, "throttled no more"
        await node.learn(registration(isr=(LOCAL,), partition_epoch=2), configs=NAMED)
        node.manager.quotas.leader.record({TP: 100}, now_ms=CLOCK.now_ms())
        assert (await ask(node)).records_size == 0
        await node.learn()
        assert not node.manager.quotas.leader.throttles, "a topic that is gone"


async def follow_one_batch(node: Node, adding: tuple[int, ...]) -> tuple[int, float, float]:
    """The size of what came, and what the meters of replication and reassignment say."""
    following = registration(leader=REMOTE, leader_epoch=1)
    await node.learn(attrs.evolve(following, adding=adding))
    records = batch(1, leader_epoch=1)
    node.manager.replicas.process_partition_data(TP, 0, 1, PartitionData(records=records))
    names = ("ReplicationBytesInPerSec", "ReassignmentBytesInPerSec")
    replication, reassignment = (node.metrics.read(metric(name)) for name in names)
    return len(records), replication, reassignment


@pytest.mark.conformance("RF-18")
async def test_what_only_moves_a_replica_is_counted_as_replicated_and_as_moved(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        size, replication, reassignment = await follow_one_batch(node, adding=(LOCAL,))
        assert (replication, reassignment) == (size, size)


@pytest.mark.conformance("RF-19")
async def test_where_this_replica_is_not_moved_it_is_replication_only(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        for adding in ((), (REMOTE,)):
            size, replication, reassignment = await follow_one_batch(node, adding=adding)
            assert (replication, reassignment) == (size, 0)
            await node.learn()
            node.metrics.meter(metric("ReplicationBytesInPerSec")).count = 0
