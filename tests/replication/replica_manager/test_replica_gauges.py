"""What a broker's replicas show of themselves."""

import random

import attrs
import pytest
from trio.testing import MockClock

from replication.config import BrokerConfig
from replication.errors import ErrorCode
from replication.leader.rules.fetch_session.cache import FetchSessionCache
from replication.metrics import MetricName, MetricsRegistry
from replication.replica_manager.gauges import manager_metric, purgatory_metric
from replication.replica_manager.partition_gauges import (
    OF_LED,
    OF_LOG,
    OF_PARTITION,
    follower_metric,
    led_metric,
    log_metric,
    partition_metric,
)
from storage.batch.records import ControlRecordType
from storage.testing import FaultyFileSystem
from tests.replication.leader.leader_side import LOCAL, OTHER, REMOTE, follower_params, registration
from tests.replication.leader.transactional_batches import append, ended, in_transaction
from tests.replication.replica_manager.replica_manager_side import (
    CLOCK,
    SECOND,
    TP,
    Controller,
    Node,
    OneClock,
    beside,
)

ALL = (LOCAL, REMOTE, OTHER)


def shown(node: Node) -> dict[str, float]:
    return {
        name.name: value for name, value in node.metrics.snapshot() if name.type == "ReplicaManager"
    }


def of(node: Node, name: str) -> float:
    return node.metrics.read(partition_metric(name, TP))


async def test_leaders_and_followers_are_counted(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.learn(
            registration(isr=(LOCAL,), replicas=ALL),
            registration(leader=REMOTE),
            configs={"min.insync.replicas": "2"},
        )
        counts = shown(node)
        assert (counts["LeaderCount"], counts["PartitionCount"]) == (1, 2)
        assert counts["UnderReplicatedPartitions"] == counts["UnderMinIsrPartitionCount"] == 1
        assert counts["AtMinIsrPartitionCount"] == counts["OfflineReplicaCount"] == 0
        assert (of(node, "InSyncReplicasCount"), of(node, "ReplicasCount")) == (1, 3)
        assert node.state().osr == {REMOTE, OTHER}
        assert node.metrics.read(partition_metric("UnderReplicated", SECOND)) == 0
        assert node.state(SECOND).osr == frozenset()


async def test_a_member_that_joins_or_leaves_is_counted(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        await node.produce()
        await CLOCK.sleep(60)
        assert node.state().isr == {LOCAL}
        assert shown(node)["IsrShrinksPerSec"] == 1
        assert of(node, "UnderReplicated") == of(node, "AtMinIsr") == 1
        await node.follow(1)
        await CLOCK.sleep(1)
        assert node.state().isr == {LOCAL, REMOTE}
        assert shown(node)["IsrExpandsPerSec"] == 1
        assert shown(node)["FailedIsrUpdatesPerSec"] == 0


async def test_a_refused_change_is_counted(autojump_clock: MockClock) -> None:
    node = Node(controller=Controller(error=ErrorCode.INELIGIBLE_REPLICA))
    async with node.running():
        await node.lead()
        await node.produce()
        await CLOCK.sleep(16)
        assert shown(node)["IsrShrinksPerSec"] == 0
        await CLOCK.sleep(30)
        assert shown(node)["FailedIsrUpdatesPerSec"] >= 1


async def test_a_partition_on_the_move_is_counted_by_its_leader(
    autojump_clock: MockClock,
) -> None:
    moving = attrs.evolve(registration(replicas=ALL), adding=(OTHER,))
    followed = attrs.evolve(registration(leader=REMOTE, replicas=ALL), removing=(LOCAL,))
    async with Node().running() as node:
        await node.learn(moving, followed)
        assert shown(node)["ReassigningPartitions"] == 1
        await node.learn(registration(replicas=ALL, partition_epoch=2), followed)
        assert shown(node)["ReassigningPartitions"] == 0


@pytest.mark.conformance("RM-5")
async def test_a_transaction_that_nobody_ends_is_late(autojump_clock: MockClock) -> None:
    config = BrokerConfig(node_id=LOCAL, transaction_max_timeout_ms=60_000)
    async with Node(config=config, clock=OneClock()).running() as node:
        await node.lead()
        assert shown(node)["PartitionsWithLateTransactionsCount"] == 0
        append(node, in_transaction(timestamp=node.clock.wall_ms()))
        assert shown(node)["PartitionsWithLateTransactionsCount"] == 0
        await CLOCK.sleep(60 + 5 * 60)
        assert shown(node)["PartitionsWithLateTransactionsCount"] == 0
        await CLOCK.sleep(0.001)
        assert shown(node)["PartitionsWithLateTransactionsCount"] == 1
        append(node, ended(ControlRecordType.ABORT))
        assert shown(node)["PartitionsWithLateTransactionsCount"] == 0
        await node.manager.shutdown()
        assert manager_metric("PartitionsWithLateTransactionsCount") not in node.metrics


async def test_who_waits_is_counted(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        await node.lead()
        async with beside(lambda: node.produce(acks=-1)):
            for name in ("NumDelayedOperations", "PurgatorySize"):
                assert node.metrics.read(purgatory_metric(name, "Produce")) == 1
            await node.fetch(follower_params())
            await node.follow(1)
        assert node.metrics.read(purgatory_metric("PurgatorySize", "Produce")) == 0


@pytest.mark.conformance("RM-86")
async def test_what_is_registered_is_taken_back_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    node = Node()
    mine = MetricName("kafka.server", "ReplicaManager", "NotYours")
    node.metrics.gauge(mine, lambda: 1)
    async with node.running():
        await node.lead()
        assert {partition_metric(name, TP) for name in OF_PARTITION} <= set(node.metrics.names())
        assert manager_metric("LeaderCount") in node.metrics
        await node.manager.shutdown()
        assert node.metrics.names() == [mine]


@pytest.mark.conformance("PT-54")
async def test_a_partition_that_has_gone_shows_nothing(autojump_clock: MockClock) -> None:
    async with Node().running() as node:
        assert OF_PARTITION.keys() == {
            "UnderReplicated",
            "UnderMinIsr",
            "InSyncReplicasCount",
            "ReplicasCount",
            "LastStableOffsetLag",
            "AtMinIsr",
        }
        await node.lead()
        shown_now = set(node.metrics.names())
        assert {partition_metric(name, TP) for name in OF_PARTITION} <= shown_now
        await node.learn()
        assert shown_now - set(node.metrics.names()) == {
            *(partition_metric(name, TP) for name in OF_PARTITION),
            *(log_metric(name, TP) for name in OF_LOG),
            *(led_metric(name, TP) for name in OF_LED),
            follower_metric("follower_behind_seconds", TP, REMOTE),  # which has yet to fetch
        }
        assert partition_metric("UnderReplicated", TP) not in node.metrics
        with pytest.raises(KeyError):
            of(node, "UnderReplicated")


def test_sessions_are_counted_under_kafkas_names() -> None:
    metrics = MetricsRegistry(lambda: 0.0)
    cache = FetchSessionCache(chance=random.Random(1), slots=8)
    cache.register(metrics)
    for privileged in (True, False):
        cache.next_shard().maybe_create({}, privileged=privileged, uses_topic_ids=True, now_ms=0)
    names = {name.name: metrics.read(name) for name in metrics.names()}
    assert names == {
        "NumIncrementalFetchSessions": 2,
        "NumIncrementalFetchPartitionsCached": 0,
        "IncrementalFetchSessionEvictionsPerSec": 0,
    }


@pytest.mark.conformance("RM-84")
async def test_high_watermarks_are_kept_below_a_relative_path_too(
    autojump_clock: MockClock,
) -> None:
    disk = FaultyFileSystem(random.Random(1))
    config = BrokerConfig(node_id=LOCAL, log_dirs=("data/logs",))
    async with Node(config=config, file_system=disk).running() as node:
        await node.lead(isr=(LOCAL,))
        await node.produce(2)
        await node.manager.high_watermarks.write()
        checkpoint = disk.open("data/logs/replication-offset-checkpoint")
        assert checkpoint.read(0, 100) == b"0\n1\ntopic 0 2\n"


async def test_logs_and_followers_are_shown_and_only_a_leader_knows_followers(
    autojump_clock: MockClock,
) -> None:
    async with Node().running() as node:
        await node.learn(
            registration(isr=(LOCAL, REMOTE)), registration(leader=REMOTE, isr=(LOCAL, REMOTE))
        )
        await node.produce(3)
        read = node.metrics.read
        assert (read(log_metric("LogEndOffset", TP)), read(log_metric("LogEndOffset", SECOND))) == (
            3,
            0,
        )
        assert read(log_metric("Size", TP)) == node.manager.hosted.get(TP).log.size > 0
        assert read(log_metric("NumLogSegments", TP)) == 1
        lag = follower_metric("follower_lag_records", TP, REMOTE)
        behind = follower_metric("follower_behind_seconds", TP, REMOTE)
        assert lag not in node.metrics, "it has yet to fetch"
        assert read(led_metric("high_watermark_lag_records", TP)) == 3
        await node.follow(2)
        await CLOCK.sleep(1.5)
        assert read(lag) == 1
        assert read(behind) == pytest.approx(1.5, abs=0.01)
        assert read(led_metric("high_watermark_lag_records", TP)) == 1
        await node.follow(3)
        assert (read(lag), read(behind)) == (0, 0)
        assert read(led_metric("high_watermark_lag_records", TP)) == 0
        assert led_metric("leader_epoch", SECOND) not in node.metrics
        assert follower_metric("follower_lag_records", SECOND, REMOTE) not in node.metrics
        assert follower_metric("follower_lag_records", TP, OTHER) not in node.metrics
        assert dict(node.metrics.snapshot())[lag] == 0
