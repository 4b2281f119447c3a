"""The state of a cluster that is only reached over Kafka's protocol, as far as it can be known.

    known                                          asked with
    leader, epoch, ISR, replicas, live brokers     DescribeTopicPartitions or Metadata
    each replica's LEO and log start               ListOffsets as a debugger, from each broker
    the leader's HW                                ListOffsets as a consumer
    the leader's epochs and their starts           OffsetForLeaderEpoch, newest first
    each replica's bytes                           DescribeLogDirs
    the quorum: leader, epoch, LEO of each node    DescribeQuorum

    not known: a follower's HW, since when it lags, and what events report

What is not answered is None. A broker that no other broker reports as alive is down or fenced:
over the protocol the two look alike.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from replication.client.admin import Admin
from replication.client.admin.cluster import QuorumReplicaDescription
from replication.client.admin.offsets import Replica
from replication.client.admin.values import (
    ClusterDescription,
    ListedOffset,
    PartitionDescription,
    TopicDescription,
)
from replication.client.errors import KafkaTimeoutError
from replication.errors import ErrorCode, KafkaError
from replication.metadata.rules.image import MIN_INSYNC_REPLICAS
from replication.net.clock import TrioClock
from replication.observe.cluster_state import (
    ClusterState,
    ObservedBroker,
    ObservedPartition,
    ObservedQuorum,
    ObservedQuorumNode,
    ObservedReplica,
    Role,
    Status,
)
from replication.wire.fetch import CONSUMER_REPLICA_ID
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.attributes import define, frozen
from storage.checkpoint import EpochEntry
from storage.types import LeaderEpoch, Offset, TopicPartition

MOST_EPOCHS: Final = 8


@frozen(kw_only=True)
class _Answers:
    """The answers of brokers about their logs."""

    starts: Mapping[Replica, Offset]
    ends: Mapping[Replica, Offset]
    epochs: Mapping[Replica, LeaderEpoch]
    """The leader epoch of each replica."""
    high_watermarks: Mapping[Replica, Offset]
    sizes: Mapping[Replica, int]
    epoch_starts: Mapping[TopicPartition, tuple[EpochEntry, ...]]


@define(eq=False, kw_only=True)
class ProtocolSource:
    """A cluster behind `admin`.

    `wanted` selects topics by name; with `in_detail`, sizes and epochs are asked for too.
    """

    admin: Admin
    quorum: "QuorumSource | None" = None
    now_ms: Callable[[], int]
    wanted: Callable[[str], bool] = lambda _: True
    in_detail: bool = False
    timeout_ms: float = 1000.0
    _min_isr: dict[str, int | None] = attrs.field(init=False, factory=dict)

    async def find(self) -> ClusterState:
        cluster = await self.admin.describe_cluster()
        topics = await self._topics()
        await self._learn_min_isr(topics)
        alive = {each.id for each in cluster.brokers}
        answers = await self._ask(topics, alive)
        quorum = None if self.quorum is None else await self.quorum.find()
        partitions = tuple(
            self._partition(topic, each, answers, alive)
            for topic in topics
            for each in topic.partitions
        )
        return ClusterState(
            now_ms=self.now_ms(),
            cluster_id=cluster.cluster_id,
            controller=cluster.controller_id,
            controller_status=Status.UNKNOWN,
            brokers=_brokers(cluster, partitions, answers),
            partitions=partitions,
            number_of_partitions=len(partitions),
            quorum=quorum,
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
            return []  # one of them was deleted just now: the next look shows the others
        return [described[name] for name in sorted(described)]

    async def _learn_min_isr(self, topics: Sequence[TopicDescription]) -> None:
        """Ask for `min.insync.replicas` of each new topic, once; forget deleted topics."""
        names = {each.name for each in topics}
        self._min_isr = {name: each for name, each in self._min_isr.items() if name in names}
        new = sorted(names - self._min_isr.keys())
        if not new:
            return
        try:
            configs = await self.admin.describe_topic_configs(new)
        except KafkaError:
            configs = {}  # it may not be asked, or the topic is gone
        for name in new:
            value = (
                configs[name][MIN_INSYNC_REPLICAS].value
                if MIN_INSYNC_REPLICAS in configs.get(name, {})
                else None
            )
            self._min_isr[name] = None if value is None else int(value)

    async def _ask(self, topics: Sequence[TopicDescription], alive: set[int]) -> _Answers:
        hosted: dict[int, list[TopicPartition]] = {}
        led: dict[int, dict[TopicPartition, LeaderEpoch]] = {}
        for topic in topics:
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.partition)
                for broker in alive & set(each.replicas):
                    hosted.setdefault(broker, []).append(name)
                if each.leader >= 0:
                    led.setdefault(each.leader, {})[name] = each.leader_epoch
        list_offsets = self.admin.list_replica_offsets
        ends = await list_offsets(hosted, LATEST, timeout_ms=self.timeout_ms)
        starts = await list_offsets(hosted, EARLIEST, timeout_ms=self.timeout_ms)
        marks = await list_offsets(
            led, LATEST, asker=CONSUMER_REPLICA_ID, timeout_ms=self.timeout_ms
        )
        sizes: dict[Replica, int] = {}
        if self.in_detail:
            sizes = await self.admin.list_replica_sizes(hosted, timeout_ms=self.timeout_ms)
        return _Answers(
            starts={replica: each.offset for replica, each in starts.items()},
            ends={replica: each.offset for replica, each in ends.items()},
            epochs={replica: each.leader_epoch for replica, each in ends.items()},
            high_watermarks={replica: each.offset for replica, each in marks.items()},
            sizes=sizes,
            epoch_starts=await self._epoch_starts(led, _led(starts, led)) if self.in_detail else {},
        )

    async def _epoch_starts(
        self,
        led: Mapping[int, Mapping[TopicPartition, LeaderEpoch]],
        log_starts: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, tuple[EpochEntry, ...]]:
        """Return where the newest epochs of each leader's log begin.

        An epoch begins where the one before it ended, which OffsetForLeaderEpoch answers.
        """
        found: dict[TopicPartition, tuple[EpochEntry, ...]] = {}
        oldest = {leader: dict(epochs) for leader, epochs in led.items()}
        for _ in range(MOST_EPOCHS):
            for epochs in oldest.values():
                for name in [each for each, epoch in epochs.items() if epoch <= 0]:
                    found[name] = (EpochEntry(0, log_starts.get(name, 0)), *found.get(name, ()))
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
                        found[name] = (EpochEntry(epoch, end.offset), *found.get(name, ()))
                    if end is None or end.offset <= log_starts.get(name, 0):
                        del epochs[name]  # an epoch that ends where the log begins is not in it
                    else:
                        epochs[name] = end.leader_epoch
        return found

    def _partition(
        self,
        topic: TopicDescription,
        described: PartitionDescription,
        answers: _Answers,
        alive: Collection[int],
    ) -> ObservedPartition:
        name = TopicPartition(topic.name, described.partition)
        return ObservedPartition(
            topic=topic.name,
            partition=described.partition,
            leader=described.leader if described.leader >= 0 else None,
            leader_epoch=described.leader_epoch if described.leader_epoch >= 0 else None,
            isr=described.isr,
            replicas=tuple(
                _replica(name, described, each, answers, alive) for each in described.replicas
            ),
            min_isr=self._min_isr.get(topic.name),
            is_internal=topic.is_internal,
        )


@frozen
class QuorumSource:
    """The quorum of a cluster, as its leader describes it.

    `admin` serves nothing else: a broker answers a connection's requests in order, and it asks the
    controller for this answer, which may be away.
    """

    admin: Admin
    timeout_ms: float = 1000.0

    async def find(self) -> ObservedQuorum | None:
        """Return what the active controller says; None if it does not answer or may not be asked."""
        described = None
        wait = TrioClock().move_on_after(self.timeout_ms / 1000)
        with wait, suppress(KafkaError, KafkaTimeoutError):
            described = await self.admin.describe_metadata_quorum()
        if described is None:
            return None
        return ObservedQuorum(
            leader=described.leader_id,
            leader_epoch=described.leader_epoch,
            high_watermark=described.high_watermark,
            voters=tuple(map(_quorum_node, described.voters)),
            observers=tuple(map(_quorum_node, described.observers)),
        )


def _quorum_node(described: QuorumReplicaDescription) -> ObservedQuorumNode:
    end = described.log_end_offset
    return ObservedQuorumNode(
        id=described.node_id, status=Status.UNKNOWN, log_end_offset=end if end >= 0 else None
    )


def _replica(
    name: TopicPartition,
    described: PartitionDescription,
    broker: int,
    answers: _Answers,
    alive: Collection[int],
) -> ObservedReplica:
    replica, leads = (name, broker), broker == described.leader
    role = Role.LEADER if leads else Role.FOLLOWER
    return ObservedReplica(
        broker=broker,
        role=role if broker in alive else Role.DOWN,
        in_isr=broker in described.isr,
        is_live=replica in answers.ends,
        leader_epoch=answers.epochs.get(replica),
        log_start_offset=answers.starts.get(replica),
        log_end_offset=answers.ends.get(replica),
        high_watermark=answers.high_watermarks.get(replica),
        epochs=answers.epoch_starts.get(name) if leads else None,
        bytes=answers.sizes.get(replica),
    )


def _led(
    found: Mapping[Replica, ListedOffset], led: Mapping[int, Collection[TopicPartition]]
) -> dict[TopicPartition, Offset]:
    """Return the offsets found in the leaders' logs."""
    return {
        name: found[name, leader].offset
        for leader, names in led.items()
        for name in names
        if (name, leader) in found
    }


def _brokers(
    cluster: ClusterDescription, partitions: Sequence[ObservedPartition], answers: _Answers
) -> tuple[ObservedBroker, ...]:
    """Return the brokers that are alive, and those that only have replicas."""
    answered = {broker for _, broker in answers.ends}
    hosting = {each.broker for partition in partitions for each in partition.replicas}
    alive = [
        ObservedBroker(
            id=each.id,
            host=each.host,
            port=each.port,
            status=Status.UNKNOWN if each.id in hosting - answered else Status.UP,
            why="it does not answer" if each.id in hosting - answered else "",
        )
        for each in cluster.brokers
    ]
    gone = [
        ObservedBroker(
            id=each,
            host="",
            port=-1,
            status=Status.DOWN,
            why="down or fenced: no broker reports it as alive",
        )
        for each in hosting - {each.id for each in alive}
    ]
    return tuple(sorted([*alive, *gone], key=lambda each: each.id))
