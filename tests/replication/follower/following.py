"""One fetcher between a fake leader and a follower's logs in memory, for tests to drive."""

import attrs
import pytest

from replication.events import Event
from replication.follower.fetcher import FetcherConfig, ReplicaFetcher
from replication.follower.partitions import FetcherStats
from replication.follower.rules.fetch_state import (
    InitialFetchState,
    PartitionFetchState,
)
from replication.metrics import MetricsRegistry
from replication.net.clock import TrioClock
from storage.errors import KafkaStorageError
from storage.types import NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from tests.replication.follower.fake_leader import FakeLeader, FakeReplicas, Led
from tests.replication.follower.model_log import ModelLog, drawn

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEGACY = 11
"""A Fetch version that cannot tell a divergence."""

both_ways = pytest.mark.parametrize(
    "fetch_version",
    [pytest.param(12, id="truncation on fetch"), pytest.param(LEGACY, id="legacy")],
)


# An error of one partition, and how many bugs it counts as.
errors_of_one = pytest.mark.parametrize(
    ("error", "bugs"),
    [
        pytest.param(KafkaStorageError("disk"), 0, id="the disk"),
        pytest.param(AssertionError("law"), 1, id="a mistake of ours"),
    ],
)


def committed(*runs: tuple[int, int, int], start: Offset = 0) -> ModelLog:
    """Return a log whose high watermark is its end, with its records below `start` deleted."""
    log = drawn(*runs)
    log.high_watermark = log.log_end_offset
    if start:
        log.move_start_to(start)
    return log


@attrs.define
class Following:
    """What a test holds: both sides, the fetcher between them, and what it said."""

    leader: FakeLeader
    replicas: FakeReplicas
    fetcher: ReplicaFetcher
    failed: set[TopicPartition]
    metrics: MetricsRegistry
    events: list[Event]
    bugs: list[BaseException]

    def follow(
        self,
        partition: TopicPartition = T0,
        *,
        leader: ModelLog | None = None,
        local: ModelLog | None = None,
        leader_epoch: LeaderEpoch = 0,
        epoch: LeaderEpoch | None = None,
        init_offset: Offset | None = None,
    ) -> Led:
        """Lead `partition` over there, hold `local` here, and begin to follow."""
        led = self.leader.lead(partition, leader or ModelLog(), epoch=leader_epoch)
        self.replicas.logs[partition] = local or ModelLog()
        self.add(partition, leader_epoch if epoch is None else epoch, init_offset=init_offset)
        return led

    def add(
        self,
        partition: TopicPartition = T0,
        epoch: LeaderEpoch = 0,
        *,
        init_offset: Offset | None = None,
    ) -> None:
        """As the replica manager would: from the log end where epochs can tell, else from the HW."""
        log = self.replicas.logs[partition]
        if init_offset is None:
            tells = self.leader.supports_truncation_on_fetch and log.latest_epoch is not None
            init_offset = log.log_end_offset if tells else log.high_watermark
        self.fetcher.partitions.add(
            {
                partition: InitialFetchState(
                    topic_id=self.leader.topic_ids.get(partition.topic, NO_TOPIC_ID),
                    leader=self.leader.broker,
                    current_leader_epoch=epoch,
                    init_offset=init_offset,
                )
            }
        )

    def local(self, partition: TopicPartition = T0) -> ModelLog:
        return self.replicas.logs[partition]

    def state(self, partition: TopicPartition = T0) -> PartitionFetchState:
        state = self.fetcher.partitions.states.get(partition)
        assert state is not None, f"{partition} is not followed"
        return state

    async def work(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await self.fetcher.do_work()

    async def work_until_alike(self, partition: TopicPartition = T0, *, most: int = 50) -> None:
        for _ in range(most):
            if self.alike(partition):
                return
            await self.work()
        raise AssertionError(f"{self.local(partition)} never became {self.leader.led[partition]}")

    def alike(self, partition: TopicPartition = T0) -> bool:
        here, there = self.local(partition), self.leader.led[partition].log
        return (
            here.records == there.records
            and here.log_start_offset == there.log_start_offset
            and here.log_end_offset == there.log_end_offset
            and here.high_watermark == there.high_watermark
        )


def following(
    *,
    fetch_version: int = 12,
    sessions: bool = False,
    backoff_ms: int = 1000,
    replica_id: int = 2,
    make: type[ReplicaFetcher] = ReplicaFetcher,
) -> Following:
    leader, replicas = FakeLeader(fetch_version=fetch_version, sessions=sessions), FakeReplicas()
    failed, events = set[TopicPartition](), list[Event]()
    bugs: list[BaseException] = []
    clock = TrioClock()
    metrics = MetricsRegistry(clock.now)
    fetcher = make(
        name="ReplicaFetcherThread-0-1",
        leader=leader,
        replicas=replicas,
        config=FetcherConfig(replica_id=replica_id, backoff_ms=backoff_ms),
        clock=clock,
        failed=failed,
        stats=FetcherStats(metrics, "ReplicaFetcherThread-0-1", leader.broker),
        on_bug=bugs.append,
        sink=events.append,
    )
    return Following(leader, replicas, fetcher, failed, metrics, events, bugs)
