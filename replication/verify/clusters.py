"""The copies of a live cluster: what its leaders serve to consumers, or each of its replicas.

    survey      one look at metadata, log starts and high watermarks, and at compacted topics
    copies_of   a stream for the leader; for a cluster by itself, one for every replica

Rule 1: the ends of logs are read at the start: later records are not compared. Of two clusters one
is read first; ends that are lower there are read again, as long as they grow.

Rule 2: a partition without a leader cannot be compared. All such partitions are waited for
together and once; then `require_leader` names the brokers of its replicas that are away.

Rule 3: a follower is asked as a consumer asks (KIP-392), and serves up to the high watermark that
it knows: it is asked again for a while, until it knows the one that the leader had.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from replication.client.admin import Admin
from replication.client.cluster_view import Node
from replication.client.errors import KafkaTimeoutError
from replication.client.network_client import NetworkClient
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import Seams
from replication.verify.comparing import PartitionCopy
from replication.verify.directories import IGNORED_TOPICS
from replication.verify.fetched import FetchedBatches, FetchOptions, FindNode
from replication.verify.lock_step import Past
from replication.verify.results import CannotCompareError
from replication.wire.list_offsets import EARLIEST, LATEST
from storage.types import Offset, TopicId, TopicPartition

_COMPACT = "compact"


@attrs.frozen(kw_only=True)
class _Topic:
    topic_id: TopicId
    is_compacted: bool


@attrs.define(eq=False, kw_only=True)
class LiveCluster:
    """A cluster to compare, open inside the block of `cluster`."""

    name: str
    admin: Admin
    options: FetchOptions
    each_replica: bool = False
    """Whether its replicas are compared with each other."""
    replicas: dict[TopicPartition, tuple[int, ...]] = attrs.field(init=False, factory=dict)
    _leaderless: Collection[TopicPartition] = attrs.field(init=False, factory=set)
    """Partitions that were waited for, and have no leader."""
    _leaders: dict[TopicPartition, int] = attrs.field(init=False, factory=dict)
    _nodes: dict[int, Node] = attrs.field(init=False, factory=dict)
    _topics: dict[str, _Topic] = attrs.field(init=False, factory=dict)
    _starts: Mapping[TopicPartition, Offset] = attrs.field(init=False, factory=dict)
    _ends: Mapping[TopicPartition, Offset] = attrs.field(init=False, factory=dict)
    _selects: Callable[[TopicPartition], bool] = attrs.field(init=False)

    @property
    def network(self) -> NetworkClient:
        return self.admin.calls.network

    async def topics(self) -> list[str]:
        return [each for each in await self.admin.list_topics() if each not in IGNORED_TOPICS]

    async def survey(
        self, topics: Collection[str], selects: Callable[[TopicPartition], bool]
    ) -> None:
        """Learn the selected partitions of `topics`, with their leaders, starts and ends."""
        self._selects = selects
        configs = await self.admin.describe_topic_configs(topics) if topics else {}
        await self._wait_for_leaders(topics)
        for name, keys in configs.items():
            policy = keys["cleanup.policy"].value if "cleanup.policy" in keys else None
            compacted = _COMPACT in (policy or "").split(",")
            self._topics[name] = attrs.evolve(self._topics[name], is_compacted=compacted)
        self._starts = await self.offsets(self.replicas, EARLIEST)
        self._ends = await self.offsets(self.replicas, LATEST)

    async def offsets(
        self, partitions: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, Offset]:
        """Return the offset for a time, of partitions with a leader; -1 if there is no record."""
        led = [each for each in partitions if each not in self._leaderless]
        found = await self.admin.list_offsets(dict.fromkeys(led, timestamp)) if led else {}
        return {partition: each.offset for partition, each in found.items()}

    @property
    def ends(self) -> Mapping[TopicPartition, Offset]:
        return self._ends

    async def look_again(self, furthest: Mapping[TopicPartition, Offset]) -> bool:
        """Read the ends below `furthest` again, up to that; return whether one has grown."""
        behind = [each for each, end in self._ends.items() if end < furthest.get(each, 0)]
        found = await self.offsets(behind, LATEST) if behind else {}
        ends = {each: min(end, furthest[each]) for each, end in found.items()}
        grew = any(end > self._ends[each] for each, end in ends.items())
        self._ends = {**self._ends, **ends}
        return grew

    def copies_of(self, partition: TopicPartition) -> list[PartitionCopy]:
        """Return the copies of a partition; none if the cluster does not have it."""
        replicas = self.replicas.get(partition)
        if replicas is None:
            return []
        if not self.each_replica:
            return [self._copy(partition, self.name, partial(self._leader_of, partition))]
        return [
            self._copy(partition, f"{node.host}:{node.port}", partial(_always, node))
            for broker in replicas
            if (node := self._nodes.get(broker)) is not None
        ]

    def _copy(self, partition: TopicPartition, name: str, find_node: FindNode) -> PartitionCopy:
        # Without a leader neither is known, and nothing is read.
        start, end = self._starts.get(partition, 0), self._ends.get(partition, 0)
        topic = self._topics[partition.topic]
        stream = FetchedBatches(
            partition=partition,
            topic_id=topic.topic_id,
            start_offset=start,
            end_offset=end,
            options=self.options,
            network=self.network,
            find_node=find_node,
            find_start=partial(self._find_start, partition),
        )
        past = Past(cleaned_before=end if topic.is_compacted else 0)
        return PartitionCopy(name=name, stream=stream, start_offset=start, past=past)

    async def _wait_for_leaders(self, topics: Collection[str]) -> None:
        async def attempt() -> None:
            await self._describe(topics)
            if self._without_leader():
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, self.name)

        try:
            await self.network.keep_asking(attempt)
        except KafkaTimeoutError:
            self._leaderless = self._without_leader()
            if not self._leaderless:
                raise

    async def look_for_leaders(self) -> None:
        """Look up the leaders of all partitions again, without a wait for missing ones."""
        await self._describe({each.topic for each in self.replicas})
        self._leaderless = self._without_leader()

    def require_leader(self, partition: TopicPartition) -> None:
        """Raise CannotCompareError if the last look found no leader."""
        if partition in self._leaderless:
            away = sorted({*self.replicas[partition]} - self._nodes.keys())
            which = ", ".join(map(str, away)) or "none"
            raise CannotCompareError(
                f"{self.name}: it has no leader (of its brokers away: {which})"
            )

    def _without_leader(self) -> set[TopicPartition]:
        return {each for each, leader in self._leaders.items() if leader not in self._nodes}

    async def _describe(self, topics: Collection[str]) -> None:
        cluster = await self.admin.describe_cluster()
        self._nodes = {each.id: Node(each.id, each.host, each.port) for each in cluster.brokers}
        for name, topic in (await self.admin.describe_topics(topics) if topics else {}).items():
            known = self._topics.get(name)
            self._topics[name] = _Topic(
                topic_id=topic.topic_id, is_compacted=known is not None and known.is_compacted
            )
            for each in topic.partitions:
                partition = TopicPartition(name, each.partition)
                if not self._selects(partition):
                    continue
                self.replicas[partition] = each.replicas
                self._leaders[partition] = each.leader

    async def _leader_of(self, partition: TopicPartition, *, anew: bool) -> Node:
        if anew or self._leaders[partition] not in self._nodes:
            await self._describe([partition.topic])
        node = self._nodes.get(self._leaders[partition])
        if node is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return node

    async def _find_start(self, partition: TopicPartition) -> Offset:
        found = await self.offsets([partition], EARLIEST)
        self._starts = {**self._starts, **found}
        return found[partition]


async def _always(node: Node, *, anew: bool) -> Node:  # noqa: ARG001 - a replica is where it is
    await trio.lowlevel.checkpoint()
    return node


@asynccontextmanager
async def cluster(
    bootstrap_servers: str,
    *,
    seams: Seams,
    options: FetchOptions,
    each_replica: bool = False,
    config: Mapping[str, Any],
) -> AsyncIterator[LiveCluster]:
    """Connect to a cluster, until the end of the block."""
    async with Admin(bootstrap_servers, seams=seams, **config) as admin:
        yield LiveCluster(
            name=bootstrap_servers, admin=admin, options=options, each_replica=each_replica
        )
