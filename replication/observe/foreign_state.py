"""The state of a cluster that is only reached over Kafka's protocol, as far as it can be known.

    known                                          asked with
    leader, epoch, ISR, replicas, live brokers     DescribeTopicPartitions or Metadata
    each replica's LEO and log start               ListOffsets as a debugger, of each broker
    the leader's HW                                ListOffsets as a consumer
    the leader's epochs and their starts           OffsetForLeaderEpoch, newest first
    each replica's bytes                           DescribeLogDirs

    not known: a follower's HW, since when it lags, and why it left the ISR before we looked

Rule 1: what is not answered is None. A broker that does not answer keeps what was seen last,
shown as such; one that no broker tells of as alive is down, or fenced.

Rule 2: what happens between two looks is told as that: who was behind when it was in the ISR
last, or gone when it was out of it first.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import attrs

from replication.client.admin import Admin
from replication.client.admin.replicas import CONSUMER, Replica
from replication.client.admin.values import (
    ClusterDescription,
    ListedOffset,
    PartitionDescription,
    TopicDescription,
)
from replication.errors import ErrorCode, KafkaError
from replication.observe.cluster_state import (
    BrokerState,
    ClusterState,
    PartitionState,
    ReplicaState,
    Role,
    Status,
)
from replication.observe.isr_words import ReplicaFacts, why_in_or_out
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

MOST_EPOCHS: Final = 8
MIN_ISR: Final = "min.insync.replicas"
NOT_ALIVE: Final = "down, or fenced: no broker tells of it as alive"


@attrs.frozen(kw_only=True)
class Asked:
    """What brokers have said of their logs in one look."""

    starts: Mapping[Replica, Offset]
    ends: Mapping[Replica, Offset]
    epochs: Mapping[Replica, LeaderEpoch]
    """The leader epoch that a replica is in."""
    high_watermarks: Mapping[Replica, Offset]
    sizes: Mapping[Replica, int]
    begun: Mapping[TopicPartition, tuple[EpochEntry, ...]]


@attrs.define(eq=False, kw_only=True)
class ForeignState:
    """`wanted` says which topics; `in_detail` asks for sizes and epochs as well."""

    admin: Admin
    now_ms: Callable[[], int]
    wanted: Callable[[str], bool] = lambda _: True
    in_detail: bool = False
    timeout_ms: float = 1000.0
    _before: dict[TopicPartition, PartitionState] = attrs.field(init=False, factory=dict)
    _reasons: dict[Replica, str] = attrs.field(init=False, factory=dict)
    _min_isr: dict[str, int | None] = attrs.field(init=False, factory=dict)

    async def look(self) -> ClusterState:
        cluster = await self.admin.describe_cluster()
        topics = await self._topics()
        await self._learn_min_isr(topics)
        alive = {each.id for each in cluster.brokers}
        asked = await self._ask(topics, alive)
        partitions = tuple(
            self._partition(topic, each, asked, alive)
            for topic in topics
            for each in topic.partitions
        )
        self._before = {each.topic_partition: each for each in partitions}
        self._forget_all_but({each.name for each in topics})
        return ClusterState(
            now_ms=self.now_ms(),
            cluster_id=cluster.cluster_id,
            controller=cluster.controller_id,
            controller_status=Status.UNKNOWN,
            brokers=_brokers(cluster, partitions, asked),
            partitions=partitions,
            number_of_partitions=len(partitions),
        )

    async def _topics(self) -> list[TopicDescription]:
        names = [name for name in await self.admin.list_topics() if self.wanted(name)]
        if not names:
            return []
        try:
            described = await self.admin.describe_topics(names)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return []  # one of them was deleted just now; the next look knows
        return [described[name] for name in sorted(described)]

    async def _learn_min_isr(self, topics: Sequence[TopicDescription]) -> None:
        """Once for each topic: who changes it looks elsewhere."""
        new = [each.name for each in topics if each.name not in self._min_isr]
        if not new:
            return
        try:
            configs = await self.admin.describe_topic_configs(new)
        except KafkaError:
            configs = {}  # we may not ask, or it has gone
        for name in new:
            value = configs[name][MIN_ISR].value if MIN_ISR in configs.get(name, {}) else None
            self._min_isr[name] = None if value is None else int(value)

    def _forget_all_but(self, topics: Collection[str]) -> None:
        """One that is made again under a name has nothing of the one before."""
        self._min_isr = {name: each for name, each in self._min_isr.items() if name in topics}
        self._reasons = {
            replica: why for replica, why in self._reasons.items() if replica[0].topic in topics
        }

    # Asking.

    async def _ask(self, topics: Sequence[TopicDescription], alive: set[int]) -> Asked:
        hosted: dict[int, list[TopicPartition]] = {}
        led: dict[int, dict[TopicPartition, LeaderEpoch]] = {}
        for topic in topics:
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.partition)
                for broker in alive & set(each.replicas):
                    hosted.setdefault(broker, []).append(name)
                if each.leader >= 0:
                    led.setdefault(each.leader, {})[name] = each.leader_epoch
        look = self.admin.list_replica_offsets
        ends = await look(hosted, LATEST, timeout_ms=self.timeout_ms)
        starts = await look(hosted, EARLIEST, timeout_ms=self.timeout_ms)
        marks = await look(led, LATEST, asker=CONSUMER, timeout_ms=self.timeout_ms)
        sizes: dict[Replica, int] = {}
        if self.in_detail:
            sizes = await self.admin.list_replica_sizes(hosted, timeout_ms=self.timeout_ms)
        return Asked(
            starts={replica: each.offset for replica, each in starts.items()},
            ends={replica: each.offset for replica, each in ends.items()},
            epochs={replica: each.leader_epoch for replica, each in ends.items()},
            high_watermarks={replica: each.offset for replica, each in marks.items()},
            sizes=sizes,
            begun=await self._begun(led, _led(starts, led)) if self.in_detail else {},
        )

    async def _begun(
        self,
        led: Mapping[int, Mapping[TopicPartition, LeaderEpoch]],
        starts: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, tuple[EpochEntry, ...]]:
        """Where the newest epochs of each leader's log begin: where the one before each ended."""
        begun: dict[TopicPartition, tuple[EpochEntry, ...]] = {}
        oldest = {leader: dict(epochs) for leader, epochs in led.items()}
        for _ in range(MOST_EPOCHS):
            for epochs in oldest.values():
                for name in [each for each, epoch in epochs.items() if epoch <= 0]:
                    begun[name] = (EpochEntry(0, starts.get(name, 0)), *begun.get(name, ()))
                    del epochs[name]
            asked = {
                leader: {name: epoch - 1 for name, epoch in epochs.items()}
                for leader, epochs in oldest.items()
                if epochs
            }
            ends = await self.admin.list_epoch_ends(asked, timeout_ms=self.timeout_ms)
            for epochs in oldest.values():
                for name, epoch in [*epochs.items()]:
                    end = ends.get(name)
                    if end is not None:
                        begun[name] = (EpochEntry(epoch, end.offset), *begun.get(name, ()))
                    if end is None or end.offset <= starts.get(name, 0):
                        del epochs[name]  # an epoch that ends where the log begins is not in it
                    else:
                        epochs[name] = end.leader_epoch
        return begun

    def _note_leaving(
        self, name: TopicPartition, isr: Collection[int], alive: Collection[int]
    ) -> None:
        before = self._before.get(name)
        for broker in isr:
            self._reasons.pop((name, broker), None)
        for broker in set(before.isr if before else ()) - set(isr):
            was = None if before is None else before.replica(broker)
            if broker not in alive:
                reason = f"its broker is {NOT_ALIVE}"
            elif was is not None and was.lag:
                reason = f"it was {was.lag} records behind when it was seen in the ISR last"
            else:
                reason = "nobody told why; it was not behind when it was seen in the ISR last"
            self._reasons[name, broker] = reason

    def _partition(
        self,
        topic: TopicDescription,
        told: PartitionDescription,
        asked: Asked,
        alive: Collection[int],
    ) -> PartitionState:
        name = TopicPartition(topic.name, told.partition)
        self._note_leaving(name, told.isr, alive)
        replicas = (_log(name, told, each, asked, alive) for each in told.replicas)
        return PartitionState(
            topic=topic.name,
            partition=told.partition,
            leader=told.leader if told.leader >= 0 else None,
            leader_epoch=told.leader_epoch if told.leader_epoch >= 0 else None,
            isr=told.isr,
            replicas=tuple(
                self._explained(name, self._or_as_seen(name, each), told, asked)
                for each in replicas
            ),
            min_isr=self._min_isr.get(topic.name),
            is_internal=topic.is_internal,
        )

    def _or_as_seen(self, name: TopicPartition, log: ReplicaState) -> ReplicaState:
        """What does not answer keeps what was seen last."""
        before = self._before.get(name)
        seen = None if before is None else before.replica(log.broker)
        if log.is_live or seen is None:
            return log
        return attrs.evolve(seen, role=log.role, in_isr=log.in_isr, is_live=False)

    def _explained(
        self, name: TopicPartition, log: ReplicaState, told: PartitionDescription, asked: Asked
    ) -> ReplicaState:
        leader_end = asked.ends.get((name, told.leader))
        lag = None
        if leader_end is not None and log.log_end_offset is not None:
            lag = max(0, leader_end - log.log_end_offset)
        facts = ReplicaFacts(
            in_isr=log.in_isr,
            role=log.role,
            status=Status.UNKNOWN if log.role is Role.DOWN else Status.UP,
            is_leader=log.broker == told.leader,
            lag=lag,
        )
        reason = self._reasons.get((name, log.broker), "")
        if log.role is Role.DOWN:
            reason = f"its broker is {NOT_ALIVE}"
        return attrs.evolve(log, lag=lag, why=why_in_or_out(facts, reason))


def _log(
    name: TopicPartition,
    told: PartitionDescription,
    broker: int,
    asked: Asked,
    alive: Collection[int],
) -> ReplicaState:
    replica, leads = (name, broker), broker == told.leader
    return ReplicaState(
        broker=broker,
        role=_role(broker, leads=leads, alive=alive),
        in_isr=broker in told.isr,
        why="",
        is_live=replica in asked.ends,
        leader_epoch=asked.epochs.get(replica),
        log_start_offset=asked.starts.get(replica),
        log_end_offset=asked.ends.get(replica),
        high_watermark=asked.high_watermarks.get(replica),
        epochs=asked.begun.get(name) if leads else None,
        bytes=asked.sizes.get(replica),
    )


def _led(
    found: Mapping[Replica, ListedOffset], led: Mapping[int, Collection[TopicPartition]]
) -> dict[TopicPartition, Offset]:
    """Of the leaders' logs."""
    return {
        name: found[name, leader].offset
        for leader, names in led.items()
        for name in names
        if (name, leader) in found
    }


def _role(broker: int, *, leads: bool, alive: Collection[int]) -> Role:
    if broker not in alive:
        return Role.DOWN
    return Role.LEADER if leads else Role.FOLLOWER


def _brokers(
    cluster: ClusterDescription, partitions: Sequence[PartitionState], asked: Asked
) -> tuple[BrokerState, ...]:
    """Those that are alive, and those that only have replicas."""
    answered = {broker for _, broker in asked.ends}
    hosting = {each.broker for partition in partitions for each in partition.replicas}
    alive = [
        BrokerState(
            id=each.id,
            host=each.host,
            port=each.port,
            status=Status.UNKNOWN if each.id in hosting - answered else Status.UP,
            why="it does not answer" if each.id in hosting - answered else "",
        )
        for each in cluster.brokers
    ]
    missing = sorted(hosting - {each.id for each in alive})
    gone = [BrokerState(id=each, host="", port=-1, status=Status.DOWN, why=NOT_ALIVE)
            for each in missing]  # fmt: skip
    return tuple(sorted([*alive, *gone], key=lambda each: each.id))
