"""A fetcher's task: how it starts, what it shows, how it ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from replication.errors import ErrorCode
from replication.follower.leader_endpoint import EpochEnd
from replication.metrics import MetricName
from storage.types import OffsetAndEpoch
from tests.replication.follower.following import LEGACY, T0, T1, Following, following
from tests.replication.follower.model_log import drawn

THREAD = "ReplicaFetcherThread-0-1"
STATS_TAGS = (("clientId", THREAD), ("brokerHost", "leader"), ("brokerPort", "9092"))
REQUESTS = MetricName("kafka.server", "FetcherStats", "RequestsPerSec", STATS_TAGS)
BYTES = MetricName("kafka.server", "FetcherStats", "BytesPerSec", STATS_TAGS)
LAG_T0 = MetricName(
    "kafka.server",
    "FetcherLagMetrics",
    "ConsumerLag",
    (("clientId", THREAD), ("topic", "t"), ("partition", "0")),
)


@asynccontextmanager
async def running(it: Following) -> AsyncIterator[None]:
    it.leader.latency = 0.01
    async with trio.open_nursery() as nursery:
        await nursery.start(it.fetcher.run)
        yield
        await it.fetcher.shutdown()


@pytest.mark.conformance("FT-1")
async def test_metrics_live_as_long_as_the_fetcher(autojump_clock: MockClock) -> None:
    it = following()
    other = MetricName("kafka.server", "BrokerTopicMetrics", "ReplicationBytesInPerSec")
    it.metrics.meter(other)
    it.follow(leader=drawn((0, 0, 5)))
    async with running(it):
        await trio.testing.wait_all_tasks_blocked()
        assert {REQUESTS, BYTES, LAG_T0} <= set(it.metrics.names())
        while it.local().log_end_offset < 6:
            await it.leader.clock.sleep(0.01)
        assert it.metrics.read(BYTES) == 6 * 20
        assert it.metrics.read(LAG_T0) == 0
    assert it.metrics.names() == [other]


@pytest.mark.conformance("FT-2")
async def test_the_lag_of_a_partition_goes_with_it(autojump_clock: MockClock) -> None:
    it = following()
    led = it.follow(leader=drawn((0, 0, 5)))
    led.log.high_watermark = 6
    assert it.metrics.read(LAG_T0) == -1
    await it.work()
    assert it.metrics.read(LAG_T0) == 4
    it.fetcher.partitions.remove([T0])
    assert LAG_T0 not in it.metrics


@pytest.mark.conformance("FT-2")
async def test_a_failed_partition_leaves_no_lag_behind(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 5)), leader_epoch=1, epoch=0)
    await it.work()
    assert it.failed == {T0}
    assert LAG_T0 not in it.metrics


@pytest.mark.conformance("RF-17")
async def test_no_failure_to_close_keeps_a_fetcher_from_stopping(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 5)))
    calls = []

    def initiate_close() -> None:
        calls.append("initiate")
        raise OSError("already gone")

    async def close() -> None:
        calls.append("close")
        raise OSError("still gone")

    monkeypatch.setattr(type(it.leader), "initiate_close", lambda _self: initiate_close())
    monkeypatch.setattr(type(it.leader), "close", lambda _self: close())
    async with running(it):
        await it.leader.clock.sleep(0.05)
    assert calls == ["initiate", "close"]
    assert not it.bugs


async def test_what_is_answered_after_shutdown_began_is_not_acted_upon(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 5)))
    it.leader.on_fetch = it.fetcher.initiate_shutdown
    await it.work()
    assert it.local().log_end_offset == 0
    assert not it.state().is_delayed(autojump_clock.current_time())


async def test_a_lost_connection_during_shutdown_delays_nothing(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 5)))
    it.leader.latency = 5
    async with trio.open_nursery() as nursery:
        await nursery.start(it.fetcher.run)
        await wait_all_tasks_blocked()
        it.fetcher.initiate_shutdown()
    assert len(it.leader.fetches) == 1
    assert it.state().delayed_until is None


async def test_a_mistake_of_ours_ends_the_task_and_counts_as_dead(
    autojump_clock: MockClock,
) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 5)))
    mistake = RuntimeError("ours")

    def stumble() -> None:
        raise mistake

    it.leader.on_fetch = stumble
    await it.fetcher.run()
    assert it.bugs == [mistake]
    assert it.fetcher.is_dead
    assert len(it.fetcher.partitions.states) == 1, "its partitions stay, unfetched"
    await it.fetcher.shutdown()


async def test_a_leader_that_answers_what_it_was_not_asked_is_left_alone_for_a_backoff(
    autojump_clock: MockClock,
) -> None:
    it = following(fetch_version=LEGACY)
    it.follow(local=drawn((0, 0, 2)), leader=drawn((0, 0, 0)))
    it.leader.epoch_answers = {T1: EpochEnd(ErrorCode.NONE, OffsetAndEpoch(0, 0))}
    async with running(it):
        await it.leader.clock.sleep(2.5)
        assert len(it.leader.epoch_requests) == 3
        assert not it.fetcher.is_dead
    assert not it.bugs


async def test_an_idle_fetcher_sleeps_until_it_is_given_something(
    autojump_clock: MockClock,
) -> None:
    it = following()
    async with running(it):
        await it.leader.clock.sleep(3600)
        assert it.leader.fetches == []
        it.follow(leader=drawn((0, 0, 1)))
        began = autojump_clock.current_time()
        while it.local().log_end_offset < 2:
            await it.leader.clock.sleep(0.01)
        assert autojump_clock.current_time() - began < 0.1


async def test_a_cancelled_fetcher_closes_its_connection(autojump_clock: MockClock) -> None:
    it = following()
    it.follow(leader=drawn((0, 0, 1)))
    it.leader.latency = 1
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(it.fetcher.run)
            scope.cancel()
    assert it.leader.closed == 1
    assert not it.fetcher.is_dead
