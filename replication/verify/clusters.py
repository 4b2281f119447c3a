"""The copies of a live cluster: what its leaders serve to consumers, or each of its replicas.

    survey      one look at metadata, log starts and high watermarks, and at compacted topics
    copies_of   a stream for the leader; for a cluster by itself, one for every replica

Rule 1: the ends of logs are read at the start: later records are not compared. Of two clusters one
is read first; ends that are lower there are read again, as long as they grow.

Rule 2: a partition without a leader cannot be compared. All such partitions are waited for
together and once; then `require_leader` names the brokers of its replicas that are away.

Rule 3: a follower is asked as a consumer asks (KIP-392), and serves up to the high watermark that
it knows: it is asked again for a while, until it knows the one that the leader had.

The batches of a partition come as a broker sends them, up to a given end:

    fill   ── Fetch 100 ──> [98-104][105-120][121-1     a batch that is cut off comes again
    head, take, skip: over received batches, without waiting
    fill   ── Fetch 121 ──> [121-140]                   sent when the last response has come

Rule 4: it fetches as a consumer does: replica id -1, so up to the high watermark of the broker
that is asked, a leader or, from version 11 on, a follower (KIP-392); no session, no isolation.

Rule 5: the walk calls `fill` while `wants_bytes`. Then there is a whole batch at the head, or the
end: `end_offset`, or the last record that the broker has, after it was asked for a while.

Rule 6: a leader that moves or dies is waited for. If retention has deleted the next records, that
is a `StartMovedError`: the comparison begins again behind them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from replication.client.admin import Admin
from replication.client.cluster_view import Node
from replication.client.errors import KafkaTimeoutError, raise_for
from replication.client.network_client import NetworkClient
from replication.client.requests import PendingResponse, ask
from replication.errors import ErrorCode, KafkaError
from replication.net.seams import Seams
from replication.verify.comparing import PartitionCopy
from replication.verify.directories import IGNORED_TOPICS
from replication.verify.lock_step import Past
from replication.verify.results import CannotCompareError
from replication.wire.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from replication.wire.list_offsets import EARLIEST, LATEST
from replication.wire.schema import MAX_VERSION
from storage.attributes import define, frozen
from storage.batch.batch_stream import DamagedLogError, out_of_order
from storage.batch.record_batch import HEADER_SIZE, BatchHeader, read_header, walk
from storage.errors import CorruptRecordError
from storage.types import NO_TOPIC_ID, Offset, TopicId, TopicPartition

_COMPACT = "compact"

# The number of empty responses after which a broker has no more records.
PATIENCE = 10


class StartMovedError(CannotCompareError):
    """A log that begins later than before."""

    def __init__(self, partition: TopicPartition, offset: Offset) -> None:
        super().__init__(f"{partition}: the records below offset {offset} were deleted meanwhile")
        self.offset = offset


class FindNode(Protocol):
    """The search for the node to fetch from; `anew` if the last one failed or refused."""

    def __call__(self, *, anew: bool) -> Awaitable[Node]: ...


@frozen(kw_only=True)
class FetchOptions:
    """The options of fetches, under the names of kafka-replica-verification."""

    fetch_size: int = 1 << 20
    max_wait_ms: int = 1000


@define(eq=False, kw_only=True)
class FetchedBatches:
    """The fetched batches of one partition; a `compacted.Readable`."""

    partition: TopicPartition
    topic_id: TopicId
    start_offset: Offset
    end_offset: Offset
    options: FetchOptions
    network: NetworkClient
    find_node: FindNode
    find_start: Callable[[], Awaitable[Offset]]
    next_offset: Offset = attrs.field(init=False)
    file_name: None = attrs.field(init=False, default=None)
    position: None = attrs.field(init=False, default=None)
    _records: memoryview = attrs.field(init=False, factory=lambda: memoryview(b""))
    _at: int = attrs.field(init=False, default=0)
    _sent: PendingResponse | None = attrs.field(init=False, default=None)
    _patience: int = attrs.field(init=False, default=PATIENCE)
    _max_bytes: int = attrs.field(init=False)
    _anew: bool = attrs.field(init=False, default=False)
    _is_first: bool = attrs.field(init=False, default=True)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.start_offset
        self._max_bytes = self.options.fetch_size

    # -- waiting

    @property
    def at_end(self) -> bool:
        """Whether all batches have been read, up to the end or as far as there are any."""
        return self.next_offset >= self.end_offset or not self._patience

    @property
    def wants_bytes(self) -> bool:
        return not self.at_end and self._size_at_head() is None

    async def fill(self) -> None:
        """Fetch until there is a whole batch at the head, or the end."""
        while self.wants_bytes:
            data = await self.network.keep_asking(self._fetch, on_no_answer=self._forget)
            self._take_in(data)
            self._pass_what_is_behind()
            if (following := self._following()) is not None:
                self._sent = await self._send(following)

    def _following(self) -> Offset | None:
        """Return the offset of the next fetch; None if there is none, or it is not known."""
        last = None
        try:
            for _, header in walk(self._records, self._at):
                last = header.next_offset
        except CorruptRecordError:
            return None  # the walk ends at the damage
        return last if last is not None and last < self.end_offset else None

    def _take_in(self, data: PartitionData) -> None:
        assert not hasattr(data.records, "path"), "what was received is in memory"
        self._records = memoryview(data.records or b"")  # type: ignore[arg-type] # no file region
        self._at = 0
        if self._size_at_head() is not None:
            self._patience = PATIENCE
        elif len(self._records):
            self._max_bytes *= 2  # a broker that is older than KIP-74 cuts the first batch
        elif data.high_watermark >= self.end_offset:
            self.next_offset = self.end_offset  # the rest was compacted away
        else:
            self._patience -= 1

    async def _fetch(self) -> PartitionData:
        sent, self._sent = self._sent, None
        if sent is None:
            sent = await self._send(self.next_offset)
        data = self._answer_of(await sent.wait())
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self.find_start()
            if start > self.next_offset:
                raise StartMovedError(self.partition, start)
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, "a new leader does not know its end yet"
            )
        self._anew = data.error_code != ErrorCode.NONE
        raise_for(data.error_code, str(self.partition))
        return data

    async def _send(self, offset: Offset) -> PendingResponse:
        where = FetchPartition(
            partition=self.partition.partition,
            fetch_offset=offset,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self.options.max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            topics=[
                FetchTopic(topic=self.partition.topic, topic_id=self.topic_id, partitions=[where])
            ],
        )
        has_id = self.topic_id != NO_TOPIC_ID
        newest = MAX_VERSION if has_id else FIRST_VERSION_WITH_TOPIC_IDS - 1
        node = await self.find_node(anew=self._anew)
        self._anew = False
        return self.network.send(node, ask(request, max_version=newest))

    def _answer_of(self, response: Any) -> PartitionData:
        raise_for(response.error_code, "fetch")
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.partition.partition:
                    return data  # type: ignore[no-any-return] # of a response of this API
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"a response without {self.partition}")

    def _forget(self) -> None:
        self._anew = True

    def _pass_what_is_behind(self) -> None:
        """Skip batches before the offset: a broker may begin earlier."""
        while (size := self._size_at_head()) is not None:
            header = self._header()
            if header is None or header.last_offset >= self.next_offset:
                return
            self._at += size

    # -- a stream of batches

    def seek(self, offset: Offset) -> None:
        assert not len(self._records), "seek comes before anything is read"
        self.next_offset = max(self.next_offset, offset)

    def head(self) -> BatchHeader | None:
        if self.at_end:
            return None
        assert self._size_at_head() is not None, "fill comes before head"
        header = self._header()
        if header is None:
            raise DamagedLogError("no batch", path=None, position=0)
        if header.base_offset >= self.end_offset:
            self.next_offset = self.end_offset
            return None
        # The first batch may begin before the offset that was asked for.
        begins = 0 if self._is_first else self.next_offset
        if reason := out_of_order(header, begins):
            raise DamagedLogError(reason, path=None, position=0)
        return header

    @property
    def available(self) -> int:
        return len(self._records) - self._at

    def take(self, size: int) -> bytes:
        self._at += size
        return bytes(self._records[self._at - size : self._at])

    def passed(self, header: BatchHeader) -> None:
        self._is_first = False
        self.next_offset = header.next_offset

    def close(self) -> None:
        """Do nothing: it has no files or connections of its own."""

    def _header(self) -> BatchHeader | None:
        try:
            return read_header(self._records, self._at)
        except CorruptRecordError:
            return None

    def _size_at_head(self) -> int | None:
        """Return the size of the batch at the head, or of damage; None if it is cut off."""
        left = len(self._records) - self._at
        if left < HEADER_SIZE:
            return None
        header = self._header()
        if header is None:
            return left
        return header.size if header.size <= left else None


@frozen(kw_only=True)
class _Topic:
    topic_id: TopicId
    is_compacted: bool


@define(eq=False, kw_only=True)
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
