"""As AbstractFetcherManagerTest, with fetchers that are real and leaders that are not."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from hypothesis import given, strategies as st
from trio.testing import MockClock

from replication.events import Event, FetcherStarted, FetcherStopped
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.fetcher_manager import (
    FetcherKey,
    ReplicaFetcherManager,
    fetcher_id_for,
)
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    BrokerEndPoint,
    InitialFetchState,
)
from replication.metrics import MetricName, MetricsRegistry
from replication.net.clock import TrioClock
from storage.types import TopicPartition
from tests.replication.follower.fake_leader import FakeLeader, FakeReplicas
from tests.replication.follower.following import T0, T1
from tests.replication.follower.model_log import ModelLog, drawn

B1, B2 = BrokerEndPoint(1, "one", 9092), BrokerEndPoint(2, "two", 9092)


@attrs.define
class Managed:
    """A manager whose fetchers follow fake leaders into logs in memory."""

    manager: ReplicaFetcherManager
    replicas: FakeReplicas
    leaders: dict[BrokerEndPoint, FakeLeader]
    metrics: MetricsRegistry
    events: list[Event]
    bugs: list[BaseException]

    def host(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.replicas.logs.setdefault(tp, ModelLog())

    def follow(
        self, *partitions: TopicPartition, leader: BrokerEndPoint = B1, epoch: int = 0
    ) -> None:
        self.host(*partitions)
        self.manager.add_fetcher_for_partitions(
            {
                tp: InitialFetchState(leader=leader, current_leader_epoch=epoch, init_offset=0)
                for tp in partitions
            }
        )

    def metric(self, name: str) -> float:
        tags = (("clientId", "Replica"),)
        return self.metrics.read(MetricName("kafka.server", "ReplicaFetcherManager", name, tags))


@asynccontextmanager
async def managed(num_fetchers: int = 1) -> AsyncIterator[Managed]:
    clock = TrioClock()
    metrics, replicas = MetricsRegistry(clock.now), FakeReplicas()
    leaders: dict[BrokerEndPoint, FakeLeader] = {}
    events: list[Event] = []
    bugs: list[BaseException] = []

    def make_fetcher(
        leader: BrokerEndPoint, fetcher_id: int, failed: set[TopicPartition]
    ) -> ReplicaFetcher:
        fake = leaders.setdefault(leader, FakeLeader(broker=leader, latency=0.01))
        fake.closed = 0
        name = f"ReplicaFetcherThread-{fetcher_id}-{leader.id}"
        return ReplicaFetcher(
            name=name,
            leader=fake,
            replicas=replicas,
            config=FetcherConfig(replica_id=9),
            clock=clock,
            failed=failed,
            stats=FetcherStats(metrics, name, leader),
            on_bug=bugs.append,
        )

    async with trio.open_nursery() as nursery:
        manager = ReplicaFetcherManager(
            make_fetcher=make_fetcher,
            num_fetchers_per_broker=num_fetchers,
            metrics=metrics,
            sink=events.append,
            nursery=nursery,
        )
        yield Managed(manager, replicas, leaders, metrics, events, bugs)
        await manager.close_all()


# -- which fetcher ------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "partition", "ids"),
    [
        ("test", 0, (0, 2, 6, 8)),
        ("test", 7, (1, 1, 5, 5)),
        ("foo", 0, (0, 2, 2, 4)),
        ("bar", 3, (0, 0, 0, 2)),
        ("topic1", 0, (0, 2, 2, 8)),
        ("test-topic", 1, (1, 3, 3, 1)),
        ("__consumer_offsets", 0, (1, 3, 7, 7)),
        ("__consumer_offsets", 49, (0, 2, 6, 8)),
        ("orders.v1", 12, (0, 0, 0, 4)),
    ],
)
def test_fetcher_ids_are_kafkas(topic: str, partition: int, ids: tuple[int, ...]) -> None:
    tp = TopicPartition(topic, partition)
    assert tuple(fetcher_id_for(tp, n) for n in (2, 4, 8, 10)) == ids


@given(st.text(max_size=20), st.integers(0, 10_000), st.integers(1, 50))
def test_a_fetcher_id_is_always_one_that_exists(topic: str, partition: int, number: int) -> None:
    assert 0 <= fetcher_id_for(TopicPartition(topic, partition), number) < number


# -- adding and removing ------------------------------------------------------


async def test_partitions_of_one_leader_share_a_fetcher(autojump_clock: MockClock) -> None:
    async with managed() as it:
        it.follow(T0, T1)
        it.follow(TopicPartition("u", 0), leader=B2)
        assert set(it.manager.fetchers) == {FetcherKey(1, 0), FetcherKey(2, 0)}
        assert it.manager.fetchers[FetcherKey(1, 0)].partitions.states.partitions() == [T0, T1]
        assert it.manager.fetch_state(TopicPartition("none", 0)) is None
        assert it.events[0] == FetcherStarted(leader=1, fetcher_id=0)


async def test_what_is_followed_is_fetched(autojump_clock: MockClock) -> None:
    async with managed() as it:
        it.follow(T0)
        it.leaders[B1].lead(T0, drawn((0, 0, 5)))
        while it.replicas.logs[T0].log_end_offset < 6:
            await it.leaders[B1].clock.sleep(0.1)
        assert not it.bugs


async def test_removal_reaches_every_fetcher_and_clears_failures(
    autojump_clock: MockClock,
) -> None:
    async with managed() as it:
        elsewhere = TopicPartition("u", 0)
        it.follow(T0)
        it.follow(elsewhere, leader=B2)
        it.manager.add_failed_partition(T1)
        removed = it.manager.remove_fetcher_for_partitions({T0, T1, elsewhere})
        assert set(removed) == {T0, elsewhere}
        assert it.manager.failed == set()
        assert len(it.manager.fetchers) == 2, "fetchers do not stop by themselves"
        await it.manager.shutdown_idle_fetchers()
        assert it.manager.fetchers == {}
        assert FetcherStopped(leader=1, fetcher_id=0, cause="idle") in it.events


async def test_adding_a_failed_partition_gives_it_another_chance(
    autojump_clock: MockClock,
) -> None:
    async with managed() as it:
        it.manager.add_failed_partition(T0)
        assert it.metric("FailedPartitionsCount") == 1
        it.follow(T0)
        assert it.metric("FailedPartitionsCount") == 0


async def test_a_partition_whose_log_is_offline_fails_alone(autojump_clock: MockClock) -> None:
    async with managed() as it:
        it.replicas.offline = {T0}
        it.follow(T0, T1)
        assert it.manager.failed == {T0}
        assert it.manager.fetch_state(T1) is not None


async def test_a_leader_that_listens_elsewhere_gets_a_new_fetcher(
    autojump_clock: MockClock,
) -> None:
    moved = BrokerEndPoint(1, "one", 9999)
    async with managed() as it:
        it.follow(T0, T1)
        old = it.manager.fetchers[FetcherKey(1, 0)]
        it.follow(T0, leader=moved, epoch=1)
        new = it.manager.fetchers[FetcherKey(1, 0)]
        assert new is not old
        assert new.leader.broker == moved
        assert len(old.partitions.states) == 0
        assert new.partitions.states.get(T1) is not None, "it was not removed"
        state = new.partitions.states.get(T0)
        assert state is not None
        assert state.current_leader_epoch == 1
        assert FetcherStopped(leader=1, fetcher_id=0, cause="leader moved") in it.events


# -- metrics ------------------------------------------------------------------


@pytest.mark.conformance("FM-3")
async def test_a_fetcher_that_dies_counts_until_it_is_replaced(autojump_clock: MockClock) -> None:
    async with managed() as it:
        it.follow(T0)

        def stumble() -> None:
            it.leaders[B1].on_fetch = lambda: None
            raise RuntimeError("ours")

        assert it.metric("DeadThreadCount") == 0
        it.leaders[B1].on_fetch = stumble
        await it.leaders[B1].clock.sleep(1)
        assert it.metric("DeadThreadCount") == 1
        assert len(it.bugs) == 1
        it.leaders[B1].lead(T0, drawn((0, 0, 5)))
        it.follow(T1)
        assert it.metric("DeadThreadCount") == 0
        await it.leaders[B1].clock.sleep(1)
        assert it.replicas.logs[T0].log_end_offset == 6


async def test_metrics_show_the_furthest_behind_and_the_slowest(
    autojump_clock: MockClock,
) -> None:
    async with managed() as it:
        assert (it.metric("MaxLag"), it.metric("MinFetchRate")) == (0, 0)
        it.follow(T0)
        assert it.metric("MaxLag") == 0, "not known yet"
        log = drawn((0, 0, 1))
        log.high_watermark = 10
        it.leaders[B1].lead(T0, log)
        await it.leaders[B1].clock.sleep(30)
        assert it.metric("MaxLag") == 8
        assert it.metric("MinFetchRate") > 50
    assert it.metrics.names() == []


# -- resizing -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(10, 50, id="more", marks=pytest.mark.conformance("FM-6")),
        pytest.param(50, 10, id="fewer", marks=pytest.mark.conformance("FM-7")),
        pytest.param(10, 10, id="as many"),
    ],
)
async def test_resizing_moves_every_partition_to_where_its_hash_says(
    autojump_clock: MockClock, before: int, after: int
) -> None:
    brokers = [BrokerEndPoint(at, f"broker{at}", 9092) for at in range(6)]
    chance = random.Random(1)
    partitions = [TopicPartition(f"topic{at % 31}", at) for at in range(1000)]
    led_by = {tp: chance.choice(brokers) for tp in partitions}
    foreign = [TopicPartition("foreign", at) for at in range(10)]
    async with managed(before) as it:
        for tp in (*foreign, *partitions[:20]):
            it.manager.add_failed_partition(tp)
        for tp in partitions:
            it.follow(tp, leader=led_by[tp])
        await it.manager.resize(after)
        owners: dict[TopicPartition, FetcherKey] = {}
        for key, fetcher in it.manager.fetchers.items():
            assert fetcher.partitions.states
            for tp in fetcher.partitions.states.partitions():
                assert tp not in owners, "owned once"
                owners[tp] = key
        assert owners == {
            tp: FetcherKey(led_by[tp].id, fetcher_id_for(tp, after)) for tp in partitions
        }
        assert it.manager.failed == set(foreign)


async def test_resizing_goes_on_where_a_partition_stood(autojump_clock: MockClock) -> None:
    async with managed() as it:
        it.follow(T0)
        it.leaders[B1].lead(T0, drawn((0, 0, 5)))
        await it.leaders[B1].clock.sleep(1)
        await it.manager.resize(2)
        state = it.manager.fetch_state(T0)
        assert state is not None
        assert (state.fetch_offset, state.last_fetched_epoch) == (6, 0)
