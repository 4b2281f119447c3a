"""`flush.messages` at a leader: nobody is answered before the disk is, and the loop goes on."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from replication.errors import ErrorCode
from replication.leader.rules.fetch_data import FetchInfo
from storage.testing import FaultyFileSystem
from storage.testing.disk import Fault
from tests.replication.leader.leader_side import LOCAL, batch, consumer_params, registration
from tests.replication.replica_manager.replica_manager_side import (
    CLOCK,
    SECOND,
    TP,
    Node,
    beside,
    inline,
)

T = TypeVar("T")

ALONE = registration(isr=(LOCAL,), replicas=(LOCAL,))
EACH = {"flush.messages": "1"}


@attrs.define(eq=False)
class Gate:
    """An offload that goes on when it is opened; `waiting` at it."""

    opened: trio.Event = attrs.field(factory=trio.Event)
    waiting: int = 0

    async def __call__(self, fn: Callable[[], T], /) -> T:
        self.waiting += 1
        await self.opened.wait()
        self.waiting -= 1
        return await inline(fn)


async def gated(node: Node, gate: Gate) -> None:
    """Lead, and from here on have the disk wait."""
    gate.opened.set()
    await node.learn(ALONE, ALONE, configs=EACH)
    gate.opened = trio.Event()


@pytest.mark.parametrize("acks", [1, -1])
async def test_nobody_is_answered_or_shown_anything_before_it_lasts(
    autojump_clock: MockClock, acks: int
) -> None:
    gate = Gate()
    gate.opened.set()
    async with Node(offload=gate).running() as node:
        await gated(node, gate)
        async with beside(partial(node.produce, 3, acks=acks)) as produced:
            assert (produced.done, gate.waiting) == (False, 1)
            assert (node.state().log_end_offset, node.state().high_watermark) == (3, 0)
            [(_, seen)] = await node.fetch(consumer_params(max_wait_ms=0), p0=FetchInfo(0))
            assert seen.records_size == 0
            gate.opened.set()
        assert produced.result.error is ErrorCode.NONE
        assert node.state().high_watermark == 3
        assert node.manager.hosted.get(TP).log.recovery_point == 3


async def test_who_waits_while_another_syncs_finds_it_done(autojump_clock: MockClock) -> None:
    gate = Gate()
    gate.opened.set()
    async with Node(offload=gate).running() as node:
        await gated(node, gate)
        log = node.manager.hosted.get(TP).log
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(node.produce)
            await CLOCK.sleep(0.01)
            assert (log.log_end_offset, gate.waiting) == (5, 1)
            gate.opened.set()
        assert (log.recovery_point, log.local.flushes) == (5, 1)


async def test_what_the_disk_refuses_is_not_acknowledged(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(ALONE, ALONE, configs=EACH)
        assert isinstance(node.file_system, FaultyFileSystem)
        node.file_system.inject(Fault(operation="sync", names="*.log"))
        results = await node.manager.produce.append(
            timeout_ms=1000, required_acks=1, entries={TP: batch(1), SECOND: batch(1)}
        )
        assert {each.error for each in results.values()} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert sorted(node.manager.hosted.offline) == [TP, SECOND]


async def test_a_disk_that_fails_at_another_partition_takes_both_offline(
    autojump_clock: MockClock,
) -> None:
    """The first has been appended to, and is offline before it could be synced."""
    async with Node().running() as node:
        await node.learn(ALONE, ALONE, configs=EACH)
        assert isinstance(node.file_system, FaultyFileSystem)
        node.file_system.inject(Fault(operation="write", names="*.log", skip=1))
        results = await node.manager.produce.append(
            timeout_ms=1000, required_acks=1, entries={TP: batch(1), SECOND: batch(1)}
        )
        assert {each.error for each in results.values()} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert sorted(node.manager.hosted.offline) == [TP, SECOND]


async def test_a_topic_that_is_deleted_meanwhile_keeps_nobody_waiting(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    gate.opened.set()
    async with Node(offload=gate).running() as node:
        await gated(node, gate)
        log = node.manager.hosted.get(TP).log
        async with beside(node.produce) as produced:
            log.close_uncleanly()
            gate.opened.set()
        assert produced.done
        assert log.recovery_point == 0


async def test_fewer_records_than_that_are_not_synced(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(ALONE, configs={"flush.messages": "3"})
        log = node.manager.hosted.get(TP).log
        for flushes in (0, 0, 1, 1):
            await node.produce()
            assert log.local.flushes == flushes
        assert (log.recovery_point, node.state().high_watermark) == (3, 4)
